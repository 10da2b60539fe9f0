//! A view of both rings from outside, for callers that poll without a turn.

use super::layout::RING;
#[cfg(not(all(test, loom)))]
use super::{MAKES_FENCES, Reader, is_asleep};
use super::{SETTLED, place};
#[cfg(not(all(test, loom)))]
use crate::hazard::fences::{self, Reach};
use crate::shm::memory::{Memory, Ordering};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What any thread may see of both rings at any time, without having them: hints, but for what the
/// reader of ours has settled.
#[derive(Clone, Debug)]
pub struct RingView {
    ours: Memory,
    theirs: Memory,
    head: Arc<AtomicU64>,
    /// How far everything is known to be settled.
    settled: Arc<AtomicU64>,
    /// The kernel makes fences in this process when others ask it to.
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
            has_fences_made: fences::are_asymmetric(Reach::Machine),
        }
    }

    /// Does a record wait that the reader has not passed, most likely?
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.theirs.load(place(self.head.load(Ordering::Relaxed)), Ordering::Relaxed) != 0
    }

    /// Does the local peer say that all up to this position is settled?
    #[inline]
    #[must_use]
    pub fn has_settled(&self, position: u64) -> bool {
        // The reader writes there at each record: the line is asked for only when it must be.
        if self.settled.load(Ordering::Acquire) >= position {
            return true;
        }
        let settled = self.ours.load(SETTLED, Ordering::Acquire);
        // What cannot be is not kept: the engine finds it, too, and ends who wrote it.
        if settled >= position && settled - position <= RING as u64 {
            self.settled.store(settled, Ordering::Release);
        }
        settled >= position
    }

    /// As [`Writer::must_wake`]; the fence may be the reader's to make (MEM-16.5).
    #[cfg(not(all(test, loom)))]
    #[inline]
    #[must_use]
    pub fn must_wake(&self) -> bool {
        fences::light(self.has_fences_made && self.ours.load(MAKES_FENCES, Ordering::Relaxed) == 1);
        is_asleep(&self.ours)
    }
}
