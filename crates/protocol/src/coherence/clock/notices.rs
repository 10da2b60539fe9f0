//! Write notices (COH-4): the pages that an interval has written, as runs of pages (COH-4.2).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::vector::Vector;
use crate::coherence::mailbox::CONTROL_MAX;
use crate::coherence::pages::array::ARRAY_PAGES_MAX;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::{PageId, pages_of, ranges};
use crate::coherence::pages::table::Arrays;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of intervals and runs in one message. Beyond it the intervals of one writer are
/// joined and gaps are closed. That invalidates too much, never too little (COH-4.5).
pub(crate) const NOTICES_MAX: usize = 1 << 20;
// Length of the longest interval before its runs; a run has at most 15 bytes.
const _: () = assert!(NOTICES_MAX as u64 * (5 + 10 + 10 + 1 + 5) < CONTROL_MAX);

/// Maximum number of intervals of one writer that are kept apart. Beyond it the older half is
/// joined (COH-4.5).
pub(crate) const INTERVALS_APART_MAX: usize = 1024;

/// Number of inserted intervals between two checks of [`INTERVALS_APART_MAX`].
pub(crate) const JOIN_EVERY: u64 = 256;

/// Number of inserted intervals between two searches for intervals that all nodes know (COH-4.6).
pub(crate) const FORGET_EVERY: u64 = 64;

/// Maximum number of intervals of one writer at any time, which follows from the two constants
/// above.
pub(crate) const INTERVALS_MAX: usize = INTERVALS_APART_MAX + JOIN_EVERY as usize;

/// Sorted, disjoint runs of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Runs(Vec<(ArrayId, Range<u64>)>);

impl Runs {
    /// Returns these runs, which are in order and apart.
    pub fn of_ranges(ranges: Vec<(ArrayId, Range<u64>)>) -> Runs {
        Runs(ranges)
    }

    pub fn from_pages(sorted: impl IntoIterator<Item = PageId>) -> Runs {
        Runs(ranges(sorted))
    }

    pub fn iter(&self) -> impl Iterator<Item = &(ArrayId, Range<u64>)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves out all runs but the first ones.
    pub fn truncate(&mut self, runs: usize) {
        self.0.truncate(runs);
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

    /// Returns the pages of these runs that are not in `other`.
    pub fn without(&self, other: &Runs) -> Runs {
        if other.0.is_empty() {
            return self.clone();
        }
        let mut sets = self.sets();
        for (array, range) in &other.0 {
            if let Some(set) = sets.get_mut(array) {
                set.remove(range.clone());
            }
        }
        Runs::of_sets(&sets)
    }

    /// Returns the pages that are in both.
    pub fn common(&self, other: &Runs) -> Runs {
        let sets = self.sets();
        let parts =
            other.0.iter().filter_map(|(array, range)| Some((*array, sets.get(array)?, range)));
        let parts = parts.flat_map(|(array, set, range)| {
            set.overlaps(range.clone()).map(move |part| (array, part))
        });
        Runs(parts.collect())
    }

    pub fn sets(&self) -> BTreeMap<ArrayId, NumberSet> {
        let mut sets: BTreeMap<ArrayId, NumberSet> = BTreeMap::new();
        for (array, range) in &self.0 {
            sets.entry(*array).or_default().insert(range.clone());
        }
        sets
    }

    pub fn of_sets(sets: &BTreeMap<ArrayId, NumberSet>) -> Runs {
        let runs = sets.iter().flat_map(|(array, set)| set.iter().map(|range| (*array, range)));
        Runs(runs.collect())
    }

    /// Returns the pages that a node must invalidate at a barrier, of the intervals `news` that it
    /// learns there (COH-10.9). Updates have brought the others.
    pub fn named<'a>(news: impl Iterator<Item = &'a Interval> + Clone, me: Rank) -> Runs {
        let lacking = |interval: &Interval| match planted(Bug::OmitUnshared) {
            true => interval.runs.without(&Runs::union(interval.shared.0.iter().map(|(_, r)| r))),
            false => interval.runs.without(&interval.shared.with(me)),
        };
        let named: Vec<Runs> = news.clone().map(lacking).collect();
        Runs::union(named.iter().chain([&Runs::crossed(news)]))
    }

