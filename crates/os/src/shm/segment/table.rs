//! The segments of a node, and what a collective of all nodes needs to know of them (COH-16.3).

use super::notes::SegmentNotes;
use super::shared::Segment;
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::Rank;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// All segments of a node.
#[derive(Debug, Default)]
pub struct SegmentTable {
    /// In the order of the declarations, which is the same on all nodes.
    segments: Mutex<Vec<Weak<Segment>>>,
    /// Number of segments. 0 is a promise that there is none, which costs one load.
    count: AtomicUsize,
    notes: Arc<SegmentNotes>,
    /// Number of locks that this node holds.
    locks: AtomicUsize,
    /// Is `true` if a lock was held since the last collective, which orders its writes.
    is_under_lock: AtomicBool,
    is_off: AtomicBool,
}

/// Bytes that guards of this node owned before a call of all nodes.
#[derive(Debug, Default)]
pub struct OwnedInterval(Vec<(Arc<Segment>, Vec<Range<u64>>)>);

/// Bytes that guards of two nodes owned between two collectives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedOverlap {
    /// Name of the array.
    pub array: String,
    /// The two nodes.
    pub ranks: [Rank; 2],
    /// The first bytes.
    pub bytes: Range<u64>,
}

impl SegmentTable {
    /// Notes that the user wants no segments on this node (`OIKAZE_WITHOUT=segment`).
    pub fn switch_off(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the user wants no segments on this node.
    #[must_use]
    pub fn is_switched_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Returns the notes of the guards of this node.
    #[must_use]
    pub fn notes(&self) -> &Arc<SegmentNotes> {
        &self.notes
    }

    /// Adds a segment, when this node has mapped it.
    pub fn add(&self, segment: &Arc<Segment>) {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|segment| segment.strong_count() > 0);
        segments.push(Arc::downgrade(segment));
        self.count.store(segments.len(), Ordering::Release);
    }

    /// Returns all segments of this node. They stay mapped for as long as the caller has them.
    #[inline]
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Segment>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().filter_map(Weak::upgrade).collect()
    }

    /// Notes that this node has taken a lock.
    pub fn took_lock(&self) {
        self.locks.fetch_add(1, Ordering::Relaxed);
        self.is_under_lock.store(true, Ordering::Release);
    }

    /// Notes that this node gives a lock back, which ends its interval.
    pub fn gave_lock_back(&self) {
        self.locks.fetch_sub(1, Ordering::Relaxed);
        drop(self.end_interval());
    }

    /// Ends the interval of this node, because it calls a collective of all nodes.
    #[inline]
    pub fn end_interval(&self) -> OwnedInterval {
        let was_under_lock = self.is_under_lock.load(Ordering::Acquire)
            && self.is_under_lock.swap(self.locks.load(Ordering::Relaxed) > 0, Ordering::AcqRel);
        if !self.notes.take_owned() {
            return OwnedInterval::default();
        }
        let owned = self.all().into_iter().map(|segment| {
            let owned = segment.take_owned();
            (segment, owned)
        });
        let owned: Vec<_> = owned.filter(|(_, owned)| !owned.is_empty()).collect();
        let is_told = !was_under_lock || planted(Bug::CompareUnderLock);
        OwnedInterval(if is_told { owned } else { Vec::new() })
    }

    /// Takes the race that a guard of this node has found first, for the next call.
    #[inline]
    #[must_use]
    pub fn take_race(&self) -> Option<String> {
        self.notes.take_race()
    }
}

impl OwnedOverlap {
    /// Returns two nodes whose guards owned one byte of these segments before collective `number`,
    /// to which all nodes have come. All nodes find the same. There is no collective 0.
    #[inline]
    #[must_use]
    pub fn of(segments: &[Arc<Segment>], number: u64) -> Option<OwnedOverlap> {
        segments.iter().filter(|_| number != 0).find_map(|segment| {
            let (ranks, bytes) = segment.overlap(number)?;
            Some(OwnedOverlap { array: segment.name.clone(), ranks, bytes })
        })
    }
}

impl OwnedInterval {
    /// Tells the other nodes, before this node comes to collective `number`.
    #[inline]
    pub fn tell(&self, number: u64) {
        self.0.iter().for_each(|(segment, owned)| segment.tell_owned(number, owned));
    }
}
