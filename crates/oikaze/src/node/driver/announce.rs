//! Announces a sleep on the link before it begins, and takes the announcement back once the thread
//! polls again.

use crate::node::Node;
use oikaze_os::net::Link;
use std::time::Duration;

/// Time between two polls of a link that cannot be watched.
const UNWATCHED: Duration = Duration::from_millis(1);

/// One thread's claim on the link's descriptor; given back when dropped.
pub(crate) struct LinkWatch<'n> {
    node: &'n Node,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Watched,
    Refused,
}

impl<'n> LinkWatch<'n> {
    pub fn new(node: &'n Node) -> Self {
        Self { node, state: State::Idle }
    }

    /// Announces a sleep: from here on the descriptor reports arrivals, earlier ones included.
    /// Returns how long the thread may sleep on the descriptor at most.
    pub fn hold(&mut self) -> Duration {
        if self.state == State::Idle {
            let watched = self.node.with_engine(|engine| engine.link_mut().watch(true));
            self.state = if watched.is_ok() { State::Watched } else { State::Refused };
        }
        if self.state == State::Watched { super::drive::SLEEP_MAX } else { UNWATCHED }
    }

    /// Takes the announcement back, because no sleep is ahead.
    pub fn release(&mut self) {
        if std::mem::replace(&mut self.state, State::Idle) == State::Watched {
            // Taking the announcement back cannot fail.
            let _ = self.node.with_engine(|engine| engine.link_mut().watch(false));
        }
    }
}

impl Drop for LinkWatch<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