    /// Returns the pages that intervals of two writers name, if an unlock closed one of these
    /// intervals. Updates of several writers to one page may arrive in another order than that of a
    /// lock (COH-10.9). There may be many thousands of intervals, so no two are compared.
    pub fn crossed<'a>(news: impl Iterator<Item = &'a Interval> + Clone) -> Runs {
        let unlocked = news.clone().filter(|interval| interval.unlocked);
        let unlocked = Runs::union(unlocked.map(|interval| &interval.runs));
        if unlocked.is_empty() {
            return unlocked;
        }
        let mut of_writer: BTreeMap<Rank, Vec<&Runs>> = BTreeMap::new();
        news.for_each(|one| of_writer.entry(one.writer).or_default().push(&one.runs));
        let unions = of_writer.into_values().map(Runs::union);
        let mut all: Vec<(ArrayId, Range<u64>)> = unions.flat_map(|union| union.0).collect();
        all.sort_unstable_by_key(|(array, range)| (*array, range.start));
        let mut several = BTreeMap::<ArrayId, NumberSet>::new();
        // The runs of one writer are apart, so a run overlaps earlier ones of other writers alone.
        let mut reached = (0, 0);
        for (array, range) in all {
            if reached.0 != array {
                reached = (array, 0);
            }
            let part = range.start..range.end.min(reached.1);
            several.entry(array).or_default().insert(part);
            reached.1 = reached.1.max(range.end);
        }
        unlocked.common(&Runs::of_sets(&several))
    }

    /// Returns the pages of the intervals `news` that updates of the notifier have not brought
    /// (COH-15.8).
    pub fn named_beside_updates<'a>(
        news: impl Iterator<Item = &'a Interval>,
        me: Rank,
        notifier: Rank,
    ) -> Runs {
        let lacking = |interval: &Interval| {
            let is_own = interval.writer == notifier || planted(Bug::TrustOtherWriters);
            let brought = interval.shared.with(me);
            if is_own { interval.runs.without(&brought) } else { interval.runs.clone() }
        };
        Runs::union(&news.map(lacking).collect::<Vec<Runs>>())
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
    pub fn read(reader: &mut ByteReader<'_>, arrays: &Arrays) -> Result<Runs, Refusal> {
        let count = reader.count(3)?;
        let mut runs: Vec<(ArrayId, Range<u64>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, first, pages) = (reader.leb128_u32()?, reader.leb128()?, reader.leb128()?);
            arrays.check(id, first, pages)?;
            let end = first.checked_add(pages).ok_or(Refusal::OutOfBounds)?;
            if runs.last().is_some_and(|(last, range)| (id, first) < (*last, range.end)) {
                return Err(Refusal::Malformed);
            }
            runs.push((id, first..end));
        }
        Ok(Runs(runs))
    }
}

/// Pages of an interval of which nodes got everything that the interval wrote, by updates
/// (COH-10.9). Each entry has the ranks of the nodes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Shared(Vec<(Vec<Rank>, Runs)>);

impl Shared {
    /// Makes groups of those pages that were written and that the same nodes got.
    pub fn of_written(
        shares: impl Iterator<Item = (ArrayId, Range<u64>, Vec<Rank>)>,
        written: &Runs,
    ) -> Shared {
        let sets = written.sets();
        let mut groups: BTreeMap<Vec<Rank>, Vec<(ArrayId, Range<u64>)>> = BTreeMap::new();
        for (array, range, ranks) in shares.filter(|(_, _, ranks)| !ranks.is_empty()) {
            let parts = sets.get(&array).into_iter().flat_map(|set| set.overlaps(range.clone()));
            groups.entry(ranks).or_default().extend(parts.map(|part| (array, part)));
        }
        let groups = groups.into_iter().filter(|(_, runs)| !runs.is_empty());
        Shared(groups.map(|(ranks, runs)| (ranks, Runs::union([&Runs(runs)]))).collect())
    }

