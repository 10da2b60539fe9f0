//! Lists of pages with new homes, and which of them nothing contradicts (COH-11.2, COH-11.4).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::ranges;
use crate::coherence::pages::run_map::RunMap;
use crate::coherence::pages::table::Arrays;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of runs of pages in one message. Nodes ask for the others again.
pub(crate) const MOVES_MAX: usize = 1 << 16;

/// Maximum number of them for one new home. Those of a pair are never more than [`MOVES_MAX`], so
/// that both nodes compute the same moves.
pub(crate) const MOVES_TO_ONE_MAX: usize = 1024;
const _: () = assert!(2 * MOVES_TO_ONE_MAX <= MOVES_MAX);

/// Pages for a new home.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Move {
    pub array: ArrayId,
    pub pages: Range<u64>,
    pub home: Rank,
}

/// Runs of pages with a new home each. In a message they are in order of arrays, homes and pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Moves(Vec<Move>);

impl Moves {
    /// Adds moves of these pages of an array, which are in order.
    pub fn add(&mut self, array: ArrayId, pages: impl IntoIterator<Item = u64>, home: Rank) {
        let runs = ranges(pages.into_iter().map(|page| (array, page)));
        self.0.extend(runs.into_iter().map(|(array, pages)| Move { array, pages, home }));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Move> {
        self.0.iter()
    }

    pub fn merge(&mut self, other: Moves) {
        self.0.extend(other.0);
        self.0.truncate(MOVES_MAX);
    }

    pub fn sort(&mut self) {
        self.0.sort_unstable_by_key(|one| (one.array, one.home, one.pages.start));
    }

    /// Leaves out all moves but the first `most` ones.
    pub fn truncate(&mut self, most: usize) {
        self.0.truncate(most);
    }

    /// Writes the moves at the end of a message, where none take no bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.put_leb128(self.0.len() as u64);
        for Move { array, pages, home } in &self.0 {
            out.put_leb128(u64::from(*home)).put_leb128(u64::from(*array));
            out.put_leb128(pages.start).put_leb128(pages.end - pages.start);
        }
    }

    /// Reads moves to nodes of a subtree, and checks that their pages exist. Leaves out those of
    /// freed arrays.
    pub fn read(
        reader: &mut ByteReader<'_>,
        homes: &Range<Rank>,
        arrays: &Arrays,
    ) -> Result<Moves, Refusal> {
        if reader.0.is_empty() {
            return Ok(Moves::default());
        }
        let count = reader.count(4)?;
        if count == 0 {
            return Err(Refusal::Malformed);
        }
        if count > MOVES_MAX {
            return Err(Refusal::NoRoom);
        }
        let mut moves = Vec::with_capacity(count);
        let mut runs: BTreeMap<Rank, usize> = BTreeMap::new();
        let mut last = (0, 0, 0);
        for _ in 0..count {
            let (home, array) = (reader.leb128_u32()?, reader.leb128_u32()?);
            let (first, pages) = (reader.leb128()?, reader.leb128()?);
            arrays.check(array, first, pages)?;
            let end = first.checked_add(pages).ok_or(Refusal::OutOfBounds)?;
            let runs = runs.entry(home).or_default();
            *runs += 1;
            let is_behind = last <= (array, home, first);
            last = (array, home, end);
            if !homes.contains(&home) || pages == 0 || !is_behind || *runs > MOVES_TO_ONE_MAX {
                return Err(Refusal::Malformed);
            }
            if arrays.get(array).is_some() {
                moves.push(Move { array, pages: first..end, home });
            }
        }
        Ok(Moves(moves))
    }

    /// Returns the pages of these moves for which a node is to be the home.
    pub fn to(&self, home: Rank) -> impl Iterator<Item = &Move> {
        self.iter().filter(move |one| one.home == home)
    }

    /// Returns the moves all of whose pages are in `others`, with the same home.
    pub fn among(mut self, others: &Moves) -> Moves {
        let mut known: BTreeMap<ArrayId, RunMap<Rank>> = BTreeMap::new();
        for Move { array, pages, home } in others.iter() {
            known.entry(*array).or_default().change(pages.clone(), |_| *home);
        }
        self.0.retain(|one| {
            let parts = known.get(&one.array).map(|known| known.parts(one.pages.clone()));
            parts.is_some_and(|parts| parts.iter().all(|(_, home)| *home == Some(&one.home)))
        });
        self
    }

