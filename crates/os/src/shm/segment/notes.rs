//! Notes of a node's guards of segments for its next call of all nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Notes of the guards of one node.
#[derive(Debug, Default)]
pub struct SegmentNotes {
    /// Is `true` once a guard has owned bytes since the last call.
    has_owned: AtomicBool,
    /// Race that a guard has found when it ended, until a call reports it.
    race: Mutex<Option<String>>,
    has_race: AtomicBool,
}

impl SegmentNotes {
    /// Notes that a guard has owned bytes.
    #[inline]
    pub(super) fn note_owned(&self) {
        if !self.has_owned.load(Ordering::Relaxed) {
            self.has_owned.store(true, Ordering::Release);
        }
    }

    /// Returns `true` if a guard has owned bytes since this was asked last.
    #[inline]
    pub(super) fn take_owned(&self) -> bool {
        self.has_owned.load(Ordering::Acquire) && self.has_owned.swap(false, Ordering::AcqRel)
    }

    /// Keeps a race that a guard has found.
    pub(super) fn keep_race(&self, text: String) {
        let mut race = self.race.lock().unwrap_or_else(PoisonError::into_inner);
        race.get_or_insert(text);
        self.has_race.store(true, Ordering::Release);
    }

    /// Takes the race that was kept first.
    #[inline]
    pub(super) fn take_race(&self) -> Option<String> {
        if !self.has_race.load(Ordering::Acquire) {
            return None;
        }
        self.has_race.store(false, Ordering::Release);
        self.race.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