    /// Returns the groups of nodes that got the same pages.
    pub fn groups(&self) -> &[(Vec<Rank>, Runs)] {
        &self.0
    }

    /// Returns what these nodes got, as far as it is `among` the pages that count.
    pub fn cut(&self, nodes: &Range<Rank>, among: impl Fn(&Runs) -> Runs) -> Shared {
        let groups = self.0.iter().filter_map(|(ranks, runs)| {
            let ranks = ranks.iter().copied().filter(|rank| nodes.contains(rank));
            let ranks = Some(ranks.collect::<Vec<Rank>>()).filter(|ranks| !ranks.is_empty())?;
            Some((ranks, among(runs))).filter(|(_, runs)| !runs.is_empty())
        });
        Shared(groups.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the node got everything that was written to the page.
    pub fn lists(&self, (array, page): PageId, rank: Rank) -> bool {
        let has = |runs: &Runs| {
            let at = runs.0.partition_point(|(of, range)| (*of, range.end) <= (array, page));
            runs.0.get(at).is_some_and(|(of, range)| *of == array && range.contains(&page))
        };
        self.0.iter().any(|(ranks, runs)| ranks.binary_search(&rank).is_ok() && has(runs))
    }

    /// Returns the pages that this node got.
    pub fn with(&self, rank: Rank) -> Runs {
        let groups = self.0.iter().filter(|(ranks, _)| ranks.contains(&rank));
        Runs::union(groups.map(|(_, runs)| runs))
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(ranks, runs)| 1 + ranks.len() + runs.0.len()).sum()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        for (ranks, runs) in &self.0 {
            out.put_leb128(ranks.len() as u64);
            for rank in ranks {
                out.put_leb128(u64::from(*rank));
            }
            runs.write(out);
        }
    }

    fn read(reader: &mut ByteReader<'_>, nodes: u32, arrays: &Arrays) -> Result<Shared, Refusal> {
        let group = |reader: &mut ByteReader<'_>| {
            let count = reader.count(1)?;
            let ranks = (0..count).map(|_| reader.leb128_u32()).collect::<Result<Vec<_>, _>>()?;
            if ranks.is_empty() || ranks.iter().any(|rank| *rank >= nodes) || !ranks.is_sorted() {
                return Err(Refusal::Malformed);
            }
            Ok((ranks, Runs::read(reader, arrays)?))
        };
        (0..reader.count(2)?).map(|_| group(reader)).collect::<Result<_, _>>().map(Shared)
    }
}

/// Maximum number of ranges of bytes that an interval tells (COH-10.14).
const OWNED_MAX: usize = 1 << 10;

/// Bytes that guards own in an interval that a barrier closes, as sorted, disjoint ranges. Empty if
/// there are too many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct OwnedBytes(Vec<(ArrayId, Range<u64>)>);

