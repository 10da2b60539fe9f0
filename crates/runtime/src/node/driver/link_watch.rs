//! Announces a sleep on the link before it begins, and takes the announcement back once the thread
//! polls again.

use super::limits::{SLEEP_MAX, SLEEP_UNWATCHED_MAX};
use crate::node::parts::Node;
use oikaze_os::net::Link;
use std::time::Duration;

/// One thread's claim on the link's descriptor; given back when dropped.
pub struct LinkWatch<'n> {
    node: &'n Node,
    state: WatchState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchState {
    Idle,
    Watched,
    Refused,
}

impl<'n> LinkWatch<'n> {
    pub fn new(node: &'n Node) -> Self {
        Self { node, state: WatchState::Idle }
    }

    /// Announces a sleep: from here on the descriptor reports arrivals, earlier ones included.
    /// Returns how long the thread may sleep on the descriptor at most.
    pub fn hold(&mut self) -> Duration {
        if self.state == WatchState::Idle {
            let watched = self.node.with_engine(|engine| engine.link_mut().watch(true));
            self.state = if watched.is_ok() { WatchState::Watched } else { WatchState::Refused };
        }
        if self.state == WatchState::Watched { SLEEP_MAX } else { SLEEP_UNWATCHED_MAX }
    }

    /// Takes the announcement back, because no sleep is ahead.
    pub fn release(&mut self) {
        if std::mem::replace(&mut self.state, WatchState::Idle) == WatchState::Watched {
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
