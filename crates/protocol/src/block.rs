//! Blocks: rows of equal length at equal distances, and planes of such rows. Strided operations
//! read or write them (MEM-10).
//!
//! A block is packed as the bytes of its rows one after the other, planes outermost. Only
//! [`Block::pieces`] translates between positions in the packed bytes and offsets in memory.

use crate::limits::{BODY_MAX, STRIDE_MAX};
use core::fmt;

/// Rows of a region, in one plane or several (MEM-10.1). All lengths and distances are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Offset of the first byte of the first row, from the region's (or the slice's) start.
    pub offset: u64,
    /// Length of a row; at least 1.
    pub row: u32,
    /// Number of rows in a plane, at least 1.
    pub rows: u32,
    /// Number of planes, at least 1.
    pub planes: u32,
    /// Distance from the beginning of a row to that of the next.
    pub row_stride: u64,
    /// Distance from the beginning of a plane to that of the next.
    pub plane_stride: u64,
}

/// Error of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// The block has no bytes.
    #[error("{0} has no bytes: rows, planes and the length of a row must be at least 1")]
    Empty(Block),
    /// The block has more bytes than one operation carries, or than can be counted.
    #[error("{0} has more than {BODY_MAX} bytes; cut it into several")]
    TooLong(Block),
    /// The block reaches outside of any memory.
    #[error("{0} reaches further than {STRIDE_MAX} bytes; mend its offset or its strides")]
    TooFar(Block),
    /// Rows overlap, so that chance decides which row's bytes remain.
    #[error(
        "rows of {0} overlap, so that what is written there would depend on chance; let no stride be shorter than what it steps over"
    )]
    Overlaps(Block),
    /// The two ends of the operation have different lengths.
    #[error("{there} has {} bytes there, and {here} are here; make both equal", .there.len().unwrap_or(0))]
    Lengths {
        /// Block at the peer.
        there: Block,
        /// Number of bytes here.
        here: u64,
    },
}

impl Block {
    /// Creates one row of `row` bytes at `offset`, the start of every block.
    #[must_use]
    pub const fn new(offset: u64, row: u32) -> Block {
        Block { offset, row, rows: 1, planes: 1, row_stride: 0, plane_stride: 0 }
    }

    /// Sets the number of rows, each beginning `stride` bytes after the one before.
    #[must_use]
    pub const fn rows(self, rows: u32, stride: u64) -> Block {
        Block { rows, row_stride: stride, ..self }
    }

    /// Sets the number of planes, each beginning `stride` bytes after the one before.
    #[must_use]
    pub const fn planes(self, planes: u32, stride: u64) -> Block {
        Block { planes, plane_stride: stride, ..self }
    }

