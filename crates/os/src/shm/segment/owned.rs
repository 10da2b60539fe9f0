//! Bytes of a segment that guards of each node owned since the last collective of all nodes
//! (COH-16.3). Each node has two lists, by the parity of the collective's number: a node may begin
//! the next collective while another one still compares.

use crate::shm::memory::{Memory, Ordering, fence};
use crate::shm::planted::{Bug, planted};
use std::ops::Range;

/// Maximum number of ranges of one list (COH-10.14).
pub(super) const RANGES_MAX: usize = 1024;
/// Place of a list's number of the collective, and of the number of its ranges. First byte and end
/// of all ranges follow.
const NUMBER: usize = 0;
const COUNT: usize = 8;
const HULL: usize = 16;
/// Bytes of the head of a list.
const LIST_HEAD: usize = 64;

/// Bytes of the heads of a node's two lists.
pub(super) const HEADS_LEN: usize = 2 * LIST_HEAD;
/// Bytes of the ranges of one list.
pub(super) const LIST_LEN: usize = RANGES_MAX * 16;

/// Lists of one node.
#[derive(Clone, Debug)]
pub(super) struct OwnedLists {
    heads: Memory,
    lists: [Memory; 2],
}

/// List of one node for one collective.
pub(super) struct OwnedList<'a> {
    list: &'a Memory,
    count: usize,
    pub hull: Range<u64>,
}

impl OwnedLists {
    /// Takes the heads and the lists, which are zero at first.
    pub fn new(heads: Memory, lists: [Memory; 2]) -> OwnedLists {
        OwnedLists { heads, lists }
    }

    /// Returns the index of the list of this collective.
    pub fn index(number: u64) -> usize {
        if planted(Bug::KeepOneOwnedList) { 0 } else { (number % 2) as usize }
    }

    /// Writes the list of this collective, before the node comes to it. The ranges are in order,
    /// disjoint, and at most [`RANGES_MAX`].
    pub fn write(&self, number: u64, ranges: &[Range<u64>]) {
        let (index, ranges) = (Self::index(number), ranges.get(..RANGES_MAX).unwrap_or(ranges));
        let Some(list) = self.lists.get(index) else { return };
        let head = index * LIST_HEAD;
        // A reader that finds a new range finds that the old list is over.
        self.heads.store(head + NUMBER, 0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, range) in ranges.iter().enumerate() {
            list.store(16 * at, range.start, Ordering::Relaxed);
            list.store(16 * at + 8, range.end, Ordering::Relaxed);
        }
        let start = ranges.first().map_or(0, |range| range.start);
        let end = ranges.last().map_or(0, |range| range.end);
        self.heads.store(head + COUNT, ranges.len() as u64, Ordering::Relaxed);
        self.heads.store(head + HULL, start, Ordering::Relaxed);
        self.heads.store(head + HULL + 8, end, Ordering::Relaxed);
        self.heads.store(head + NUMBER, number, Ordering::Release);
    }

    /// Returns the list of a collective that the node has come to, if it has one.
    #[inline]
    pub fn read(&self, number: u64) -> Option<OwnedList<'_>> {
        let index = Self::index(number);
        let head = index * LIST_HEAD;
        if self.heads.load(head + NUMBER, Ordering::Acquire) != number {
            return None;
        }
        let word = |place| self.heads.load(head + place, Ordering::Relaxed);
        let count = usize::try_from(word(COUNT)).unwrap_or(usize::MAX).min(RANGES_MAX);
        Some(OwnedList { list: self.lists.get(index)?, count, hull: word(HULL)..word(HULL + 8) })
    }
}

impl OwnedList<'_> {
    fn range(&self, at: usize) -> Option<Range<u64>> {
        let word = |place| self.list.load(place, Ordering::Relaxed);
        (at < self.count).then(|| word(16 * at)..word(16 * at + 8))
    }

    /// Returns the first bytes that both lists have.
    pub fn overlap(&self, other: &OwnedList<'_>) -> Option<Range<u64>> {
        let (mut one, mut two) = (0, 0);
        loop {
            let (a, b) = (self.range(one)?, other.range(two)?);
            let common = a.start.max(b.start)..a.end.min(b.end);
            if !common.is_empty() {
                return Some(common);
            }
            if a.end <= b.end { one += 1 } else { two += 1 }
        }
    }
}

