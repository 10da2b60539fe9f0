//! Turns of a node's threads to declare arrays. One thread declares at a time, so that each
//! declaration has one number on all nodes (COH-2.1).

use crate::sync::{Thread, current, current_name, lock};
use std::sync::Mutex;

/// Declaration that a thread of this node makes, if any.
#[derive(Default)]
pub struct DeclarationTurns(Mutex<Option<Declarer>>);

struct Declarer {
    /// Operation, as errors name it.
    what: String,
    thread: Thread,
    thread_name: String,
}

/// Reason why it is not the calling thread's turn.
pub enum NotYet {
    /// Another thread declares.
    Other,
    /// The calling thread itself makes this declaration: a handler of a signal has interrupted it.
    Same(String),
}

impl DeclarationTurns {
    /// Begins the turn of the calling thread, unless a turn has begun and not ended.
    pub fn try_begin(&self, what: &str) -> Result<(), NotYet> {
        let mut declarer = lock(&self.0);
        match &*declarer {
            None => {
                let (thread, thread_name) = (current(), current_name());
                *declarer = Some(Declarer { what: what.to_owned(), thread, thread_name });
                Ok(())
            }
            Some(holder) if holder.thread.id() == current().id() => {
                Err(NotYet::Same(holder.what.clone()))
            }
            Some(_) => Err(NotYet::Other),
        }
    }

    /// Ends the turn of the calling thread.
    pub fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Returns what another thread declares, for messages.
    pub fn text(&self) -> String {
        lock(&self.0).as_ref().map_or_else(
            || "a declaration that has just ended".to_owned(),
            |Declarer { what, thread_name, .. }| format!("{what} in thread \"{thread_name}\""),
        )
    }
}
