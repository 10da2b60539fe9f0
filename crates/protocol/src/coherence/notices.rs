//! Write notices (COH-4): which pages an interval has written, as runs of pages (COH-4.2).

use super::array::{Array, PageId};
use super::codec::{Reader, Writer};
use super::knowledge::INTERVALS_MAX;
use super::{ArrayId, array};
use crate::Rank;
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Sorted, disjoint runs of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<(ArrayId, Range<u64>)>);

impl Runs {
    pub fn from_pages(sorted: impl IntoIterator<Item = PageId>) -> Runs {
        Runs(array::ranges(sorted))
    }

    pub fn iter(&self) -> impl Iterator<Item = &(ArrayId, Range<u64>)> {
        self.0.iter()
    }

    pub fn pages(&self) -> u64 {
        self.0.iter().map(|(_, range)| range.end - range.start).sum()
    }

    /// The union of many.
    pub fn union<'a>(many: impl IntoIterator<Item = &'a Runs>) -> Runs {
        let mut all: Vec<_> = many.into_iter().flat_map(|runs| runs.0.iter().cloned()).collect();
        all.sort_unstable_by_key(|(array, range)| (*array, range.start));
        let mut out: Vec<(ArrayId, Range<u64>)> = Vec::new();
        for (array, range) in all {
            match out.last_mut() {
                Some((a, last)) if *a == array && last.end >= range.start => last.end = last.end.max(range.end),
                _ => out.push((array, range)),
            }
        }
        Runs(out)
    }

    pub fn write(&self, out: &mut Writer) {
        out.number(self.0.len() as u64);
        for (array, range) in &self.0 {
            out.number(u64::from(*array));
            out.number(range.start);
            out.number(range.end - range.start);
        }
    }

    /// Runs of pages that exist, in their order.
    pub fn read(reader: &mut Reader<'_>, arrays: &[Array]) -> Result<Runs, Refusal> {
        let count = reader.count(3)?;
        let mut runs: Vec<(ArrayId, Range<u64>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, first, pages) = (reader.number_u32()?, reader.number()?, reader.number()?);
            let array = arrays.get(id as usize).ok_or(Refusal::UnknownObject)?;
            if !array.contains(first, pages) {
                return Err(Refusal::OutOfBounds);
            }
            if runs.last().is_some_and(|(last, range)| (id, first) < (*last, range.end)) {
                return Err(Refusal::Malformed);
            }
            runs.push((id, first..first + pages));
        }
        Ok(Runs(runs))
    }
}

/// What one node wrote between two of its releases; several in a row may have been joined into one (COH-4.1, COH-4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub writer: Rank,
    pub first: u64,
    pub last: u64,
    /// Made while its writer waited in a collective, so not part of what the writer told there (COH-6.5).
    pub late: bool,
    pub runs: Runs,
}

impl Interval {
    pub fn write(&self, out: &mut Writer) {
        out.number(u64::from(self.writer));
        out.number(self.first);
        out.number(self.last - self.first);
        out.byte(u8::from(self.late));
        self.runs.write(out);
    }

    pub fn read(reader: &mut Reader<'_>, nodes: u32, arrays: &[Array]) -> Result<Interval, Refusal> {
        let (writer, first, more, late) = (reader.number_u32()?, reader.number()?, reader.number()?, reader.byte()?);
        let last = first.checked_add(more).ok_or(Refusal::Malformed)?;
        if writer >= nodes || first == 0 || late > 1 {
            return Err(Refusal::Malformed);
        }
        Ok(Interval { writer, first, last, late: late == 1, runs: Runs::read(reader, arrays)? })
    }

    pub fn write_all<'a>(intervals: impl Iterator<Item = &'a Interval> + Clone, out: &mut Writer) {
        out.number(intervals.clone().count() as u64);
        intervals.for_each(|interval| interval.write(out));
    }

    pub fn read_all(reader: &mut Reader<'_>, nodes: u32, arrays: &[Array]) -> Result<Vec<Interval>, Refusal> {
        let count = reader.count(5)?;
        if count > (nodes as usize).saturating_mul(INTERVALS_MAX) {
            return Err(Refusal::NoRoom);
        }
        (0..count).map(|_| Interval::read(reader, nodes, arrays)).collect()
    }
}
