//! Set of numbers, such as bytes or pages of one array, kept as disjoint ranges.

use crate::bytes::{ByteReader, ByteWriter, Invalid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Returns the numbers that are in both ranges; an empty range if there are none.
pub(crate) fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Sorted, disjoint ranges that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct NumberSet(BTreeMap<u64, u64>);

impl NumberSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the numbers that are in both sets.
    pub fn intersection(&self, other: &NumberSet) -> NumberSet {
        let mut both = NumberSet::default();
        if other.is_empty() {
            return both;
        }
        for range in self.iter() {
            other.overlaps(range).for_each(|part| both.insert(part));
        }
        both
    }

    /// Writes the count of the ranges, then the gap since the end of the range before it and the
    /// length of each.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        let mut end = 0;
        for range in self.iter() {
            out.put_leb128(range.start - end).put_leb128(range.end - range.start);
            end = range.end;
        }
    }

    /// Reads a set. Its ranges are in order and apart, and none is empty.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<NumberSet, Invalid> {
        let mut set = NumberSet::default();
        let mut end = 0u64;
        for number in 0..reader.count(2)? {
            let (gap, len) = (reader.leb128()?, reader.leb128()?);
            if len == 0 || (gap == 0 && number > 0) {
                return Err(Invalid);
            }
            let start = end.checked_add(gap).ok_or(Invalid)?;
            end = start.checked_add(len).ok_or(Invalid)?;
            set.0.insert(start, end);
        }
        Ok(set)
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Adds a range, and joins it with ranges that it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        while let Some((first, last)) = self.0.range(..=end).next_back().map(|(f, l)| (*f, *l)) {
            if last < start {
                break;
            }
            self.0.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.0.insert(start, end);
    }

    /// Removes a range, and cuts ranges that it overlaps.
    pub fn remove(&mut self, range: Range<u64>) {
        let cut: Vec<Range<u64>> = self.overlaps(range.clone()).collect();
        for part in cut {
            let Some((first, last)) =
                self.0.range(..=part.start).next_back().map(|(first, last)| (*first, *last))
            else {
                continue;
            };
            self.0.remove(&first);
            if first < part.start {
                self.0.insert(first, part.start);
            }
            if part.end < last {
                self.0.insert(part.end, last);
            }
        }
    }

    /// Returns the parts of `range` that are in the set, in order.
    pub fn overlaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..=range.start).next_back();
        let rest = self.0.range(range.start.saturating_add(1)..range.end.max(range.start + 1));
        before.into_iter().chain(rest).filter_map(move |(first, last)| {
            let part = common(&(*first..*last), &range);
            (!part.is_empty()).then_some(part)
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(first, last)| *first..*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The set holds the same numbers as a plain list of flags.
        #[test]
        fn ranges_are_what_a_list_of_flags_is(
            changes in prop::collection::vec((any::<bool>(), 0..60u64, 0..20u64), 0..40),
            asked in (0..70u64, 0..30u64),
        ) {
            let (mut set, mut flags) = (NumberSet::default(), [false; 100]);
            for (adds, at, len) in changes {
                if adds { set.insert(at..at + len) } else { set.remove(at..at + len) }
                flags[at as usize..(at + len) as usize].fill(adds);
            }
            let mut held = [false; 100];
            let mut end = None;
            for range in set.iter() {
                prop_assert!(range.start < range.end && end.is_none_or(|end| end < range.start));
                end = Some(range.end);
                held[range.start as usize..range.end as usize].fill(true);
            }
            prop_assert_eq!(held, flags);
            let asked = asked.0..asked.0 + asked.1;
            let mut parts = [false; 100];
            set.overlaps(asked.clone()).for_each(|part| parts[part.start as usize..part.end as usize].fill(true));
            for (at, flag) in flags.iter().enumerate() {
                prop_assert_eq!(parts[at], *flag && asked.contains(&(at as u64)));
            }
        }
    }
}
