//! Places for marks, one for each thread.

use super::PLACES;
use std::sync::atomic::{AtomicU64, Ordering};

const _: () = assert!(PLACES == u64::BITS as usize);

/// One bit for each place that is taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A place that a thread holds until it ends.
struct ThreadPlace(usize);

impl ThreadPlace {
    /// Takes the first free place.
    fn take() -> Option<ThreadPlace> {
        let first_free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, first_free).ok()?;
        Some(ThreadPlace(taken.trailing_ones() as usize))
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

thread_local! {
    static PLACE: Option<ThreadPlace> = ThreadPlace::take();
}

/// Returns this thread's place. Returns `None` if other threads hold all places, or if this thread
/// is about to end.
#[inline]
pub(crate) fn place() -> Option<usize> {
    PLACE.try_with(|place| place.as_ref().map(|place| place.0)).ok().flatten()
}
