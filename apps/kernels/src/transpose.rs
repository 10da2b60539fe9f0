//! Transposition of one tile of a matrix. Two tiles fit into the first cache.

/// Number of rows, and of columns, of a tile. A tile has two pages.
pub const SIDE: usize = 32;
/// Number of values in a tile.
pub const VALUES: usize = SIDE * SIDE;

/// Values of one tile, row by row.
pub type Tile = [f64; VALUES];

/// Number of rows, and of columns, that are transposed at once. They fit into vector registers.
const BLOCK: usize = 4;

/// Stores the transposed `from`, with one added to every value, in `to`.
#[inline]
pub fn transpose(from: &Tile, to: &mut Tile) {
    for (i, j) in
        (0..SIDE).step_by(BLOCK).flat_map(|i| (0..SIDE).step_by(BLOCK).map(move |j| (i, j)))
    {
        let columns: [&[f64; BLOCK]; BLOCK] = std::array::from_fn(|column| {
            from[(j + column) * SIDE + i..].first_chunk().expect("a block is inside of its tile")
        });
        for row in 0..BLOCK {
            let values: [f64; BLOCK] = columns.map(|column| column[row] + 1.0);
            let start = (i + row) * SIDE + j;
            to[start..start + BLOCK].copy_from_slice(&values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let from: Tile = std::array::from_fn(|n| n as f64);
        let mut to = [0.0; VALUES];
        transpose(&from, &mut to);
        for (i, j) in (0..SIDE).flat_map(|i| (0..SIDE).map(move |j| (i, j))) {
            assert_eq!(to[i * SIDE + j], (j * SIDE + i) as f64 + 1.0);
        }
    }
}
