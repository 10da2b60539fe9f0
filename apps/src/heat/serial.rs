//! Serial program without nodes and shared memory. It is the oracle of the parallel program.

use std::time::Instant;

use oikaze_apps::{Fingerprint, Progress};
use oikaze_kernels::heat::step_row;

use crate::Outcome;
use crate::grid::Grid;

/// Computes the time steps on one processor.
#[must_use]
pub fn solve(grid: Grid, iterations: u32, progress: Progress) -> Outcome {
    let (field, outcome) = field(grid, iterations, progress);
    let mut hash = Fingerprint::new();
    for row in field.chunks_exact(grid.stride()) {
        hash.f64s(&row[..grid.size]);
    }
    Outcome { hash: Some(hash.value()), ..outcome }
}

/// Returns the field after the time steps, and the outcome without a fingerprint.
fn field(grid: Grid, iterations: u32, mut progress: Progress) -> (Vec<f64>, Outcome) {
    let (size, stride) = (grid.size, grid.stride());
    let mut old = vec![0.0; size * stride];
    for (i, row) in old.chunks_exact_mut(stride).enumerate() {
        grid.fill_row(i, row);
    }
    let mut new = old.clone(); // sets its border, which steps leave alone
    let mut residual = 0.0;
    let started = Instant::now();
    for _ in 0..iterations {
        residual = 0.0;
        for i in 1..size - 1 {
            let row = |i: usize| i * stride..i * stride + size;
            let [above, here, below] = [i - 1, i, i + 1].map(|i| &old[row(i)]);
            residual += step_row(above, here, below, &mut new[row(i)]);
        }
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    (old, Outcome { residual, hash: None, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Start;

    /// A plate that no longer changes is harmonic: each point is the mean of those around it.
    #[test]
    fn plate_settles_at_the_steady_state() {
        let grid = Grid { size: 21, start: Start::Random };
        let (field, outcome) = field(grid, 3000, Progress::new(false, 0));
        assert!(outcome.residual < 1e-28, "{}", outcome.residual);
        let at = |i: usize, j: usize| field[i * grid.stride() + j];
        for (i, j) in (1..20).flat_map(|i| (1..20).map(move |j| (i, j))) {
            let mean = (at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1)) / 4.0;
            assert!((at(i, j) - mean).abs() < 1e-12, "({i}, {j}): {} and {mean}", at(i, j));
        }
        let border = [at(0, 7), at(20, 7), at(7, 0), at(7, 20)];
        let start = [7, 20 * 21 + 7, 7 * 21, 7 * 21 + 20].map(|n| oikaze_apps::uniform(1, n));
        assert_eq!(border, start);
    }
}