impl OwnedBytes {
    /// Returns the bytes that a barrier compares, if a barrier closes the interval.
    pub fn of_barrier(is_barrier: bool, owned: BTreeMap<ArrayId, NumberSet>) -> OwnedBytes {
        let ranges: usize = owned.values().map(NumberSet::ranges).sum();
        if !is_barrier || ranges > OWNED_MAX {
            return OwnedBytes::default();
        }
        let ranges = owned.iter().flat_map(|(array, set)| set.iter().map(|range| (*array, range)));
        OwnedBytes(ranges.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first bytes that guards of two writers own in intervals that one barrier closes,
    /// and the two writers.
    pub fn conflict<'a>(
        intervals: impl Iterator<Item = &'a Interval>,
    ) -> Option<(ArrayId, Range<u64>, Rank, Rank)> {
        let owned = intervals.flat_map(|interval| {
            interval.owned.0.iter().map(|(array, range)| (*array, range.clone(), interval.writer))
        });
        let mut all: Vec<_> = owned.collect();
        all.sort_unstable_by_key(|(array, range, writer)| (*array, range.start, *writer));
        let mut last: Option<(ArrayId, Range<u64>, Rank)> = None;
        for (array, range, writer) in all {
            match &last {
                Some((a, before, other))
                    if *a == array && *other != writer && range.start < before.end =>
                {
                    let end = range.end.min(before.end);
                    let pair = (writer.min(*other), writer.max(*other));
                    return Some((array, range.start..end, pair.0, pair.1));
                }
                Some((a, before, _)) if *a == array && range.end <= before.end => {}
                _ => last = Some((array, range, writer)),
            }
        }
        None
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        for (array, range) in &self.0 {
            out.put_leb128(u64::from(*array)).put_leb128(range.start);
            out.put_leb128(range.end - range.start);
        }
    }

    fn read(reader: &mut ByteReader<'_>, arrays: &Arrays) -> Result<OwnedBytes, Refusal> {
        let range = |reader: &mut ByteReader<'_>| {
            let (array, start, len) = (reader.leb128_u32()?, reader.leb128()?, reader.leb128()?);
            let end = start.checked_add(len).ok_or(Refusal::Malformed)?;
            let pages = pages_of(&(start..end));
            arrays.check(array, pages.start, pages.end.saturating_sub(pages.start))?;
            Ok((array, start..end))
        };
        let count = reader.count(3)?;
        if count > OWNED_MAX {
            return Err(Refusal::NoRoom);
        }
        (0..count).map(|_| range(reader)).collect::<Result<_, _>>().map(OwnedBytes)
    }
}

/// Pages that one node wrote between two of its releases. Several consecutive intervals may have
/// been joined into one (COH-4.1, COH-4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Interval {
    pub writer: Rank,
    pub first: u64,
    pub last: u64,
    /// `true` if the interval was closed while its writer waited in a collective. The writer did
    /// not tell it there (COH-6.5).
    pub late: bool,
    /// `true` if an unlock closed the interval, or closed one of those that were joined.
    pub unlocked: bool,
    pub runs: Runs,
    pub shared: Shared,
    pub owned: OwnedBytes,
}

impl Interval {
    /// Returns `true` if another node than `me` wrote the interval, and this vector clock lacks it.
    pub fn is_news(&self, me: Rank, known: &Vector) -> bool {
        self.writer != me && self.last > known.get(self.writer)
    }

    /// Returns about how many entries the interval has in a message.
    pub fn size(&self) -> usize {
        self.runs.0.len() + self.shared.len() + self.owned.0.len()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(u64::from(self.writer));
        out.put_leb128(self.first);
        out.put_leb128(self.last - self.first);
        let owns = !self.owned.is_empty();
        out.put_u8(u8::from(self.late) | u8::from(self.unlocked) << 1 | u8::from(owns) << 2);
        self.runs.write(out);
        self.shared.write(out);
        if owns {
            self.owned.write(out);
        }
    }

    pub fn read(
        reader: &mut ByteReader<'_>,
        nodes: u32,
        arrays: &Arrays,
    ) -> Result<Interval, Refusal> {
        let (writer, first, more, flags) =
            (reader.leb128_u32()?, reader.leb128()?, reader.leb128()?, reader.u8()?);
        let last = first.checked_add(more).ok_or(Refusal::Malformed)?;
        if writer >= nodes || first == 0 || flags > 7 {
            return Err(Refusal::Malformed);
        }
        Ok(Interval {
            writer,
            first,
            last,
            late: flags & 1 != 0,
            unlocked: flags & 2 != 0,
            runs: Runs::read(reader, arrays)?,
            shared: Shared::read(reader, nodes, arrays)?,
            owned: match flags & 4 {
                0 => OwnedBytes::default(),
                _ => OwnedBytes::read(reader, arrays)?,
            },
        })
    }

