//! Owners of the blocks, and places of the blocks in the shared array.
//!
//! The layout is the "contiguous blocks" variant of SPLASH-2 (Woo et al., ISCA '95). Blocks are
//! dealt out two-dimensionally. The blocks of one owner lie beside each other and begin at a page,
//! so that no page has two writers.

use crate::block::{SIDE, VALUES};

/// Blocks in one page of 4 KiB. An owner's part of the array is a multiple of this.
const BLOCKS_PER_PAGE: usize = 4096 / (VALUES * size_of::<f64>());

/// Places and owners of all blocks of one matrix.
pub struct Layout {
    /// Number of blocks along one side of the matrix.
    blocks: usize,
    grid_rows: usize,
    grid_columns: usize,
    /// First slot of each owner, and the end of the last owner's slots.
    starts: Vec<usize>,
    /// Slot of each block, row by row.
    slots: Vec<usize>,
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
            slots: vec![0; blocks * blocks],
        };
        let mut owned = vec![0; nodes];
        for (place, slot) in layout.slots.iter_mut().enumerate() {
            let owner =
                place / blocks % layout.grid_rows * grid_columns + place % blocks % grid_columns;
            *slot = owned[owner];
            owned[owner] += 1;
        }
        for count in owned {
            let start = layout.starts.last().copied().unwrap_or(0);
            layout.starts.push(start + count.next_multiple_of(BLOCKS_PER_PAGE));
        }
        for i in 0..blocks {
            for j in 0..blocks {
                let start = layout.starts[layout.owner(i, j)];
                layout.slots[i * blocks + j] += start;
            }
        }
        layout
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

    /// Returns the range of block (i, j) in the array.
    #[must_use]
    pub fn values(&self, i: usize, j: usize) -> std::ops::Range<usize> {
        let slot = self.slots[i * self.blocks + j];
        slot * VALUES..(slot + 1) * VALUES
    }

    /// Returns the number of values in the array, with the padding of each owner's part to whole
    /// pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0) * VALUES
    }

    /// Returns the home of each page of the array.
    #[must_use]
    pub fn homes(&self) -> Vec<u32> {
        let parts = self.starts.windows(2).zip(0u32..);
        parts
            .flat_map(|(part, rank)| {
                std::iter::repeat_n(rank, (part[1] - part[0]) / BLOCKS_PER_PAGE)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_in_pages_of_their_owner_and_nowhere_twice() {
        for nodes in 1..=9 {
            for n in [16, 48, 256] {
                let layout = Layout::new(n, nodes);
                let homes = layout.homes();
                assert_eq!(homes.len() * 4096, layout.len() * 8, "{nodes} nodes, n = {n}");
                let mut seen = std::collections::HashSet::new();
                for i in 0..layout.blocks() {
                    for j in 0..layout.blocks() {
                        let values = layout.values(i, j);
                        assert!(values.end <= layout.len() && seen.insert(values.start));
                        assert_eq!(homes[values.start * 8 / 4096] as usize, layout.owner(i, j));
                    }
                }
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
