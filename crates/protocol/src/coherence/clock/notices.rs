//! Write notices (COH-4): the pages that an interval has written, as runs of pages (COH-4.2).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::array::{ARRAY_PAGES_MAX, Array, PageId};
use crate::coherence::clock::vector::INTERVALS_MAX;
use crate::coherence::{ArrayId, CONTROL_MAX, array};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of intervals and runs in one message. Beyond it the intervals of one writer are
/// joined and gaps are closed. That invalidates too much, never too little (COH-4.5).
pub(crate) const TOLD_MAX: usize = 1 << 20;
// Length of the longest interval before its runs; a run has at most 15 bytes.
const _: () = assert!(TOLD_MAX as u64 * (5 + 10 + 10 + 1 + 5) < CONTROL_MAX);

/// Sorted, disjoint runs of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<(ArrayId, Range<u64>)>);

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

    /// Returns the union of `many`.
    pub fn union<'a>(many: impl IntoIterator<Item = &'a Runs>) -> Runs {
        let mut all: Vec<_> = many.into_iter().flat_map(|runs| runs.0.iter().cloned()).collect();
        all.sort_unstable_by_key(|(array, range)| (*array, range.start));
        let mut out: Vec<(ArrayId, Range<u64>)> = Vec::new();
        for (array, range) in all {
            match out.last_mut() {
                Some((a, last)) if *a == array && last.end >= range.start => {
                    last.end = last.end.max(range.end)
                }
                _ => out.push((array, range)),
            }
        }
        Runs(out)
    }

    /// Reduces the runs to at most `limit`, if the number of arrays permits it. It closes the
    /// smallest gaps between runs, so the result names pages that nobody wrote.
    pub fn at_most(mut self, limit: usize) -> Runs {
        let mut gap = 1;
        while self.0.len() > limit && gap < ARRAY_PAGES_MAX {
            self.0.dedup_by(|(array, range), (before, last)| {
                let is_near = before == array && range.start - last.end <= gap;
                if is_near {
                    last.end = range.end;
                }
                is_near
            });
            gap *= 2;
        }
        self
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        for (array, range) in &self.0 {
            out.put_leb128(u64::from(*array));
            out.put_leb128(range.start);
            out.put_leb128(range.end - range.start);
        }
    }

    /// Reads runs and checks that their pages exist and are in order.
    pub fn read(reader: &mut ByteReader<'_>, arrays: &[Array]) -> Result<Runs, Refusal> {
        let count = reader.count(3)?;
        let mut runs: Vec<(ArrayId, Range<u64>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, first, pages) = (reader.leb128_u32()?, reader.leb128()?, reader.leb128()?);
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

/// Pages that one node wrote between two of its releases. Several consecutive intervals may have
/// been joined into one (COH-4.1, COH-4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub writer: Rank,
    pub first: u64,
    pub last: u64,
    /// `true` if the interval was closed while its writer waited in a collective. The writer did
    /// not tell it there (COH-6.5).
    pub late: bool,
    pub runs: Runs,
}

