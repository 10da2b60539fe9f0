//! Points of arenas and segments, between the stores that other members see. A test kills or stops
//! its process at one of them. Release builds have none.

#[cfg(all(debug_assertions, not(all(test, loom))))]
pub use counted::signal_at_point;

/// Passes a point.
#[inline]
pub(in crate::shm) fn pass_point() {
    #[cfg(all(debug_assertions, not(all(test, loom))))]
    counted::pass();
}

#[cfg(all(debug_assertions, not(all(test, loom))))]
mod counted {
    use rustix::process::Signal;
    use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

    /// Number of points to the one with the signal; 0 if there is none.
    static LEFT: AtomicU64 = AtomicU64::new(0);
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    /// Sends a signal to this process at the point of this number from now on, from 1. 0 stands for
    /// no point. Returns the number of points that were left from the call before: 0 if it has sent
    /// its signal.
    pub fn signal_at_point(number: u64, signal: Signal) -> u64 {
        SIGNAL.store(signal.as_raw(), Ordering::SeqCst);
        LEFT.swap(number, Ordering::SeqCst)
    }

    #[inline]
    pub fn pass() {
        if LEFT.load(Ordering::Relaxed) != 0 {
            count();
        }
    }

    #[cold]
    fn count() {
        let less = |left: u64| left.checked_sub(1);
        if LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) == Ok(1) {
            // SAFETY: sends a signal to this thread, and passes no pointer. The thread takes the
            // signal before it returns.
            unsafe { libc::raise(SIGNAL.load(Ordering::SeqCst)) };
        }
    }
}
