//! Lists of pages with new homes, and which of them nothing contradicts (COH-11.2, COH-11.4).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::pages::machine::ArrayId;
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

/// Pages for a new home.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Move {
    pub array: ArrayId,
    pub pages: Range<u64>,
    pub home: Rank,
}

/// Runs of pages with a new home each. Those of an arrival are in any order.
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

    /// Reads moves to nodes of a subtree, and checks that their pages exist.
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
        for _ in 0..count {
            let (home, array) = (reader.leb128_u32()?, reader.leb128_u32()?);
            let (first, pages) = (reader.leb128()?, reader.leb128()?);
            arrays.check(array, first, pages)?;
            let end = first.checked_add(pages).ok_or(Refusal::OutOfBounds)?;
            if !homes.contains(&home) || pages == 0 {
                return Err(Refusal::Malformed);
            }
            moves.push(Move { array, pages: first..end, home });
        }
        Ok(Moves(moves))
    }

    /// Returns the pages of these moves for which a node is to be the home.
    pub fn to(&self, home: Rank) -> impl Iterator<Item = &Move> {
        self.iter().filter(move |one| one.home == home)
    }

    /// Returns `true` if each page of these moves is one of `others`, with the same home.
    pub fn are_among(&self, others: &Moves) -> bool {
        let mut known: BTreeMap<ArrayId, RunMap<Rank>> = BTreeMap::new();
        for Move { array, pages, home } in others.iter() {
            known.entry(*array).or_default().change(pages.clone(), |_| *home);
        }
        self.iter().all(|one| {
            let parts = known.get(&one.array).map(|known| known.parts(one.pages.clone()));
            parts.is_some_and(|parts| parts.iter().all(|(_, home)| *home == Some(&one.home)))
        })
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
        self.0.sort_unstable_by_key(|one| (one.array, one.home, one.pages.start));
        let mut free = Vec::new();
        for Move { array, pages, home } in self.0 {
            let Some(writers) = writers.get_mut(&array) else { continue };
            let is_free = |writer: Option<&Option<Rank>>| match writer {
                None => true,
                Some(_) if is_second => planted(Bug::ConfirmWrittenPages),
                Some(writer) => *writer == Some(home) || planted(Bug::MovePagesOfOthers),
            };
            let parts = writers.parts(pages.clone());
            let parts = parts.into_iter().filter(|(_, writer)| is_free(*writer));
            free.extend(parts.map(|(pages, _)| Move { array, pages, home }));
            // Nobody else gets them.
            writers.change(pages, |_| None);
        }
        free.truncate(MOVES_MAX);
        Moves(free)
    }

    /// Returns the pages of moves to this node, as runs.
    pub fn runs_to(&self, home: Rank) -> Runs {
        let mut pages: Vec<_> =
            self.to(home).flat_map(|m| m.pages.clone().map(|page| (m.array, page))).collect();
        pages.sort_unstable();
        Runs::from_pages(pages)
    }
}