    /// Joins several intervals of one writer into one.
    pub fn join<'a>(
        writer: Rank,
        intervals: impl Iterator<Item = &'a Interval> + Clone,
    ) -> Interval {
        let first = intervals.clone().map(|interval| interval.first).min().unwrap_or(1);
        let last = intervals.clone().map(|interval| interval.last).max().unwrap_or(1);
        let late = intervals.clone().any(|interval| interval.late);
        let unlocked = intervals.clone().any(|interval| interval.unlocked);
        Interval {
            writer,
            first,
            last,
            late,
            unlocked,
            runs: Runs::union(intervals.map(|interval| &interval.runs)),
            shared: Shared::default(),
            owned: OwnedBytes::default(),
        }
    }

    /// Sorts intervals by writer. A late interval that several nodes told stays once.
    pub fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
        intervals.sort_by_key(|interval| (interval.writer, interval.last));
        let mut out: Vec<Interval> = Vec::with_capacity(intervals.len());
        // Nodes may have joined different intervals into one (COH-4.5).
        let mut differing: Vec<Interval> = Vec::new();
        let join = |last: Option<&mut Interval>, differing: &mut Vec<Interval>| {
            if let Some(last) = last.filter(|_| !differing.is_empty()) {
                *last = Interval::join(last.writer, differing.iter().chain([&*last]));
                differing.clear();
            }
        };
        for interval in intervals {
            match out.last() {
                Some(last) if (last.writer, last.last) == (interval.writer, interval.last) => {
                    if *last != interval {
                        differing.push(interval);
                    }
                }
                _ => {
                    join(out.last_mut(), &mut differing);
                    out.push(interval);
                }
            }
        }
        join(out.last_mut(), &mut differing);
        out
    }

    /// Returns what a message tells of these intervals: all, or joined ones if there are too many.
    pub fn bounded(intervals: Vec<Interval>) -> Vec<Interval> {
        let entries: usize = intervals.iter().map(|interval| 1 + interval.size()).sum();
        if entries <= NOTICES_MAX { intervals } else { Interval::joined(intervals.iter()) }
    }

    /// Joins the intervals of each writer, and closes gaps between runs where this is not enough.
    fn joined<'a>(intervals: impl Iterator<Item = &'a Interval>) -> Vec<Interval> {
        let mut of_writer: BTreeMap<Rank, Vec<&Interval>> = BTreeMap::new();
        intervals.for_each(|interval| of_writer.entry(interval.writer).or_default().push(interval));
        let share = NOTICES_MAX / of_writer.len().max(1);
        let joined = of_writer.into_iter().map(|(writer, intervals)| {
            let mut joined = Interval::join(writer, intervals.into_iter());
            joined.runs = joined.runs.at_most(share);
            joined
        });
        joined.collect()
    }

    /// Writes all intervals that go into one message, joined if there are too many.
    pub fn write_all<'a>(intervals: impl Iterator<Item = &'a Interval> + Clone, out: &mut Vec<u8>) {
        let (count, runs) = intervals
            .clone()
            .fold((0, 0), |(count, runs), interval| (count + 1, runs + interval.size()));
        if count + runs <= NOTICES_MAX {
            out.put_leb128(count as u64);
            return intervals.for_each(|interval| interval.write(out));
        }
        let joined = Interval::joined(intervals);
        out.put_leb128(joined.len() as u64);
        joined.iter().for_each(|interval| interval.write(out));
    }

    pub fn read_all(
        reader: &mut ByteReader<'_>,
        nodes: u32,
        arrays: &Arrays,
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
    use crate::coherence::pages::array::Array;
    use crate::coherence::{CONTROL_MAX, Declaration, Element, Homes};
    use alloc::string::String;
    use proptest::prelude::*;

    const PAGES: u64 = 1 << 20;

    fn interval(writer: Rank, number: u64, unlocked: bool, pages: &[PageId]) -> Interval {
        let runs = Runs::from_pages(pages.iter().copied());
        Interval { unlocked, late: false, ..of_runs(writer, number, runs) }
    }

    /// COH-4.5: joining them one after the other takes minutes.
    #[test]
    fn many_intervals_of_one_number_that_differ_are_joined_at_once() {
        let pages = 0..200_000u64;
        let told = pages.clone().map(|page| interval(1, 5, false, &[(0, 2 * page)]));
        let expected = Runs::from_pages(pages.map(|page| (0, 2 * page)));
        let merged = Interval::merged(told.chain([interval(1, 6, false, &[(0, 1)])]).collect());
        assert_eq!(merged.iter().map(|one| one.last).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(merged[0].runs, expected);
    }

    proptest! {
        /// COH-10.9: a crossed page is one that an interval which an unlock closed and an interval
        /// of another writer name.
        #[test]
        fn crossed_pages_are_those_of_two_writers(
            drawn in prop::collection::vec(
                (0..4u32, any::<bool>(), prop::collection::btree_set((0..2u32, 0..12u64), 0..8)),
                0..10,
            ),
        ) {
            let intervals: Vec<Interval> = drawn
                .iter()
                .map(|(writer, unlocked, pages)| {
                    let pages: Vec<PageId> = pages.iter().copied().collect();
                    interval(*writer, 1, *unlocked, &pages)
                })
                .collect();
            let mut crossed: Vec<Runs> = Vec::new();
            for one in intervals.iter().filter(|one| one.unlocked) {
                let others = intervals.iter().filter(|other| other.writer != one.writer);
                crossed.extend(others.map(|other| one.runs.common(&other.runs)));
            }
            prop_assert_eq!(Runs::crossed(intervals.iter()), Runs::union(&crossed));
        }
    }

    /// Comparing each two of these intervals takes minutes.
    #[test]
    fn many_unlocks_of_one_page_are_not_compared_with_each_other() {
        let unlocks = (0..40_000).map(|at| interval(at as Rank % 8, at / 8 + 1, true, &[(0, 3)]));
        let unlocks: Vec<Interval> = unlocks.collect();
        assert_eq!(Runs::named(unlocks.iter(), 9), Runs::from_pages([(0, 3)]));
    }

    fn sparse(writer: Rank, number: u64) -> Interval {
        let runs = Runs::from_pages((0..PAGES / 2).map(|page| (0, page * 2)));
        of_runs(writer, number, runs)
    }

    fn of_runs(writer: Rank, number: u64, runs: Runs) -> Interval {
        Interval {
            writer,
            first: number,
            last: number,
            late: number == 7,
            unlocked: false,
            runs,
            shared: Shared::default(),
            owned: OwnedBytes::default(),
        }
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
            ..Declaration::default()
        };
        let mut arrays = Arrays::default();
        arrays.add(Some(Array::new(declaration, 0, 3)));
        let known: Vec<Interval> =
            (0..3).flat_map(|writer| (5..15).map(move |number| sparse(writer, number))).collect();
        let mut body = Vec::new();
        Interval::write_all(known.iter(), &mut body);
        assert!(body.len() as u64 <= CONTROL_MAX / 2, "{} bytes", body.len());
        let reported = Interval::read_all(&mut ByteReader(&body), 3, &arrays).unwrap();
        assert_eq!(
            reported.iter().map(|i| (i.writer, i.first, i.last, i.late)).collect::<Vec<_>>(),
            [0, 1, 2].map(|w| (w, 5, 14, true))
        );
        for interval in reported {
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
