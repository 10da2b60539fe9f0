//! Owners of the blocks, and places of the blocks in the shared array.
//!
//! The layout is the "contiguous blocks" variant of SPLASH-2 (Woo et al., ISCA '95). Blocks are
//! dealt out two-dimensionally. The blocks of one owner lie beside each other, row by row, and each
//! row begins at a page. No page has two writers, and one range holds an owner's part of a row.

use std::ops::Range;

use oikaze_apps::PAGE;
use oikaze_kernels::lu::{SIDE, VALUES};

/// Blocks in one page, to a multiple of which an owner's part of a row is padded.
const BLOCKS_PER_PAGE: usize = PAGE / (VALUES * size_of::<f64>());

/// Places and owners of all blocks of one matrix.
pub struct Layout {
    /// Number of blocks along one side of the matrix.
    blocks: usize,
    grid_rows: usize,
    grid_columns: usize,
    /// First slot of each owner, and the end of the last owner's slots.
    starts: Vec<usize>,
    /// First slot of each owner in the array of copies, and the end of the last owner's. An owner
    /// has a page for its diagonal block, then its part of a row, and then its part of a column.
    copies: Vec<usize>,
}

impl Layout {
    /// Makes the layout of an `n` × `n` matrix (n a multiple of the block side) on `nodes` nodes.
    #[must_use]
    pub fn new(n: usize, nodes: u32) -> Self {
        let nodes = (nodes as usize).max(1);
        // The grid of this many nodes that is nearest to a square.
        let grid_columns = (1..=nodes)
            .take_while(|c| c * c <= nodes)
            .filter(|c| nodes.is_multiple_of(*c))
            .last()
            .unwrap_or(1);
        let blocks = n / SIDE;
        let mut layout = Self {
            blocks,
            grid_rows: nodes / grid_columns,
            grid_columns,
            starts: vec![0],
            copies: vec![0],
        };
        let (mut start, mut copies) = (0, 0);
        for owner in 0..nodes {
            let first = owner / grid_columns;
            let rows = (first..blocks).step_by(layout.grid_rows).len();
            start += rows * layout.row_slots(owner % grid_columns);
            layout.starts.push(start);
            let column_slots = rows.next_multiple_of(BLOCKS_PER_PAGE);
            copies += BLOCKS_PER_PAGE + layout.row_slots(owner % grid_columns) + column_slots;
            layout.copies.push(copies);
        }
        layout
    }

    /// Returns the other nodes that own blocks of the columns of `rank`. They read the rows of
    /// `rank`.
    #[must_use]
    pub fn readers_of_rows(&self, rank: usize) -> Vec<u32> {
        self.others(rank, |other| self.is_in_columns_of(other, rank))
    }

    /// Returns the other nodes that own blocks of the rows or of the columns of `rank`. They read
    /// its diagonal blocks.
    #[must_use]
    pub fn readers_of_diagonal(&self, rank: usize) -> Vec<u32> {
        self.others(rank, |other| {
            self.is_in_rows_of(other, rank) || self.is_in_columns_of(other, rank)
        })
    }

    /// Returns the other nodes that own blocks of the rows of `rank`. They read the columns of
    /// `rank`.
    #[must_use]
    pub fn readers_of_columns(&self, rank: usize) -> Vec<u32> {
        self.others(rank, |other| self.is_in_rows_of(other, rank))
    }

    /// Returns the ranks other than `rank` for which `keep` holds.
    fn others(&self, rank: usize, keep: impl Fn(usize) -> bool) -> Vec<u32> {
        let all = 0..self.grid_rows * self.grid_columns;
        let others = all.filter(|&other| other != rank && keep(other));
        others.map(|other| other as u32).collect()
    }

    /// Returns `true` if both ranks own blocks of the same rows.
    const fn is_in_rows_of(&self, one: usize, other: usize) -> bool {
        one / self.grid_columns == other / self.grid_columns
    }

    /// Returns `true` if both ranks own blocks of the same columns.
    const fn is_in_columns_of(&self, one: usize, other: usize) -> bool {
        one % self.grid_columns == other % self.grid_columns
    }

    /// Returns the range of the copy of diagonal block k, in the array of copies.
    #[must_use]
    pub fn diagonal_copy(&self, k: usize) -> Range<usize> {
        let first = self.copies[self.owner(k, k)];
        first * VALUES..(first + 1) * VALUES
    }

