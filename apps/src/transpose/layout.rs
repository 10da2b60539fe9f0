//! Places of the tiles in the shared array.
//!
//! Each node has a block of rows of tiles. Its tiles lie column by column. The tiles that another
//! node needs from it are in adjacent columns, so they are one range, and one guard fetches all of
//! them.

use std::ops::Range;

use oikaze_apps::part;
use oikaze_kernels::transpose::{SIDE, VALUES};

/// Places of the tiles of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of tiles along one side of the matrix.
    tiles: usize,
    nodes: u32,
}

impl Layout {
    /// Makes the layout of a matrix of `size` × `size` values (a multiple of the tile's side).
    #[must_use]
    pub const fn new(size: usize, nodes: u32) -> Self {
        Self { tiles: size / SIDE, nodes }
    }

    /// Returns the rows of tiles of node `rank`.
    #[must_use]
    pub const fn rows(self, rank: u32) -> Range<usize> {
        part(self.tiles, rank, self.nodes)
    }

    /// Returns the range of all values of node `rank`.
    #[must_use]
    pub const fn values(self, rank: u32) -> Range<usize> {
        let rows = self.rows(rank);
        let row = self.tiles * VALUES;
        rows.start * row..rows.end * row
    }

    /// Returns the range of the values of node `rank` in these columns of tiles. The range holds
    /// the tiles of the first column, then those of the second one, and so on.
    #[must_use]
    pub const fn stripe(self, rank: u32, columns: &Range<usize>) -> Range<usize> {
        let (start, rows) = (self.values(rank).start, self.rows(rank));
        let column = (rows.end - rows.start) * VALUES;
        start + columns.start * column..start + columns.end * column
    }

    /// Returns the number of values in the array.
    #[must_use]
    pub const fn len(self) -> usize {
        self.tiles * self.tiles * VALUES
    }

    /// Returns all tiles of node `rank` in order: row and column of each.
    pub fn tiles(self, rank: u32) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.rows(rank);
        (0..self.tiles).flat_map(move |column| rows.clone().map(move |row| (row, column)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_has_one_place() {
        for nodes in [1, 2, 3, 5, 9] {
            let layout = Layout::new(7 * SIDE, nodes);
            let mut seen = std::collections::HashSet::new();
            let mut next = 0;
            for rank in 0..nodes {
                let values = layout.values(rank);
                assert_eq!(values.start, next);
                next = values.end;
                assert_eq!(layout.tiles(rank).count() * VALUES, values.len());
                for (n, (row, column)) in layout.tiles(rank).enumerate() {
                    assert!(seen.insert((row, column)));
                    let stripe = layout.stripe(rank, &(column..column + 1));
                    assert!(stripe.contains(&(values.start + n * VALUES)));
                }
            }
            assert_eq!((next, seen.len()), (layout.len(), 49));
        }
    }
}
