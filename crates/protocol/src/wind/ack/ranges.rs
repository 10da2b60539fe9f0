//! Sets of numbers as sorted, disjoint, non-touching half-open ranges.

use alloc::vec::Vec;
use core::ops::Range;

/// Set of `u64` (never `u64::MAX`). Adding at the end, the common case, is O(1), and does not
/// allocate while the ranges are few.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    pub const fn new() -> RangeSet {
        RangeSet { ranges: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges, not of numbers.
    pub fn pieces(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the range with this index, counted from the smallest.
    pub fn get(&self, index: usize) -> Option<Range<u64>> {
        self.ranges.get(index).cloned()
    }

    /// Iterates over the ranges from the smallest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(at).is_some_and(|range| range.start <= number)
    }

    /// Returns the number of ranges that lie below a number and do not contain it.
    pub fn pieces_below(&self, number: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= number)
    }

    /// Returns `true` if the whole range is in the set. An empty range always is.
    pub fn covers(&self, wanted: &Range<u64>) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= wanted.start);
        wanted.is_empty()
            || self
                .ranges
                .get(at)
                .is_some_and(|range| range.start <= wanted.start && wanted.end <= range.end)
    }

    /// Returns the smallest number ≥ `from` that is missing.
    pub fn first_missing(&self, from: u64) -> u64 {
        let at = self.ranges.partition_point(|range| range.end <= from);
        match self.ranges.get(at) {
            Some(range) if range.start <= from => range.end,
            _ => from,
        }
    }

    /// Returns `true` if [`insert`](Self::insert) would add one range.
    pub fn would_add_piece(&self, range: &Range<u64>) -> bool {
        let (low, high) = self.touching(range);
        !range.is_empty() && low == high
    }

    /// Returns the indices of ranges that overlap or touch.
    fn touching(&self, range: &Range<u64>) -> (usize, usize) {
        if let Some(last) = self.ranges.last()
            && last.end < range.start
        {
            return (self.ranges.len(), self.ranges.len());
        }
        let low = self.ranges.partition_point(|r| r.end < range.start);
        let high = self.ranges.partition_point(|r| r.start <= range.end);
        (low, high)
    }

    /// Adds all numbers of a range. Returns `true` if any of them was new.
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        if let Some(last) = self.ranges.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
            return true;
        }
        let (low, high) = self.touching(&range);
        if low == high {
            self.ranges.insert(low, range);
            return true;
        }
        let end = self.ranges.get(high - 1).map_or(range.end, |last| last.end.max(range.end));
        let Some(first) = self.ranges.get_mut(low) else { return false };
        if high == low + 1 && first.start <= range.start && range.end <= first.end {
            return false;
        }
        first.start = first.start.min(range.start);
        first.end = end;
        self.ranges.drain(low + 1..high);
        true
    }

    /// Removes all numbers of a range.
    pub fn remove(&mut self, gone: Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let mut at = self.ranges.partition_point(|range| range.end <= gone.start);
        while let Some(range) = self.ranges.get_mut(at) {
            if range.start >= gone.end {
                break;
            }
            let (before, after) = (range.start..gone.start, gone.end..range.end);
            match (before.is_empty(), after.is_empty()) {
                (true, true) => {
                    self.ranges.remove(at);
                }
                (false, true) => {
                    *range = before;
                    at += 1;
                }
                (true, false) => {
                    *range = after;
                    at += 1;
                }
                (false, false) => {
                    *range = before;
                    self.ranges.insert(at + 1, after);
                    break;
                }
            }
        }
    }

    /// Returns the parts of a range that are not in the set.
    pub fn missing(&self, wanted: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= wanted.start);
        let mut have = self.ranges.iter().skip(first);
        let mut at = wanted.start;
        core::iter::from_fn(move || {
            while at < wanted.end {
                let next = have.next();
                let gap = at..next.map_or(wanted.end, |range| range.start.min(wanted.end));
                at = next.map_or(wanted.end, |range| range.end);
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Removes and returns the smallest range.
    pub fn forget_first(&mut self) -> Option<Range<u64>> {
        if self.ranges.is_empty() { None } else { Some(self.ranges.remove(0)) }
    }

    /// Keeps only the last range, in as little memory as possible, and returns its start.
    pub fn keep_last(&mut self) -> Option<u64> {
        let last = self.ranges.pop();
        self.ranges = last.iter().cloned().collect();
        last.map(|range| range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const TOP: u64 = 60;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Range<u64>),
        Remove(Range<u64>),
        ForgetFirst,
    }

    fn range() -> impl Strategy<Value = Range<u64>> {
        (0..TOP, 0..12u64).prop_map(|(start, len)| start..(start + len).min(TOP))
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            5 => range().prop_map(Op::Insert),
            2 => range().prop_map(Op::Remove),
            1 => Just(Op::ForgetFirst),
        ]
    }

    /// Returns the smallest run of an oracle set.
    fn first_run(oracle: &BTreeSet<u64>) -> Option<Range<u64>> {
        let start = *oracle.first()?;
        Some(start..(start..).find(|n| !oracle.contains(n)).unwrap())
    }

    fn check(set: &RangeSet, oracle: &BTreeSet<u64>) {
        let all: Vec<u64> = set.iter().flatten().collect();
        assert_eq!(all, oracle.iter().copied().collect::<Vec<_>>());
        let pieces: Vec<_> = set.iter().collect();
        assert!(pieces.windows(2).all(|w| w[0].end < w[1].start), "disjoint, not touching");
        assert!(pieces.iter().all(|r| !r.is_empty()));
        for n in 0..TOP {
            assert_eq!(set.contains(n), oracle.contains(&n));
            assert_eq!(set.first_missing(n), (n..).find(|x| !oracle.contains(x)).unwrap());
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(ops in prop::collection::vec(op(), 1..60), probe in range()) {
            let mut set = RangeSet::new();
            let mut oracle = BTreeSet::new();
            for op in ops {
                match op {
                    Op::Insert(r) => {
                        let new = r.clone().any(|n| !oracle.contains(&n));
                        let (before, grows) = (set.pieces(), set.would_add_piece(&r));
                        prop_assert_eq!(set.insert(r.clone()), new);
                        prop_assert_eq!(set.pieces() > before, grows);
                        oracle.extend(r);
                    }
                    Op::Remove(r) => {
                        set.remove(r.clone());
                        oracle.retain(|n| !r.contains(n));
                    }
                    Op::ForgetFirst => {
                        let expected = first_run(&oracle);
                        prop_assert_eq!(set.forget_first(), expected.clone());
                        oracle.retain(|n| !expected.clone().unwrap_or(0..0).contains(n));
                    }
                }
                check(&set, &oracle);
                prop_assert_eq!(set.covers(&probe), probe.clone().all(|n| oracle.contains(&n)));
                let missing: Vec<u64> = set.missing(probe.clone()).flatten().collect();
                let expected: Vec<u64> = probe.clone().filter(|n| !oracle.contains(n)).collect();
                prop_assert_eq!(missing, expected);
            }
        }
    }
}
