//! Serial program without nodes and shared memory. It is the oracle of the parallel program.

use std::convert::Infallible;
use std::time::Instant;

use oikaze_apps::Progress;
use oikaze_kernels::lu::{self, Block, SIDE, VALUES};

use crate::matrix::{Matrix, fingerprint};

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Maximum distance of a value of the solution from one.
    pub error: f64,
    /// Fingerprint of the factors.
    pub hash: u64,
    /// Seconds that the factorization took.
    pub seconds: f64,
}

/// Factors `matrix` on one processor.
#[must_use]
pub fn factor(matrix: Matrix, mut progress: Progress) -> Outcome {
    let blocks = matrix.n / SIDE;
    let mut all = vec![[0.0; VALUES]; blocks * blocks];
    for (place, block) in all.iter_mut().enumerate() {
        matrix.fill(place / blocks, place % blocks, block);
    }
    let started = Instant::now();
    for k in 0..blocks {
        let mut diagonal = all[k * blocks + k];
        lu::factor(&mut diagonal);
        all[k * blocks + k] = diagonal;
        for i in k + 1..blocks {
            lu::divide(&mut all[i * blocks + k], &diagonal);
            lu::eliminate(&mut all[k * blocks + i], &diagonal);
        }
        let above = all[k * blocks..(k + 1) * blocks].to_vec();
        for row in all[(k + 1) * blocks..].chunks_exact_mut(blocks) {
            let left = row[k];
            for (block, above) in row.iter_mut().zip(&above).skip(k + 1) {
                lu::update(block, &left, above);
            }
        }
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    let get = |i: usize, j: usize| -> Result<Block, Infallible> { Ok(all[i * blocks + j]) };
    let Ok(error) = matrix.error(get);
    let Ok(hash) = fingerprint(blocks, get);
    Outcome { error, hash, seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::TOLERANCE;

    #[test]
    fn the_solution_is_all_ones() {
        for n in [16, 32, 176] {
            let outcome = factor(Matrix { n, seed: 1 }, Progress::new(false, 0));
            assert!(outcome.error < TOLERANCE, "n = {n}: {}", outcome.error);
        }
    }

    /// Compares with Gaussian elimination as in textbooks.
    #[test]
    fn factors_are_those_of_plain_elimination() {
        let matrix = Matrix { n: 48, seed: 7 };
        let n = matrix.n;
        let mut plain: Vec<Vec<f64>> =
            (0..n).map(|i| (0..n).map(|j| matrix.at(i, j)).collect()).collect();
        for k in 0..n {
            for i in k + 1..n {
                plain[i][k] /= plain[k][k];
                for j in k + 1..n {
                    plain[i][j] -= plain[i][k] * plain[k][j];
                }
            }
        }
        let Ok(expected) = fingerprint(n / SIDE, |bi, bj| -> Result<Block, Infallible> {
            Ok(std::array::from_fn(|v| plain[bi * SIDE + v / SIDE][bj * SIDE + v % SIDE]))
        });
        assert_eq!(factor(matrix, Progress::new(false, 0)).hash, expected);
    }
}
