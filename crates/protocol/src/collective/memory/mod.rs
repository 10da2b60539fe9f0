//! Collectives through memory that all ranks map (COLL-7): how the values of a rank are cut into
//! pieces, and which ranks read and combine what.
//!
//! A rank *gives* its pieces one after the other. All ranks that read them follow, each at its own
//! pace. Short values are one piece.

mod combine;

pub use combine::{CombineSteps, ReadOperand};

use super::call::CollectiveKind;
use crate::Rank;
use core::ops::Range;

/// Pieces into which long values are cut, if they are not cut by the limits below.
const PIECES: usize = 4;
/// Minimum length of a piece of long values, in bytes.
const PIECE_MIN: usize = 8 << 10;

/// Maximum number of ranks whose long values each rank combines by itself. More ranks share the
/// work by parcels.
const COMBINED_RANKS_MAX: usize = 8;

/// Maximum number of pieces of a collective.
pub const PIECES_MAX: u64 = 1 << 16;

/// Bytes that the memory has for pieces.
#[derive(Clone, Copy, Debug)]
pub struct PieceRoom {
    /// Maximum length of the only piece of short values.
    pub short: usize,
    /// Maximum length of a piece of long values.
    pub long: usize,
}

/// Facts of a collective, which all its ranks know, and this rank's place in it.
#[derive(Clone, Copy, Debug)]
pub struct MemoryFacts {
    /// Kind of the collective.
    pub kind: CollectiveKind,
    /// Rank whose plan it is.
    pub me: Rank,
    /// Root, if the kind has one.
    pub root: Rank,
    /// Number of ranks.
    pub ranks: usize,
    /// Bytes of an element.
    pub size: usize,
}

impl MemoryFacts {
    /// Returns the ranks that give values.
    #[must_use]
    pub fn givers(&self) -> Range<Rank> {
        match self.kind {
            CollectiveKind::Broadcast | CollectiveKind::Scatter => {
                self.root..self.root.saturating_add(1)
            }
            _ => 0..Rank::try_from(self.ranks).unwrap_or(Rank::MAX),
        }
    }

    /// Returns the ranks whose calls this rank compares before it reads anything. In a scan that is
    /// all of them, so that each rank finds a call that differs.
    #[must_use]
    pub fn compared(&self) -> Range<Rank> {
        if self.reads() { self.givers() } else { 0..0 }
    }

    /// Returns `true` if this rank reads values.
    #[must_use]
    pub fn reads(&self) -> bool {
        match self.kind {
            CollectiveKind::Gather | CollectiveKind::Reduce => self.me == self.root,
            CollectiveKind::Shrink => false,
            _ => true,
        }
    }

    /// Returns the number of ranks, from rank 0 on, whose values this rank combines.
    fn combined(&self) -> usize {
        match self.kind {
            CollectiveKind::Scan => self.me as usize + 1,
            CollectiveKind::ExclusiveScan => self.me as usize,
            _ => self.ranks,
        }
    }

    fn blocks(&self) -> usize {
        if self.kind.has_blocks() { self.ranks } else { 1 }
    }
}

/// Plan of one rank for a collective through memory (COLL-7.6).
///
/// ```
/// use oikaze_protocol::collective::{CollectiveKind, MemoryFacts, MemoryPlan, PieceRoom};
/// let facts =
///     MemoryFacts { kind: CollectiveKind::AllGather, me: 1, root: 0, ranks: 2, size: 8 };
/// let room = PieceRoom { short: 4096, long: 65536 };
/// let plan = MemoryPlan::new(facts, 3, room).unwrap();
/// assert!(plan.is_short());
/// assert_eq!(plan.result_len(), 48);
/// assert_eq!(plan.reads_at(0, 1), Some((0..24, 24)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan {
    facts: MemoryFacts,
    /// Number of elements of a block.
    block: usize,
    /// Number of elements of each block in a piece.
    per_piece: usize,
    pieces: u64,
    is_short: bool,
}

impl MemoryPlan {
    /// Makes the plan for blocks of this many elements. A vector is one block. Returns `None` if
    /// the values do not go through memory (COLL-7.9). All ranks that know the length get the same
    /// answer.
    #[must_use]
    pub fn new(facts: MemoryFacts, block: usize, room: PieceRoom) -> Option<MemoryPlan> {
        if facts.size == 0 || facts.kind == CollectiveKind::Shrink {
            return None;
        }
        // Bytes of one element of each block.
        let row = facts.blocks().checked_mul(facts.size)?;
        let all = row.checked_mul(block)?;
        facts.ranks.checked_mul(all)?;
        if all <= room.short {
            return Some(MemoryPlan { facts, block, per_piece: block, pieces: 1, is_short: true });
        }
        if facts.kind.combines() && facts.ranks > COMBINED_RANKS_MAX {
            return None;
        }
        let piece = all.div_ceil(PIECES).max(PIECE_MIN).min(room.long);
        let per_piece = piece.checked_div(row).filter(|per_piece| *per_piece > 0)?;
        let pieces = block.div_ceil(per_piece) as u64;
        let plan = MemoryPlan { facts, block, per_piece, pieces, is_short: false };
        (pieces <= PIECES_MAX).then_some(plan)
    }

