//! Tracks fences for threads outside the engine. A thread may perform an operation on a mapped
//! region itself only if no fence holds the operation back (MEM-18.2).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the fences of one node: those requested and those ended.
#[derive(Debug, Default)]
pub struct Fences {
    asked: AtomicU64,
    over: AtomicU64,
}

impl Fences {
    /// Called just before a fence is requested from the engine
    /// ([`Request::Fence`](crate::Request::Fence)).
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Called when the first `asked` fences have ended.
    pub(crate) fn ended(&self, asked: u64) {
        self.over.store(asked, Ordering::Release);
    }

    /// Returns `true` if all operations that precede a fence have ended. A thread that sees `true`
    /// is ordered after these operations (acquire).
    #[inline]
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.over.load(Ordering::Acquire)
    }
}