    /// Returns the moves that no interval told at the collective contradicts: in the first round
    /// those of other nodes than the new home, in the second round any (COH-11.2, COH-11.4). Of two
    /// nodes that ask for one page, the lower rank gets it.
    pub fn uncontradicted(mut self, intervals: &[Interval], is_second: bool) -> Moves {
        if self.is_empty() {
            return self;
        }
        // Sole writer of pages; `None` if there are several.
        let mut writers: BTreeMap<ArrayId, RunMap<Option<Rank>>> =
            self.iter().map(|one| (one.array, RunMap::default())).collect();
        for interval in intervals {
            for (array, pages) in interval.runs.iter() {
                let Some(writers) = writers.get_mut(array) else { continue };
                writers.change(pages.clone(), |writer| match writer {
                    None => Some(interval.writer),
                    Some(known) => known.filter(|writer| *writer == interval.writer),
                });
            }
        }
        self.sort();
        let mut taken: BTreeMap<ArrayId, NumberSet> = BTreeMap::new();
        let mut free = Vec::new();
        for Move { array, pages, home } in self.0 {
            let (Some(writers), taken) = (writers.get(&array), taken.entry(array).or_default())
            else {
                continue;
            };
            let mut asked = NumberSet::default();
            asked.insert(pages.clone());
            taken.overlaps(pages.clone()).for_each(|part| asked.remove(part));
            taken.insert(pages);
            let is_free = |writer: Option<&Option<Rank>>| match writer {
                None => true,
                Some(_) if is_second => planted(Bug::ConfirmWrittenPages),
                Some(writer) => *writer == Some(home) || planted(Bug::MoveInvalidPages),
            };
            let parts = asked.iter().flat_map(|pages| writers.parts(pages));
            let parts = parts.filter(|(_, writer)| is_free(*writer));
            free.extend(parts.map(|(pages, _)| Move { array, pages, home }));
        }
        let mut runs: BTreeMap<Rank, usize> = BTreeMap::new();
        free.retain(|one| {
            let runs = runs.entry(one.home).or_default();
            *runs += 1;
            *runs <= MOVES_TO_ONE_MAX
        });
        free.truncate(MOVES_MAX);
        Moves(free)
    }

    /// Returns the pages of moves to this node, as runs.
    pub fn runs_to(&self, home: Rank) -> Runs {
        let runs = self.to(home).map(|one| (one.array, one.pages.clone()));
        Runs::union([&Runs::of_ranges(runs.collect())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::pages::array::Array;
    use crate::coherence::types::Declaration;
    use crate::limits::PAGE;
    use alloc::vec;

    fn one(array: ArrayId, pages: Range<u64>, home: Rank) -> Move {
        Move { array, pages, home }
    }

    /// Reads moves to nodes 0 to 3 as if a peer had told them. Array 0 has 4096 pages, and array 1
    /// is freed.
    fn read(moves: &[Move]) -> Result<Moves, Refusal> {
        let bytes = 4096 * PAGE as u64;
        let declaration = Declaration { name: "a".into(), bytes, ..Declaration::default() };
        let mut arrays = Arrays::default();
        arrays.add(Some(Array::new(declaration, 0, 4)));
        arrays.add(None);
        let mut body = Vec::new();
        Moves(moves.to_vec()).write(&mut body);
        Moves::read(&mut ByteReader(&body), &(0..4), &arrays)
    }

    /// COH-9.1, COH-11.2: the runs of one home are disjoint and at most 1024, and no run is longer
    /// than its array. So a peer cannot make others compute for long.
    #[test]
    fn runs_out_of_order_or_too_many_are_refused() {
        let moves = [one(0, 0..2, 1), one(0, 2..4, 1), one(0, 0..1, 2)];
        assert_eq!(read(&moves), Ok(Moves(moves.to_vec())));
        for moves in [
            [one(0, 0..3, 1), one(0, 2..4, 1)],
            [one(0, 2..4, 1), one(0, 0..2, 1)],
            [one(0, 0..2, 2), one(0, 2..4, 1)],
            [one(1, 0..2, 1), one(0, 2..4, 1)],
        ] {
            assert_eq!(read(&moves), Err(Refusal::Malformed), "{moves:?}");
        }
        let many =
            |count: u64| (0..count).map(|page| one(0, page..page + 1, 3)).collect::<Vec<_>>();
        assert!(read(&many(1024)).is_ok());
        assert_eq!(read(&many(1025)), Err(Refusal::Malformed));
        assert_eq!(read(&[one(1, 0..u64::MAX, 1)]), Ok(Moves::default()));
    }

    /// COH-11.4: a node serves as the home of no page that was not proposed to it.
    #[test]
    fn offers_that_were_not_proposed_are_left_out() {
        let proposed = Moves(vec![one(0, 0..2, 1), one(0, 2..6, 1), one(0, 6..8, 2)]);
        let offers =
            Moves(vec![one(0, 1..4, 1), one(0, 5..7, 1), one(0, 6..8, 1), one(1, 0..1, 2)]);
        assert_eq!(offers.among(&proposed), Moves(vec![one(0, 1..4, 1)]));
    }

    /// COH-11.2: of two nodes that ask for one page, the lower rank gets it, in whatever order they
    /// ask.
    #[test]
    fn lower_rank_gets_a_page_for_which_two_ask() {
        let mut asks = vec![one(0, 0..9, 2), one(0, 4..6, 1), one(0, 5..12, 3)];
        let free = vec![one(0, 4..6, 1), one(0, 0..4, 2), one(0, 6..9, 2), one(0, 9..12, 3)];
        for _ in 0..3 {
            asks.rotate_left(1);
            assert_eq!(Moves(asks.clone()).uncontradicted(&[], false), Moves(free.clone()));
        }
    }
}
