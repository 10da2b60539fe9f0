//! Live guards of one node over a segment, in memory that only this node writes and all nodes of
//! the machine read (COH-16.6). No system calls.
//!
//! A guard is published before the guards of other nodes are read, with a full fence between. Of
//! two guards that begin at the same time, at least one sees the other.

use super::extent::Extent;
use crate::memory::tracking::GuardKind;
use crate::shm::arena::points::pass_point;
use crate::shm::memory::{Memory, Ordering, fence};
use crate::shm::planted::{Bug, planted};

/// Number of guards of one node that may be alive over one array.
pub(super) const GUARDS_MAX: usize = 16_384;
/// Number of entries that are kept for merges. A merge that finds no room loses what a guard has
/// stored.
const KEPT: usize = 128;
/// Number of entries of one node.
pub(super) const ENTRIES: usize = GUARDS_MAX + KEPT;
/// Bytes of an entry: its sequence, its meaning, first byte and end.
const ENTRY: usize = 32;
/// Bytes of the head: one pair of cache lines.
pub(super) const HEAD: usize = 128;
/// Place in the head of the number of entries that may be in use.
const USED: usize = 0;
/// Place in the head of the mark (COH-16.8), which is 0 or 1.
const MARK: usize = 8;

/// Bytes of the entries of one node.
pub(super) const ENTRIES_LEN: usize = ENTRIES * ENTRY;

/// A live guard, as other nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardEntry {
    /// Purpose of the guard.
    pub kind: GuardKind,
    /// Exact bytes of the guard.
    pub extent: Extent,
    /// Is `true` if the guard lends a reference into the segment.
    pub lends: bool,
    /// Index of the line of the program in the node's table, or 0.
    pub place: u16,
}

impl GuardEntry {
    /// Returns kind, form and place in one word.
    fn meaning(&self) -> u64 {
        let kind = GuardKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64;
        kind | u64::from(self.extent.is_block) << 8
            | u64::from(self.lends) << 9
            | u64::from(self.place) << 16
    }

    /// Returns the guard of three words, or `None` if no correct node writes them.
    fn of_words(meaning: u64, start: u64, end: u64) -> Option<GuardEntry> {
        Some(GuardEntry {
            kind: *GuardKind::ALL.get((meaning & 0xff) as usize)?,
            extent: Extent { bytes: start..end, is_block: meaning >> 8 & 1 != 0 },
            lends: meaning >> 9 & 1 != 0,
            place: (meaning >> 16) as u16,
        })
    }
}

/// The guards of one node, in memory that all nodes map.
#[derive(Clone, Debug)]
pub(super) struct Area {
    head: Memory,
    entries: Memory,
}

impl Area {
    /// Takes the head and the entries of a node, which are zero at first.
    pub fn new(head: Memory, entries: Memory) -> Area {
        Area { head, entries }
    }

    /// Publishes a guard, and ends the publication.
    #[cfg(all(test, loom))]
    pub fn publish(&self, index: usize, sequence: u64, guard: &GuardEntry, used: usize) {
        self.fill(index, sequence, guard, used);
        self.end_publishing();
    }

    /// Publishes a guard in an entry that is not in use. The guards of other nodes may be read
    /// after [`Area::end_publishing`]. Only the owner of the area calls this, one thread at a time.
    #[inline]
    pub fn fill(&self, index: usize, sequence: u64, guard: &GuardEntry, used: usize) {
        let at = index * ENTRY;
        // A reader that sees a new field sees that the old sequence is over.
        fence(Ordering::Release);
        self.entries.store(at + 8, guard.meaning(), Ordering::Relaxed);
        self.entries.store(at + 16, guard.extent.bytes.start, Ordering::Relaxed);
        self.entries.store(at + 24, guard.extent.bytes.end, Ordering::Relaxed);
        self.head.store(USED, used as u64, Ordering::Relaxed);
        pass_point();
        self.entries.store(at, sequence, Ordering::Release);
    }

    /// Ends a publication of one guard or several.
    #[inline]
    pub fn end_publishing(&self) {
        pass_point();
        if !planted(Bug::PublishWithoutFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// Ends a guard. Only the owner of the area calls this, one thread at a time.
    #[inline]
    pub fn withdraw(&self, index: usize, used: usize) {
        pass_point();
        self.entries.store(index * ENTRY, 0, Ordering::Release);
        self.head.store(USED, used as u64, Ordering::Release);
    }

    /// Returns the first guard that `is_sought`. An entry that changes meanwhile is passed over,
    /// because its owner publishes later and sees the caller.
    #[inline]
    pub fn find(&self, is_sought: impl Fn(&GuardEntry) -> bool) -> Option<GuardEntry> {
        let used = self.head.load(USED, Ordering::Acquire);
        (0..(used as usize).min(ENTRIES)).filter_map(|index| self.read(index)).find(is_sought)
    }

    fn read(&self, index: usize) -> Option<GuardEntry> {
        let at = index * ENTRY;
        let sequence = self.entries.load(at, Ordering::Acquire);
        if sequence == 0 {
            return None;
        }
        let [meaning, start, end] =
            [8, 16, 24].map(|offset| self.entries.load(at + offset, Ordering::Relaxed));
        fence(Ordering::Acquire);
        // A caller that finds the end of the guard here comes behind all that the guard did.
        let is_torn = self.entries.load(at, Ordering::Acquire) != sequence;
        if is_torn && !planted(Bug::ReadTornEntry) {
            return None;
        }
        GuardEntry::of_words(meaning, start, end)
    }

    /// Marks the array, or takes the mark back. The guards of other nodes may be read afterwards.
    pub fn set_mark(&self, is_marked: bool) {
        pass_point();
        self.head.store(MARK, u64::from(is_marked), Ordering::Release);
        pass_point();
        if !planted(Bug::MarkWithoutFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// Returns `true` if the node has marked the array.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.head.load(MARK, Ordering::Acquire) != 0
    }
}