    /// Returns the length of all rows in bytes, or `None` if it cannot be counted.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        u64::from(self.row).checked_mul(u64::from(self.rows))?.checked_mul(u64::from(self.planes))
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row == 0 || self.rows == 0 || self.planes == 0
    }

    /// Returns the length in bytes from the first byte to the last, gaps included. Returns `None`
    /// if it, or the end's offset, cannot be counted.
    #[must_use]
    #[doc(hidden)]
    pub fn hull(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        let rows = u64::from(self.rows - 1).checked_mul(self.row_stride)?;
        let planes = u64::from(self.planes - 1).checked_mul(self.plane_stride)?;
        let hull = rows.checked_add(planes)?.checked_add(u64::from(self.row))?;
        self.offset.checked_add(hull).map(|_| hull)
    }

    /// Returns `true` if its strides show that no two rows have a byte in common. Rows lie in
    /// planes, or planes between rows.
    #[must_use]
    #[doc(hidden)]
    pub fn is_disjoint(&self) -> bool {
        let row = u64::from(self.row);
        let (rows, planes) = ((self.rows, self.row_stride), (self.planes, self.plane_stride));
        let nested = |(inner, inner_stride): (u32, u64), (outer, outer_stride): (u32, u64)| {
            let inner_hull =
                u64::from(inner.max(1) - 1).saturating_mul(inner_stride).saturating_add(row);
            (inner <= 1 || inner_stride >= row) && (outer <= 1 || outer_stride >= inner_hull)
        };
        nested(rows, planes) || nested(planes, rows)
    }

    /// Returns the length in bytes of a block that an operation may read.
    ///
    /// # Errors
    /// The block is empty, too long, or reaches too far.
    #[doc(hidden)]
    pub fn check_source(&self) -> Result<u64, BadBlock> {
        if self.is_empty() {
            return Err(BadBlock::Empty(*self));
        }
        let len = self.len().filter(|len| *len <= BODY_MAX).ok_or(BadBlock::TooLong(*self))?;
        let near = |far: u64| far <= STRIDE_MAX;
        let inside = near(self.offset)
            && near(self.row_stride)
            && near(self.plane_stride)
            && self.hull().is_some_and(near);
        if inside { Ok(len) } else { Err(BadBlock::TooFar(*self)) }
    }

    /// Returns the length in bytes of a block that an operation may write (MEM-10.3).
    ///
    /// # Errors
    /// As [`Block::check_source`], or rows overlap.
    #[doc(hidden)]
    pub fn check_destination(&self) -> Result<u64, BadBlock> {
        let len = self.check_source()?;
        if self.is_disjoint() { Ok(len) } else { Err(BadBlock::Overlaps(*self)) }
    }

    /// Returns the block in its one form, in which unused strides are 0 (MEM-10.2).
    #[must_use]
    #[doc(hidden)]
    pub fn tidy(self) -> Block {
        let row_stride = if self.rows > 1 { self.row_stride } else { 0 };
        let plane_stride = if self.planes > 1 { self.plane_stride } else { 0 };
        Block { row_stride, plane_stride, ..self }
    }

    /// Returns the length in bytes if the rows follow each other without a gap. The block is then a
    /// plain range.
    #[must_use]
    #[doc(hidden)]
    pub fn as_range(&self) -> Option<u64> {
        let len = self.len()?;
        let plane = u64::from(self.row) * u64::from(self.rows);
        let rows_touch = self.rows <= 1 || self.row_stride == u64::from(self.row);
        (len == 0 || rows_touch && (self.planes <= 1 || self.plane_stride == plane)).then_some(len)
    }

    /// Returns where `len` packed bytes from `start` on lie, with one piece for each row that they
    /// touch. Bytes past the end lie nowhere.
    #[must_use]
    #[doc(hidden)]
    pub fn pieces(&self, start: u64, len: u64) -> Pieces {
        let all = self.len().unwrap_or(0);
        let left = len.min(all.saturating_sub(start));
        let (row, rows) = (u64::from(self.row.max(1)), u64::from(self.rows.max(1)));
        let line = start / row;
        Pieces {
            block: *self,
            plane: line / rows,
            line: line % rows,
            within: start % row,
            packed: 0,
            left,
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, row, rows, planes, row_stride, plane_stride } = self;
        write!(f, "the block of {rows} rows of {row} bytes every {row_stride} bytes")?;
        if *planes != 1 {
            write!(f, ", in {planes} planes every {plane_stride} bytes,")?;
        }
        write!(f, " at offset {offset}")
    }
}

/// A part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte in memory.
    pub offset: u64,
    /// Position of its first byte among the packed bytes that were asked for.
    pub packed: usize,
    /// Length in bytes.
    pub len: usize,
}

