//! Map from numbers, such as the pages of one array, to values, kept as disjoint runs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Values of numbers. A run of numbers with one value begins at its key. Runs are disjoint.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct RunMap<V>(BTreeMap<u64, (u64, V)>);

impl<V> Default for RunMap<V> {
    fn default() -> Self {
        RunMap(BTreeMap::new())
    }
}

impl<V: Clone> RunMap<V> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a number, if it has one.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&V> {
        let (_, (end, value)) = self.0.range(..=number).next_back()?;
        (number < *end).then_some(value)
    }

    /// Returns the parts of `range`, in order, each with the value of all its numbers.
    pub fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<&V>)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..=range.start).next_back().map(|(start, _)| *start);
        for (start, (end, value)) in self.0.range(before.unwrap_or(range.start)..) {
            if *start >= range.end {
                break;
            }
            if at < *start {
                parts.push((at..*start, None));
            }
            let part = at.max(*start)..range.end.min(*end);
            if !part.is_empty() {
                at = part.end;
                parts.push((part, Some(value)));
            }
        }
        if at < range.end {
            parts.push((at..range.end, None));
        }
        parts
    }

    /// Gives each part of a range the value that `change` makes of the one it has.
    pub fn change(&mut self, range: Range<u64>, change: impl Fn(Option<&V>) -> V) {
        self.cut(range.start);
        self.cut(range.end);
        let parts = self.parts(range);
        let parts: Vec<(Range<u64>, V)> =
            parts.into_iter().map(|(part, value)| (part, change(value))).collect();
        self.0.extend(parts.into_iter().map(|(part, value)| (part.start, (part.end, value))));
    }

    /// Lets a run begin at this number if the number is inside of a run.
    fn cut(&mut self, number: u64) {
        let Some((start, (end, value))) = self.0.range_mut(..number).next_back() else { return };
        if *start < number && number < *end {
            let behind = (*end, value.clone());
            *end = number;
            self.0.insert(number, behind);
        }
    }

    /// Returns the runs, in order, with their values.
    pub fn into_runs(self) -> impl Iterator<Item = (Range<u64>, V)> {
        self.0.into_iter().map(|(start, (end, value))| (start..end, value))
    }
}
