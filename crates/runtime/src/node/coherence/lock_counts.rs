//! Counts of the locks of a node, and whether their managers are needed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Locks of a node that the engine does not count.
#[derive(Debug, Default)]
pub struct LockCounts {
    /// Is `true` once an array of this job was declared of which each node keeps pages.
    may_have_pages: AtomicBool,
    /// Number of locks that were taken without a manager.
    without_manager: AtomicU64,
}

impl LockCounts {
    /// Notes that each node keeps pages of an array, before the array is declared.
    pub fn expect_pages(&self) {
        self.may_have_pages.store(true, Ordering::SeqCst);
    }

    /// Returns `true` if there may be an array of which each node keeps pages.
    #[inline]
    pub fn may_have_pages(&self) -> bool {
        self.may_have_pages.load(Ordering::SeqCst)
    }

    /// Notes that a lock was taken without a manager.
    #[inline]
    pub fn note_taken(&self) {
        self.without_manager.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a lock that was taken without a manager was acquired from it later.
    pub fn note_acquired_late(&self) {
        self.without_manager.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many locks were taken without a manager.
    pub fn without_manager(&self) -> u64 {
        self.without_manager.load(Ordering::Relaxed)
    }
}
