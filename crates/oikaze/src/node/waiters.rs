//! Threads that wait for a number to be reached, and are woken once, when it is.

use crate::sync::{Thread, current};

/// They stand under the lock of what they wait for, so that neither is missed.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<(u64, Thread)>);

impl Waiters {
    /// The calling thread waits until there are so many. It looks itself whether they are there already.
    pub fn enlist(&mut self, wanted: u64) {
        self.0.push((wanted, current()));
    }

    /// The calling thread waits no longer.
    pub fn delist(&mut self) {
        let me = current().id();
        if let Some(at) = self.0.iter().position(|(_, thread)| thread.id() == me) {
            self.0.swap_remove(at);
        }
    }

    /// The most that anybody waits for.
    pub fn most(&self) -> u64 {
        self.0.iter().map(|(wanted, _)| *wanted).max().unwrap_or(0)
    }

    /// There are so many now: wake those who have waited for it.
    pub fn wake(&mut self, there: u64) {
        self.0.retain(|(wanted, thread)| {
            if *wanted <= there {
                thread.unpark();
            }
            *wanted > there
        });
    }
}
