//! List of threads that wait for a number to be reached.

use crate::sync::{Thread, current};

/// Waiting threads, under the lock of the counted items, so that no wakeup is missed.
#[derive(Debug, Default)]
pub struct Waiters(Vec<(u64, Thread)>);

impl Waiters {
    /// Enlists the calling thread until `wanted` is reached. The thread itself checks whether it is
    /// reached already.
    pub fn enlist(&mut self, wanted: u64) {
        self.0.push((wanted, current()));
    }

    /// Removes the calling thread.
    pub fn delist(&mut self) {
        let me = current().id();
        if let Some(at) = self.0.iter().position(|(_, thread)| thread.id() == me) {
            self.0.swap_remove(at);
        }
    }

    /// Returns the greatest number that a thread waits for.
    #[inline]
    pub fn most(&self) -> u64 {
        self.0.iter().map(|(wanted, _)| *wanted).max().unwrap_or(0)
    }

    /// Wakes the threads whose number is reached. They stay enlisted until they check, because
    /// another thread may have taken the items by then.
    #[inline]
    pub fn wake(&self, there: u64) {
        self.0
            .iter()
            .filter(|(wanted, _)| *wanted <= there)
            .for_each(|(_, thread)| thread.unpark());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Waiters;

    #[test]
    fn who_is_woken_in_vain_is_woken_again() {
        let mut waiters = Waiters::default();
        waiters.enlist(2);
        for there in [2, 3] {
            assert_eq!(waiters.most(), 2, "it waits until it says that it does not");
            waiters.wake(1);
            waiters.wake(there);
            crate::sync::park(None);
        }
        waiters.delist();
        assert_eq!(waiters.most(), 0);
    }
}