/// See [`Block::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    block: Block,
    plane: u64,
    line: u64,
    within: u64,
    packed: usize,
    left: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let Block { offset, row, rows, row_stride, plane_stride, .. } = self.block;
        // Nothing wraps in a checked block. An unchecked block leads to offsets that no region has.
        let plane = self.plane.wrapping_mul(plane_stride);
        let offset = offset
            .wrapping_add(plane)
            .wrapping_add(self.line.wrapping_mul(row_stride))
            .wrapping_add(self.within);
        let len = (u64::from(row) - self.within).min(self.left);
        let piece = Piece { offset, packed: self.packed, len: usize::try_from(len).ok()? };
        self.left -= len;
        self.packed += piece.len;
        self.within = 0;
        self.line += 1;
        if self.line == u64::from(rows) {
            (self.plane, self.line) = (self.plane + 1, 0);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Returns every byte of a small block in packed order, straight from the definition.
    fn offsets(block: &Block) -> Vec<u64> {
        let mut all = Vec::new();
        for plane in 0..u64::from(block.planes) {
            for row in 0..u64::from(block.rows) {
                let at = block.offset + plane * block.plane_stride + row * block.row_stride;
                all.extend(at..at + u64::from(block.row));
            }
        }
        all
    }

    fn block() -> impl Strategy<Value = Block> {
        let shape = (1..6u32, 1..5u32, 1..4u32);
        (0..20u64, shape, 0..20u64, 0..60u64).prop_map(
            |(offset, (row, rows, planes), row_stride, plane_stride)| {
                Block::new(offset, row).rows(rows, row_stride).planes(planes, plane_stride)
            },
        )
    }

    proptest! {
        /// MEM-10.1: any part of the packed bytes lies where the whole says.
        #[test]
        fn pieces_are_the_rows(block in block(), start in 0..200u64, len in 0..200u64) {
            let all = offsets(&block);
            prop_assert_eq!(block.len(), Some(all.len() as u64));
            let mut found = Vec::new();
            for piece in block.pieces(start, len) {
                prop_assert_eq!(piece.packed, found.len());
                found.extend(piece.offset..piece.offset + piece.len as u64);
            }
            let wanted: Vec<u64> = all.iter().copied().skip(start as usize).take(len as usize).collect();
            prop_assert_eq!(found, wanted);
            let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            prop_assert_eq!((block.offset, block.hull()), (*first, Some(last + 1 - first)));
            prop_assert_eq!(block.tidy().pieces(start, len).collect::<Vec<_>>(), block.pieces(start, len).collect::<Vec<_>>());
        }

        /// MEM-10.3: disjoint blocks have no common byte. Other blocks overlap, or have planes
        /// between rows in no order.
        #[test]
        fn disjoint_rows_share_no_byte(block in block()) {
            let all = offsets(&block);
            let distinct = all.iter().collect::<BTreeSet<_>>().len() == all.len();
            if block.is_disjoint() {
                prop_assert!(distinct);
            } else if block.planes == 1 || block.rows == 1 {
                prop_assert!(!distinct);
            }
            if let Some(len) = block.as_range() {
                prop_assert_eq!(all, (block.offset..block.offset + len).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn bad_blocks_are_told_apart() {
        let fine = Block::new(8, 100).rows(10, 128).planes(3, 2000);
        assert_eq!((fine.check_destination(), fine.hull()), (Ok(3000), Some(4000 + 9 * 128 + 100)));
        for empty in [Block::new(0, 0), fine.rows(0, 128), fine.planes(0, 2000)] {
            assert_eq!(empty.check_source(), Err(BadBlock::Empty(empty)));
        }
        let long = Block::new(0, u32::MAX).rows(u32::MAX, 0).planes(u32::MAX, 0);
        assert_eq!((long.len(), long.check_source()), (None, Err(BadBlock::TooLong(long))));
        for far in [
            Block::new(u64::MAX, 1),
            fine.rows(3, u64::MAX),
            fine.rows(2, STRIDE_MAX),
            fine.planes(9, u64::MAX / 2),
        ] {
            assert_eq!(far.check_source(), Err(BadBlock::TooFar(far)), "{far}");
        }
        let over = fine.rows(10, 99);
        assert_eq!(over.check_source(), Ok(3000));
        assert_eq!(over.check_destination(), Err(BadBlock::Overlaps(over)));
        let woven = Block::new(0, 10).rows(5, 100).planes(4, 10);
        assert_eq!(woven.check_destination(), Ok(200), "planes may lie between rows");
        assert_eq!(woven.pieces(190, 99).map(|piece| piece.offset).collect::<Vec<_>>(), [430]);
    }

    #[test]
    fn bytes_past_the_end_lie_nowhere() {
        let block = Block::new(0, 4).rows(3, 8);
        assert_eq!(block.pieces(12, 1).count(), 0);
        assert_eq!(block.pieces(u64::MAX, u64::MAX).count(), 0);
        assert_eq!(Block::new(0, 0).pieces(0, 5).count(), 0);
    }
}
