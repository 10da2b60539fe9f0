//! Counts guards that are alive, so that a barrier or a lock can be refused without a search
//! (COH-6.10).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of live guards of one node. The node's arrays share it.
#[derive(Debug, Default)]
pub struct LiveGuards(AtomicUsize);

thread_local! {
    /// Number of live guards taken by this thread, of all nodes of the process.
    static OF_THIS_THREAD: Arc<AtomicUsize> = Arc::default();
}

/// Identifies the thread that took a guard.
#[derive(Clone, Debug)]
pub(super) struct Taker(Arc<AtomicUsize>);

impl Taker {
    /// Returns the calling thread. (A thread that is ending has no count of its own any more.)
    pub fn current() -> Taker {
        Taker(OF_THIS_THREAD.try_with(Arc::clone).unwrap_or_default())
    }
}

impl PartialEq for Taker {
    fn eq(&self, other: &Taker) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl LiveGuards {
    /// Returns `true` if any guard of this node is alive.
    #[inline]
    #[must_use]
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns `true` if the calling thread took any live guard, of any node of this process.
    #[inline]
    #[must_use]
    pub fn are_any_of_this_thread() -> bool {
        OF_THIS_THREAD.try_with(|count| count.load(Ordering::Relaxed)).unwrap_or(0) != 0
    }

    pub(super) fn taken(&self, taker: &Taker) {
        self.0.fetch_add(1, Ordering::Relaxed);
        taker.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, taker: &Taker) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        taker.0.fetch_sub(1, Ordering::Relaxed);
    }
}
