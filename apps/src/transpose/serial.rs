//! Serial program without nodes and shared memory. It is the oracle of the parallel program. The
//! matrix has the same tiles in the same order as on one node.

use std::time::Instant;

use oikaze_apps::{Fingerprint, Progress};
use oikaze_kernels::transpose::{SIDE, Tile, VALUES, transpose};

use crate::layout::Layout;
use crate::{Outcome, start};

/// Transposes on one processor.
#[must_use]
pub fn solve(size: usize, iterations: u32, mut progress: Progress) -> Outcome {
    let layout = Layout::new(size, 1);
    let mut old = vec![[0.0; VALUES]; layout.tiles(0).count()];
    let mut new = old.clone();
    for ((row, column), tile) in layout.tiles(0).zip(&mut old) {
        fill(size, row, column, tile);
    }
    let tiles = size / SIDE;
    let started = Instant::now();
    for _ in 0..iterations {
        // Columns of tiles become rows.
        for (row, column) in old.chunks_exact(tiles).enumerate() {
            for (n, tile) in column.iter().enumerate() {
                transpose(tile, &mut new[n * tiles + row]);
            }
        }
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    let mut print = Fingerprint::new();
    fingerprint(&mut print, &old, tiles);
    Outcome { hash: Some(print.value()), seconds }
}

/// Computes a tile of the starting matrix.
pub fn fill(size: usize, row: usize, column: usize, tile: &mut Tile) {
    for (n, value) in tile.iter_mut().enumerate() {
        *value = start(size, row * SIDE + n / SIDE, column * SIDE + n % SIDE);
    }
}

/// Continues a fingerprint over the tiles of one node, row of values by row of values. The node has
/// `rows` rows of tiles.
pub fn fingerprint(print: &mut Fingerprint, tiles: &[Tile], rows: usize) {
    for i in 0..rows * SIDE {
        for tile in tiles.iter().skip(i / SIDE).step_by(rows) {
            print.f64s(&tile[i % SIDE * SIDE..(i % SIDE + 1) * SIDE]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a matrix that is stored row by row and transposed value by value.
    #[test]
    fn matrix_is_the_one_of_the_definition() {
        for (size, iterations) in [(32, 1), (96, 1), (96, 4), (160, 3)] {
            let mut print = Fingerprint::new();
            for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
                let (i, j) = if iterations % 2 == 0 { (i, j) } else { (j, i) };
                let value = (0..iterations).fold(start(size, i, j), |value, _| value + 1.0);
                print.f64s(&[value]);
            }
            let outcome = solve(size, iterations, Progress::new(false, 0));
            assert_eq!(outcome.hash, Some(print.value()), "{size} / {iterations}");
        }
    }
}
