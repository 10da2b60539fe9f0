//! Buffers of an arena: the pieces of long values that each member gives to collectives of data
//! (COLL-7.6). No system calls.
//!
//! A member has a few buffers, which its pieces take in turn. Only the member writes them. Its word
//! of progress says which pieces of all members it has read. Every word is read once and checked.

use super::points::pass_point;
use crate::shm::memory::{Memory, Ordering, Part};
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::collective::PIECES_MAX;

/// Buffers of a member. Few in models, so that they are used again.
const BUFFERS: u64 = if cfg!(all(test, loom)) { 2 } else { 4 };
/// Maximum number of bytes of a piece.
pub const PIECE_BYTES: usize = if cfg!(all(test, loom)) { 8 } else { 64 << 10 };
/// Bits of a piece's number in its [`PieceNumber`].
const PIECE_BITS: u32 = PIECES_MAX.ilog2();
/// Bytes of a word that one member writes: two cache lines, because processors fetch lines in
/// pairs.
const LINE: usize = 128;
/// Bytes from one buffer to the next. The number of its piece is in front of the bytes.
const STRIDE: usize = LINE + PIECE_BYTES.next_multiple_of(LINE);

/// Returns the bytes of the buffers of this many members, behind a word of progress for each.
pub(super) const fn len_of(members: usize) -> usize {
    members * (LINE + BUFFERS as usize * STRIDE)
}

/// Number of a piece among all pieces of all collectives, which are numbered from 1. The pieces of
/// a collective are numbered from 0. 0 is before all pieces. There is room for 2⁴⁸ collectives,
/// which is more than a year of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PieceNumber(u64);

impl PieceNumber {
    /// Returns the number of a piece, which is below [`PIECES_MAX`], of a collective.
    #[inline]
    #[must_use]
    pub const fn of(collective: u64, piece: u64) -> PieceNumber {
        PieceNumber(collective << PIECE_BITS | piece)
    }

    /// Returns the number behind all pieces of a collective.
    #[inline]
    #[must_use]
    pub const fn after(collective: u64) -> PieceNumber {
        PieceNumber::of(collective + 1, 0)
    }

    /// Returns the buffer that the piece takes.
    #[inline]
    const fn buffer(self) -> u64 {
        ((self.0 >> PIECE_BITS) + self.0) % BUFFERS
    }

    #[inline]
    pub(super) const fn to_word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) const fn of_word(word: u64) -> PieceNumber {
        PieceNumber(word)
    }
}

/// The buffers of an arena, as one member sees them.
#[derive(Clone, Debug)]
pub(super) struct PieceBuffers {
    memory: Memory,
    me: usize,
    members: usize,
}

impl PieceBuffers {
    /// Takes zeroed buffers of `members` members.
    pub fn new(memory: Memory, me: usize, members: usize) -> PieceBuffers {
        PieceBuffers { memory, me, members }
    }

    #[inline]
    fn buffer(&self, member: usize, number: PieceNumber) -> usize {
        let buffer = member * BUFFERS as usize + number.buffer() as usize;
        self.members * LINE + buffer * STRIDE
    }

    /// Returns the first member that may still read what is in the buffer that this member's piece
    /// takes, and the piece that is there. It may be this member, which reads its own pieces, too.
    #[inline]
    pub fn first_reader(&self, number: PieceNumber) -> Option<(usize, PieceNumber)> {
        let earlier =
            PieceNumber(self.memory.load(self.buffer(self.me, number), Ordering::Relaxed));
        let skips = |member: usize| match member == self.me {
            true => planted(Bug::ForgetOwnReads),
            false => planted(Bug::UseBufferEarly),
        };
        let reads = |member: &usize| !self.has_read(*member, earlier) && !skips(*member);
        let reader = (0..self.members).find(|member| earlier.0 != 0 && reads(member));
        reader.map(|member| (member, earlier))
    }

    /// Returns `true` if a member reads this piece no more, nor any before.
    #[inline]
    pub fn has_read(&self, member: usize, number: PieceNumber) -> bool {
        self.memory.load(member * LINE, Ordering::Acquire) > number.0
    }

    /// Notes that this member reads no piece before this one any more.
    #[inline]
    pub fn note_read(&self, before: PieceNumber) {
        pass_point();
        self.memory.store(self.me * LINE, before.0, Ordering::Release);
    }

    /// Writes a part of a piece into its buffer, which no member reads any more
    /// ([`PieceBuffers::first_reader`]), from byte `at` on. Bytes beyond the room are left out.
    #[inline]
    pub fn write(&self, number: PieceNumber, at: usize, bytes: &[u8]) {
        if at.checked_add(bytes.len()).is_some_and(|end| end <= PIECE_BYTES) {
            let buffer = self.buffer(self.me, number);
            if planted(Bug::NumberPieceFirst) {
                self.give(number);
            }
            pass_point();
            self.memory.write(buffer + LINE + at, &Part::Bytes(bytes));
        }
    }

    /// Gives a piece whose bytes are written.
    #[inline]
    pub fn give(&self, number: PieceNumber) {
        pass_point();
        self.memory.store(self.buffer(self.me, number), number.0, Ordering::Release);
    }

    /// Returns `true` if a member has given this piece.
    #[inline]
    pub fn has_given(&self, member: usize, number: PieceNumber) -> bool {
        let unordered = planted(Bug::ReadPieceUnordered);
        let order = if unordered { Ordering::Relaxed } else { Ordering::Acquire };
        self.memory.load(self.buffer(member, number), order) == number.0
    }

    /// Copies a part of a piece that a member has given, from byte `at` on.
    #[inline]
    pub fn read(&self, member: usize, number: PieceNumber, at: usize, into: &mut [u8]) {
        if at.checked_add(into.len()).is_some_and(|end| end <= PIECE_BYTES) {
            self.memory.read(self.buffer(member, number) + LINE + at, into);
        }
    }
}