    /// Returns the range of the copies of those blocks of row `k` which lie in the columns of
    /// `rank` behind the diagonal.
    #[must_use]
    pub fn row_copy(&self, k: usize, rank: usize) -> Range<usize> {
        let first = self.copies[self.owner_of_row(k, rank)] + BLOCKS_PER_PAGE;
        let all = self.columns(rank, 0).len();
        let left = self.columns(rank, k + 1).len();
        (first + all - left) * VALUES..(first + all) * VALUES
    }

    /// Returns the range of the copies of those blocks of column `k` which lie in the rows of
    /// `rank` below the diagonal.
    #[must_use]
    pub fn column_copy(&self, k: usize, rank: usize) -> Range<usize> {
        let first = self.copies[self.owner_of_column(k, rank)] + BLOCKS_PER_PAGE;
        let first = first + self.row_slots(k % self.grid_columns);
        let all = self.rows(rank, 0).len();
        let left = self.rows(rank, k + 1).len();
        (first + all - left) * VALUES..(first + all) * VALUES
    }

    /// Returns the number of values in the array of copies.
    #[must_use]
    pub fn copies_len(&self) -> usize {
        self.copies.last().copied().unwrap_or(0) * VALUES
    }

    /// Returns the end of each rank's values in the array of copies.
    pub fn copies_ends(&self) -> impl Iterator<Item = usize> {
        self.copies.iter().skip(1).map(|end| end * VALUES)
    }

    /// Returns the number of blocks along one side.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the rank that owns block (i, j).
    #[must_use]
    pub const fn owner(&self, i: usize, j: usize) -> usize {
        i % self.grid_rows * self.grid_columns + j % self.grid_columns
    }

    /// Returns the rank that owns the blocks of row `i` in the columns of `rank`.
    #[must_use]
    pub const fn owner_of_row(&self, i: usize, rank: usize) -> usize {
        self.owner(i, rank % self.grid_columns)
    }

    /// Returns the rank that owns the blocks of column `j` in the rows of `rank`.
    #[must_use]
    pub const fn owner_of_column(&self, j: usize, rank: usize) -> usize {
        self.owner(rank / self.grid_columns, j)
    }

    /// Returns the columns from `from` on whose blocks `rank` owns, in those rows where it owns
    /// any.
    pub fn columns(
        &self,
        rank: usize,
        from: usize,
    ) -> impl ExactSizeIterator<Item = usize> + use<> {
        let column = rank % self.grid_columns;
        let skipped = (from + self.grid_columns - 1 - column) / self.grid_columns;
        (column + skipped * self.grid_columns..self.blocks).step_by(self.grid_columns)
    }

    /// Returns the rows from `from` on in which `rank` owns blocks.
    pub fn rows(&self, rank: usize, from: usize) -> impl ExactSizeIterator<Item = usize> + use<> {
        let row = rank / self.grid_columns;
        let skipped = (from + self.grid_rows - 1 - row) / self.grid_rows;
        (row + skipped * self.grid_rows..self.blocks).step_by(self.grid_rows)
    }

    /// Returns the range of block (i, j) in the array.
    #[must_use]
    pub fn values(&self, i: usize, j: usize) -> Range<usize> {
        let slot = self.slot(i, j);
        slot * VALUES..(slot + 1) * VALUES
    }

    /// Returns the range of those blocks of row `i` which lie in the columns of `rank` from column
    /// `from` on. All of them have one owner.
    #[must_use]
    pub fn row(&self, i: usize, rank: usize, from: usize) -> Range<usize> {
        let mut columns = self.columns(rank, from);
        let count = columns.len();
        let first = columns.next().map_or(0, |j| self.slot(i, j));
        first * VALUES..(first + count) * VALUES
    }