    /// Makes the plan as [`MemoryPlan::new`] does, from the number of elements in a call, which
    /// another rank may have said. Returns `None` also for a number that is none.
    #[must_use]
    pub fn of_count(facts: MemoryFacts, count: u64, room: PieceRoom) -> Option<MemoryPlan> {
        let count = usize::try_from(count).ok()?;
        let blocks = if facts.kind == CollectiveKind::Scatter { facts.ranks } else { 1 };
        MemoryPlan::new(facts, count.checked_div(blocks)?, room)
    }

    /// Returns the facts from which the plan was made.
    #[must_use]
    pub const fn facts(&self) -> &MemoryFacts {
        &self.facts
    }

    /// Returns the plan of another rank.
    #[must_use]
    pub const fn of_rank(mut self, me: Rank) -> MemoryPlan {
        self.facts.me = me;
        self
    }

    /// Returns `true` if the values are one short piece.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns the number of pieces.
    #[must_use]
    pub const fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Returns `true` if this rank gives values.
    #[must_use]
    pub fn gives(&self) -> bool {
        self.facts.givers().contains(&self.facts.me)
    }

    /// Returns the elements of each block in a piece.
    fn elements(&self, piece: u64) -> Range<usize> {
        let start = usize::try_from(piece).unwrap_or(usize::MAX).saturating_mul(self.per_piece);
        start.min(self.block)..start.saturating_add(self.per_piece).min(self.block)
    }

    /// Returns the ranges of bytes of this rank's values that follow one another in a piece.
    pub fn given(&self, piece: u64) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (elements, block, size) = (self.elements(piece), self.block, self.facts.size);
        let blocks = if self.gives() { self.facts.blocks() } else { 0 };
        (0..blocks).map(move |number| {
            (number * block + elements.start) * size..(number * block + elements.end) * size
        })
    }

    /// Returns the range of this rank's values that it reads in a piece itself, if it reads any.
    #[must_use]
    pub fn own(&self, piece: u64) -> Option<Range<usize>> {
        let MemoryFacts { kind, me, size, .. } = self.facts;
        self.reads_at(piece, me)?;
        let elements = self.elements(piece);
        let first = if kind.has_blocks() { me as usize * self.block } else { 0 };
        Some((first + elements.start) * size..(first + elements.end) * size)
    }

    /// Returns `true` if this rank alone reads what it gives.
    #[must_use]
    pub fn is_own_reader(&self) -> bool {
        let MemoryFacts { kind, me, root, ranks, .. } = self.facts;
        let of_root = matches!(kind, CollectiveKind::Gather | CollectiveKind::Reduce);
        ranks == 1 || of_root && me == root
    }

    /// Returns the bytes of this rank's values that it gives.
    #[must_use]
    pub fn given_len(&self) -> usize {
        self.given(0).count() * self.block * self.facts.size
    }

    /// Returns the bytes of this rank's result.
    #[must_use]
    pub fn result_len(&self) -> usize {
        let MemoryFacts { kind, size, ranks, .. } = self.facts;
        let block = self.block * size;
        match kind {
            _ if !self.facts.reads() => 0,
            CollectiveKind::Gather | CollectiveKind::AllGather | CollectiveKind::AllToAll => {
                ranks * block
            }
            kind if kind.combines() && self.facts.combined() == 0 => 0,
            _ => block,
        }
    }

    /// Returns the range of a rank's piece that this rank reads, and where it goes in the result.
    /// Values that are combined all go to one place. Returns `None` if this rank does not read it.
    #[must_use]
    pub fn reads_at(&self, piece: u64, from: Rank) -> Option<(Range<usize>, usize)> {
        let MemoryFacts { kind, me, size, .. } = self.facts;
        let place = from as usize;
        let counts = if kind.combines() {
            place < self.facts.combined()
        } else {
            self.facts.givers().contains(&from)
        };
        if !counts || !self.facts.reads() {
            return None;
        }
        let elements = self.elements(piece);
        let len = elements.len() * size;
        let start = if kind.has_blocks() { me as usize * len } else { 0 };
        let first = match kind {
            CollectiveKind::Gather | CollectiveKind::AllGather | CollectiveKind::AllToAll => {
                place * self.block
            }
            _ => 0,
        };
        Some((start..start + len, (first + elements.start) * size))
    }

    /// Combines values of this rank's operands in the tree of recursive doubling (COLL-7.3).
    /// `range` is that of the operands in the piece of each rank, and `into` the place of the
    /// result. `scratch` has [`MemoryPlan::scratch_len`] bytes.
    pub fn combine(
        &self,
        range: Range<usize>,
        into: &mut [u8],
        scratch: &mut [u8],
        steps: &CombineSteps<'_>,
    ) {
        combine::combine((self.facts.combined(), self.facts.size), range, into, scratch, steps);
    }

    /// Returns the bytes of memory that [`MemoryPlan::combine`] needs beyond the result.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        let MemoryFacts { kind, size, .. } = self.facts;
        let len = combine::scratch_len(self.facts.combined(), size, self.block * size);
        if kind.combines() { len } else { 0 }
    }
}
