//! Shape of an access to a range of memory: as a whole, in the rows of a block, or piece by piece
//! as in a list.

use crate::random::Random;
use oikaze_protocol::block::Block;
use std::ops::Range;

/// Maximum number of rows of a plane.
const ROWS: u64 = 8;
const PLANES: u64 = 3;
const PARTS: u64 = 6;

/// Way to reach parts of a range, or all of it.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// The whole range.
    Whole(Range<u64>),
    /// Rows with gaps between them.
    Rows(Block),
    /// Pieces in any order, with gaps between them.
    Pieces(Vec<Range<u64>>),
}

impl Shape {
    /// Draws any shape inside this range.
    pub fn any(random: &mut Random, range: &Range<u64>) -> Shape {
        match random.below(4) {
            0 => Shape::block(random, range).unwrap_or_else(|| Shape::Whole(range.clone())),
            1 => Shape::list(random, range),
            _ => Shape::Whole(range.clone()),
        }
    }

    /// Draws rows in planes. Returns `None` if they have no gaps, or there is no room.
    fn block(random: &mut Random, range: &Range<u64>) -> Option<Shape> {
        let (rows, planes) = (random.between(1, ROWS), random.between(1, PLANES));
        let a_plane = (range.end - range.start) / planes;
        let a_row = a_plane / rows;
        let row = random.spread(1, a_row.max(1)).min(a_row);
        if row == 0 {
            return None;
        }
        let stride = random.between(row, a_row);
        let inner = (rows - 1) * stride + row;
        let block = Block::new(range.start, row as u32).rows(rows as u32, stride);
        let block = block.planes(planes as u32, random.between(inner, a_plane)).tidy();
        block.as_range().is_none().then_some(Shape::Rows(block))
    }

    fn list(random: &mut Random, range: &Range<u64>) -> Shape {
        let len = range.end - range.start;
        let mut cuts: Vec<u64> = (0..2 * random.between(1, PARTS))
            .map(|_| range.start + random.below(len + 1))
            .collect();
        cuts.sort_unstable();
        let mut pieces: Vec<Range<u64>> =
            cuts.as_chunks::<2>().0.iter().map(|[from, to]| *from..*to).collect();
        random.shuffle(&mut pieces);
        Shape::Pieces(pieces)
    }

    /// Returns a block with the same rows in `room` bytes of this node's memory from `offset` on.
    /// The distance between its rows is random.
    pub fn rows_of(random: &mut Random, block: &Block, offset: u64, room: u64) -> Block {
        let (row, rows) = (u64::from(block.row), u64::from(block.rows) * u64::from(block.planes));
        let widest = (room - row) / (rows - 1).max(1);
        Block::new(offset, block.row).rows(rows as u32, random.between(row, widest.max(row))).tidy()
    }

    /// Returns the ranges that the shape reaches, in the order in which they are packed.
    pub fn pieces(&self) -> Vec<Range<u64>> {
        match self {
            Shape::Whole(range) => vec![range.clone()],
            Shape::Pieces(pieces) => pieces.clone(),
            Shape::Rows(block) => pieces_of(block),
        }
    }

    /// Returns the names of operations of this shape: to write, and to read.
    pub fn kinds(&self) -> (&'static str, &'static str) {
        match self {
            Shape::Whole(_) => ("put", "get"),
            Shape::Rows(_) => ("put of a block", "get of a block"),
            Shape::Pieces(_) => ("put of a list", "get of a list"),
        }
    }
}

/// Returns the rows of a block, planes outermost (MEM-10.1).
pub(super) fn pieces_of(block: &Block) -> Vec<Range<u64>> {
    let plane = |plane: u64| {
        (0..u64::from(block.rows)).map(move |row| {
            let start = block.offset + plane * block.plane_stride + row * block.row_stride;
            start..start + u64::from(block.row)
        })
    };
    (0..u64::from(block.planes)).flat_map(plane).collect()
}

/// Packs the bytes of these pieces. `bytes` begin at offset `start`.
pub(super) fn pack(bytes: &[u8], start: u64, pieces: &[Range<u64>]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|piece| {
            bytes[(piece.start - start) as usize..(piece.end - start) as usize].iter().copied()
        })
        .collect()
}

/// Unpacks `packed` to the pieces of `bytes`, which begin at offset `start`.
pub(super) fn unpack(packed: &[u8], bytes: &mut [u8], start: u64, pieces: &[Range<u64>]) {
    let mut rest = packed;
    for piece in pieces {
        let (part, after) = rest.split_at((piece.end - piece.start) as usize);
        bytes[(piece.start - start) as usize..(piece.end - start) as usize].copy_from_slice(part);
        rest = after;
    }
}
