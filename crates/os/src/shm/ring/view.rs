//! A view of both rings from outside, for callers that poll without a turn.

use super::layout::RING;
#[cfg(not(all(test, loom)))]
use super::reader::Reader;
#[cfg(not(all(test, loom)))]
use super::{MAKES_FENCES, is_asleep};
use super::{SETTLED, place};
use crate::shm::memory::{Memory, Ordering};
#[cfg(not(all(test, loom)))]
use crate::sync::asymmetric_fence::{self, Reach};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A view of both rings that any thread may read at any time, without owning the rings. All answers
/// are hints, except which of our records the local peer has settled.
#[derive(Clone, Debug)]
pub struct RingView {
    ours: Memory,
    theirs: Memory,
    head: Arc<AtomicU64>,
    /// Position up to which everything is known to be settled.
    settled: Arc<AtomicU64>,
    /// `true` if the kernel makes fences in this process when others ask for them.
    has_fences_made: bool,
}

impl RingView {
    #[cfg(not(all(test, loom)))]
    pub(in crate::shm) fn new(ours: &Memory, reader: &Reader) -> RingView {
        let (theirs, head) = (reader.memory.clone(), Arc::clone(&reader.seen));
        RingView {
            ours: ours.clone(),
            theirs,
            head,
            settled: Arc::default(),
            has_fences_made: asymmetric_fence::are_asymmetric(Reach::Machine),
        }
    }

    /// Returns `true` if a record most likely waits that the reader has not passed.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.theirs.load(place(self.head.load(Ordering::Relaxed)), Ordering::Relaxed) != 0
    }

    /// Returns `true` if the local peer says that everything up to this position is settled.
    #[inline]
    #[must_use]
    pub fn has_settled(&self, position: u64) -> bool {
        // The reader writes `SETTLED` at each record, so this thread loads that cache line only
        // when it must.
        if self.settled.load(Ordering::Acquire) >= position {
            return true;
        }
        let settled = self.ours.load(SETTLED, Ordering::Acquire);
        // An impossible position is not kept. The engine finds it too, and ends the connection to
        // the local peer that wrote it.
        if settled >= position && settled - position <= RING as u64 {
            self.settled.store(settled, Ordering::Release);
        }
        settled >= position
    }

    /// As [`Writer::must_wake`]. The reader may make the fence for this thread (MEM-16.5).
    #[cfg(not(all(test, loom)))]
    #[inline]
    #[must_use]
    pub fn must_wake(&self) -> bool {
        asymmetric_fence::light(
            self.has_fences_made && self.ours.load(MAKES_FENCES, Ordering::Relaxed) == 1,
        );
        is_asleep(&self.ours)
    }
}