impl Interval {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(u64::from(self.writer));
        out.put_leb128(self.first);
        out.put_leb128(self.last - self.first);
        out.put_u8(u8::from(self.late));
        self.runs.write(out);
    }

    pub fn read(
        reader: &mut ByteReader<'_>,
        nodes: u32,
        arrays: &[Array],
    ) -> Result<Interval, Refusal> {
        let (writer, first, more, late) =
            (reader.leb128_u32()?, reader.leb128()?, reader.leb128()?, reader.u8()?);
        let last = first.checked_add(more).ok_or(Refusal::Malformed)?;
        if writer >= nodes || first == 0 || late > 1 {
            return Err(Refusal::Malformed);
        }
        Ok(Interval { writer, first, last, late: late == 1, runs: Runs::read(reader, arrays)? })
    }

    /// Joins several intervals of one writer into one.
    pub fn join<'a>(
        writer: Rank,
        intervals: impl Iterator<Item = &'a Interval> + Clone,
    ) -> Interval {
        let first = intervals.clone().map(|interval| interval.first).min().unwrap_or(1);
        let last = intervals.clone().map(|interval| interval.last).max().unwrap_or(1);
        let late = intervals.clone().any(|interval| interval.late);
        Interval {
            writer,
            first,
            last,
            late,
            runs: Runs::union(intervals.map(|interval| &interval.runs)),
        }
    }

    /// Writes all intervals that go into one message, joined if there are too many.
    pub fn write_all<'a>(intervals: impl Iterator<Item = &'a Interval> + Clone, out: &mut Vec<u8>) {
        let (count, runs) = intervals
            .clone()
            .fold((0, 0), |(count, runs), interval| (count + 1, runs + interval.runs.0.len()));
        if count + runs <= TOLD_MAX {
            out.put_leb128(count as u64);
            return intervals.for_each(|interval| interval.write(out));
        }
        let mut of_writer: BTreeMap<Rank, Vec<&Interval>> = BTreeMap::new();
        intervals.for_each(|interval| of_writer.entry(interval.writer).or_default().push(interval));
        let share = TOLD_MAX / of_writer.len().max(1);
        out.put_leb128(of_writer.len() as u64);
        for (writer, intervals) in of_writer {
            let mut joined = Interval::join(writer, intervals.into_iter());
            joined.runs = joined.runs.at_most(share);
            joined.write(out);
        }
    }

    pub fn read_all(
        reader: &mut ByteReader<'_>,
        nodes: u32,
        arrays: &[Array],
    ) -> Result<Vec<Interval>, Refusal> {
        let count = reader.count(5)?;
        if count > (nodes as usize).saturating_mul(INTERVALS_MAX) {
            return Err(Refusal::NoRoom);
        }
        (0..count).map(|_| Interval::read(reader, nodes, arrays)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::{CONTROL_MAX, Declaration, Element, Homes};
    use alloc::string::String;
    use alloc::vec;

    const PAGES: u64 = 1 << 20;

    fn sparse(writer: Rank, number: u64) -> Interval {
        let runs = Runs::from_pages((0..PAGES / 2).map(|page| (0, page * 2)));
        Interval { writer, first: number, last: number, late: number == 7, runs }
    }

    /// COH-4.5: all known intervals fit into one message that its receiver accepts (COH-9.1), and
    /// no page is left out.
    #[test]
    fn what_is_too_much_is_told_joined() {
        let declaration = Declaration {
            name: String::from("p"),
            bytes: PAGES * crate::limits::PAGE as u64,
            element: Element { kind: 1, size: 1 },
            homes: Homes::Block,
        };
        let arrays = vec![Array::new(declaration, 0, 3)];
        let known: Vec<Interval> =
            (0..3).flat_map(|writer| (5..15).map(move |number| sparse(writer, number))).collect();
        let mut body = Vec::new();
        Interval::write_all(known.iter(), &mut body);
        assert!(body.len() as u64 <= CONTROL_MAX / 2, "{} bytes", body.len());
        let told = Interval::read_all(&mut ByteReader(&body), 3, &arrays).unwrap();
        assert_eq!(
            told.iter().map(|i| (i.writer, i.first, i.last, i.late)).collect::<Vec<_>>(),
            [0, 1, 2].map(|w| (w, 5, 14, true))
        );
        for interval in told {
            assert_eq!(Runs::union([&interval.runs, &known[0].runs]), interval.runs);
        }
        let mut body = Vec::new();
        Interval::write_all(known.iter().take(1), &mut body);
        assert_eq!(
            Interval::read_all(&mut ByteReader(&body), 3, &arrays).unwrap(),
            known[..1],
            "what is not too much, as it is"
        );
    }

    #[test]
    fn the_smallest_gaps_are_closed_first() {
        let runs = || {
            Runs::from_pages(
                [0, 2, 10, 30, 31, 200].map(|page| (0, page)).into_iter().chain([(1, 4)]),
            )
        };
        let at_most = |limit| runs().at_most(limit).0;
        assert_eq!(at_most(6), runs().0);
        assert_eq!(at_most(5), [(0, 0..3), (0, 10..11), (0, 30..32), (0, 200..201), (1, 4..5)]);
        assert_eq!(at_most(3), [(0, 0..32), (0, 200..201), (1, 4..5)]);
        assert_eq!(at_most(1), [(0, 0..201), (1, 4..5)], "never from one array to another");
    }
}
