//! Destination of an operation's bytes in this node's memory: a range, or rows.

use crate::rma::memory::Memory;
use crate::wind::{Rows, Segment};
use alloc::sync::Arc;

/// The destination of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One contiguous range.
    Range(Segment),
    /// Rows, in the order in which they are packed.
    Rows(Arc<Rows>),
}

impl Destination {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Destination::Range(segment) => segment.len,
            Destination::Rows(rows) => rows.len(),
        }
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the region, and the first byte and the length of the range that the destination
    /// spans there (`None` if it reaches further than any memory).
    #[must_use]
    pub fn place(&self) -> (u32, Option<(u64, u64)>) {
        match self {
            Destination::Range(segment) => (segment.region, Some((segment.offset, segment.len))),
            Destination::Rows(rows) => {
                (rows.region, rows.block.hull().map(|hull| (rows.block.offset, hull)))
            }
        }
    }

    /// Returns `true` if all of it is inside a live region.
    pub(super) fn is_there(&self, memory: &impl Memory) -> bool {
        match self {
            Destination::Range(segment) => {
                memory.covers(segment.region, segment.offset, segment.len)
            }
            Destination::Rows(rows) => rows
                .block
                .hull()
                .is_some_and(|hull| memory.covers(rows.region, rows.block.offset, hull)),
        }
    }

    /// Writes `bytes`, which begin at `start` of the destination. Bytes beyond its end are ignored.
    pub(super) fn write(&self, start: u64, bytes: &[u8], memory: &mut impl Memory) {
        match self {
            Destination::Range(segment) => {
                let inside =
                    start.checked_add(bytes.len() as u64).is_some_and(|end| end <= segment.len);
                if let Some(at) = segment.offset.checked_add(start).filter(|_| inside) {
                    memory.write(segment.region, at, bytes);
                }
            }
            Destination::Rows(rows) => write_rows(rows, start, bytes, memory),
        }
    }
}

impl From<Segment> for Destination {
    fn from(segment: Segment) -> Self {
        Destination::Range(segment)
    }
}

/// Writes packed bytes, which begin at `start`, to their rows.
pub(super) fn write_rows(rows: &Rows, start: u64, bytes: &[u8], memory: &mut impl Memory) {
    for piece in rows.block.pieces(start, bytes.len() as u64) {
        if let Some(bytes) = bytes.get(piece.packed..piece.packed + piece.len) {
            memory.write(rows.region, piece.offset, bytes);
        }
    }
}

/// Packs the bytes from `start` on. Returns `false` if some of them do not lie inside a live
/// region.
pub fn read_rows(rows: &Rows, start: u64, into: &mut [u8], memory: &impl Memory) -> bool {
    let len = into.len() as u64;
    let inside = start.checked_add(len).is_some_and(|end| end <= rows.len());
    inside
        && rows.block.pieces(start, len).all(|piece| {
            let into = into.get_mut(piece.packed..piece.packed + piece.len);
            into.is_some_and(|into| memory.read(rows.region, piece.offset, into))
        })
}