    /// Returns the number of values in the array, with the padding of each owner's rows to whole
    /// pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0) * VALUES
    }

    /// Returns the end of each rank's values.
    pub fn ends(&self) -> impl Iterator<Item = usize> {
        self.starts.iter().skip(1).map(|end| end * VALUES)
    }

    /// Returns the place of block (i, j), counted in blocks.
    fn slot(&self, i: usize, j: usize) -> usize {
        let start = self.starts[self.owner(i, j)];
        let row = i / self.grid_rows * self.row_slots(j % self.grid_columns);
        start + row + j / self.grid_columns
    }

    /// Returns the slots of one row of an owner in this column of the grid.
    fn row_slots(&self, column: usize) -> usize {
        (column..self.blocks).step_by(self.grid_columns).len().next_multiple_of(BLOCKS_PER_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze::shared::builder::Homes;
    use oikaze_apps::homes;

    #[test]
    fn blocks_lie_in_pages_of_their_owner_and_nowhere_twice() {
        for nodes in 1..=9 {
            for n in [16, 48, 256, 272] {
                let layout = Layout::new(n, nodes);
                let Homes::Explicit(homes) = homes::<f64>(layout.ends()) else { unreachable!() };
                assert_eq!(homes.len() * PAGE, layout.len() * 8, "{nodes} nodes, n = {n}");
                let mut seen = std::collections::HashSet::new();
                for i in 0..layout.blocks() {
                    for j in 0..layout.blocks() {
                        let values = layout.values(i, j);
                        assert!(values.end <= layout.len() && seen.insert(values.start));
                        assert_eq!(homes[values.start * 8 / PAGE] as usize, layout.owner(i, j));
                    }
                }
            }
        }
    }

    #[test]
    fn copies_lie_in_pages_of_their_owner_and_readers_find_them() {
        for nodes in 1..=9_usize {
            let layout = Layout::new(272, nodes as u32);
            let Homes::Explicit(homes) = homes::<f64>(layout.copies_ends()) else { unreachable!() };
            let home = |copy: &Range<usize>| homes[copy.start * 8 / PAGE] as usize;
            for (k, rank) in (0..17).flat_map(|k| (0..nodes).map(move |rank| (k, rank))) {
                let row_owner = layout.owner_of_row(k, rank);
                let column_owner = layout.owner_of_column(k, rank);
                let row = layout.row_copy(k, rank);
                let column = layout.column_copy(k, rank);
                let diagonal = layout.diagonal_copy(k);
                assert_eq!(row.len(), layout.row(k, rank, k + 1).len());
                assert_eq!(column.len(), layout.rows(rank, k + 1).len() * VALUES);
                assert_eq!(row, layout.row_copy(k, row_owner));
                assert_eq!(column, layout.column_copy(k, column_owner));
                let owner = layout.owner(k, k);
                for (copy, owner) in
                    [(&row, row_owner), (&column, column_owner), (&diagonal, owner)]
                {
                    assert!(copy.is_empty() || home(copy) == owner, "{copy:?} of {owner}");
                }
                let pages =
                    |copy: &Range<usize>| copy.start * 8 / PAGE..(copy.end * 8).div_ceil(PAGE);
                let (one, other) = (pages(&row), pages(&column));
                assert!(
                    row.is_empty()
                        || column.is_empty()
                        || one.end <= other.start
                        || other.end <= one.start
                );
            }
        }
    }

    #[test]
    fn range_of_a_row_holds_the_blocks_of_one_owner_in_order() {
        for nodes in 1..=9_usize {
            let layout = Layout::new(272, nodes as u32);
            for (i, rank, from) in (0..17).flat_map(|i| {
                (0..nodes).flat_map(move |rank| (0..18).map(move |from| (i, rank, from)))
            }) {
                let row = layout.row(i, rank, from);
                let expected: Vec<usize> = (from..layout.blocks())
                    .filter(|&j| (0..layout.blocks()).any(|i| layout.owner(i, j) == rank))
                    .collect();
                assert_eq!(row.len(), expected.len() * VALUES);
                for (n, &j) in expected.iter().enumerate() {
                    assert_eq!(layout.values(i, j).start, row.start + n * VALUES);
                }
                assert_eq!(layout.columns(rank, from).collect::<Vec<_>>(), expected);
                let rows = (from..layout.blocks())
                    .filter(|&i| (0..layout.blocks()).any(|j| layout.owner(i, j) == rank));
                assert_eq!(layout.rows(rank, from).collect::<Vec<_>>(), rows.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_grid_is_as_square_as_it_can_be() {
        for (nodes, rows, columns) in
            [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2), (6, 3, 2), (8, 4, 2), (9, 3, 3)]
        {
            let layout = Layout::new(64, nodes);
            assert_eq!((layout.grid_rows, layout.grid_columns), (rows, columns), "{nodes} nodes");
        }
    }
}
