//! Threads that wait for a number to be reached, and are woken when it is.

use crate::sync::{Thread, current};

/// They stand under the lock of what they wait for, so that neither is missed.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<(u64, Thread)>);

impl Waiters {
    /// The calling thread waits until there are so many. It looks itself whether they are there
    /// already.
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

    /// There are so many now: wake those who have waited for it. They stay until they look: another
    /// thread may have taken them by then.
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
            std::thread::park();
        }
        waiters.delist();
        assert_eq!(waiters.most(), 0);
    }
}