impl OwnedLists {
    /// Returns `true` if the list of this collective has not been written anew since it was read.
    pub fn is_still_of(&self, number: u64) -> bool {
        fence(Ordering::Acquire);
        let head = Self::index(number) * LIST_HEAD;
        self.heads.load(head + NUMBER, Ordering::Relaxed) == number
    }
}

/// Bytes that guards of this node owned since the last collective, as they are gathered.
#[derive(Debug, Default)]
pub(super) struct OwnedRanges {
    ranges: Vec<Range<u64>>,
    /// Set once there are too many ranges to be compared.
    is_beyond: bool,
}

impl OwnedRanges {
    /// Adds bytes of a guard.
    #[inline]
    pub fn add(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() || self.is_beyond {
            return;
        }
        if let Some(last) = self.ranges.last_mut() {
            // Most guards follow the one before, or are the same again.
            if *last == bytes {
                return;
            }
            if last.end == bytes.start {
                last.end = bytes.end;
                return;
            }
        }
        self.ranges.push(bytes);
        if self.ranges.len() > 4 * RANGES_MAX {
            self.join();
            self.is_beyond = self.ranges.len() > RANGES_MAX;
        }
    }

    /// Puts the ranges in order, and joins those that touch.
    fn join(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|range, last| {
            let joins = range.start <= last.end || planted(Bug::JoinOwnedGaps);
            if joins {
                last.end = last.end.max(range.end);
            }
            joins
        });
    }

    /// Takes all ranges, in order and disjoint. There are none if they are too many.
    pub fn take(&mut self) -> Vec<Range<u64>> {
        self.join();
        let ranges = if planted(Bug::KeepOwned) { self.ranges.clone() } else { Vec::new() };
        let taken = std::mem::replace(self, OwnedRanges { ranges, is_beyond: false });
        if taken.is_beyond || taken.ranges.len() > RANGES_MAX { Vec::new() } else { taken.ranges }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn lists() -> OwnedLists {
        let mapping = Arc::new(Mapping::anonymous(HEADS_LEN + 2 * LIST_LEN).unwrap());
        let part = |at, len| Memory::new(Arc::clone(&mapping), at, len);
        let list = |index| part(HEADS_LEN + index * LIST_LEN, LIST_LEN);
        OwnedLists::new(part(0, HEADS_LEN), [list(0), list(1)])
    }

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..64, 0u64..8), 0..12)
    }

    proptest! {
        #[test]
        fn lists_overlap_if_a_byte_is_in_both(one in ranges(), other in ranges(), number in 1u64..9) {
            let own = |ranges: &[(u64, u64)]| {
                let (lists, mut own) = (lists(), OwnedRanges::default());
                let mut bytes = [false; 80];
                for (start, len) in ranges {
                    own.add(*start..start + len);
                    (*start..start + len).for_each(|at| bytes[at as usize] = true);
                }
                lists.write(number, &own.take());
                (lists, bytes)
            };
            let ((one, bytes), (other, others)) = (own(&one), own(&other));
            let (one, other) = (one.read(number).unwrap(), other.read(number).unwrap());
            let expected = (0..80).find(|at| bytes[*at] && others[*at]);
            prop_assert_eq!(one.overlap(&other).map(|common| common.start as usize), expected);
            prop_assert_eq!(other.overlap(&one), one.overlap(&other));
        }
    }

    #[test]
    fn a_list_belongs_to_one_collective() {
        let lists = lists();
        lists.write(3, &[0..4, 8..12]);
        lists.write(4, std::slice::from_ref(&(1..2)));
        assert_eq!(lists.read(3).map(|list| list.hull), Some(0..12));
        assert_eq!(lists.read(4).map(|list| list.hull), Some(1..2));
        assert!(lists.read(5).is_none() && lists.read(1).is_none());
        lists.write(5, &[]);
        assert!(lists.read(3).is_none(), "the list was used again");
    }

    #[test]
    fn too_many_ranges_are_not_compared() {
        let mut own = OwnedRanges::default();
        (0..2000).for_each(|at| own.add(10 * at..10 * at + 5));
        assert!(own.take().is_empty());
        (0..5000).for_each(|at| own.add(4 * (at % 100)..4 * (at % 100) + 4));
        assert_eq!(own.take(), std::slice::from_ref(&(0..400)));
    }
}
