//! Matrix to factor, computed value by value from a seed, and the test of its factors.

use oikaze_apps::{Fingerprint, uniform};
use oikaze_kernels::lu::{Block, SIDE, VALUES};

/// Maximum distance of a value of the solution from one.
pub const TOLERANCE: f64 = 1e-5;

/// An n × n random matrix whose diagonal is multiplied by ten, as in SPLASH-2.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Number of rows, and of columns.
    pub n: usize,
    /// Seed of the values.
    pub seed: u64,
}

impl Matrix {
    /// Returns one value.
    #[must_use]
    pub fn at(self, i: usize, j: usize) -> f64 {
        let value = uniform(self.seed, (i * self.n + j) as u64);
        if i == j { value * 10.0 } else { value }
    }

    /// Fills `values` with block (i, j).
    pub fn fill(self, i: usize, j: usize, values: &mut [f64]) {
        for (place, value) in values.iter_mut().enumerate().take(VALUES) {
            *value = self.at(i * SIDE + place / SIDE, j * SIDE + place % SIDE);
        }
    }

    /// Returns the floating-point operations of the factorization, by the usual count of SPLASH-2.
    #[must_use]
    pub fn flops(self) -> f64 {
        2.0 / 3.0 * (self.n as f64).powi(3)
    }

    /// Solves the system whose right-hand side is the sums of the rows, with the factors that
    /// `block` returns. Returns the maximum distance of the solution from all ones.
    ///
    /// # Errors
    /// An error of `block` is passed on.
    pub fn error<E>(
        self,
        mut block: impl FnMut(usize, usize) -> Result<Block, E>,
    ) -> Result<f64, E> {
        let blocks = self.n / SIDE;
        let mut x: Vec<f64> =
            (0..self.n).map(|i| (0..self.n).map(|j| self.at(i, j)).sum()).collect();
        for i in 0..blocks {
            for j in 0..=i {
                let lower = block(i, j)?;
                for r in 0..SIDE {
                    let columns = if i == j { r } else { SIDE };
                    let known: f64 =
                        (0..columns).map(|c| lower[r * SIDE + c] * x[j * SIDE + c]).sum();
                    x[i * SIDE + r] -= known;
                }
            }
        }
        for i in (0..blocks).rev() {
            for j in (i..blocks).rev() {
                let upper = block(i, j)?;
                for r in (0..SIDE).rev() {
                    let from = if i == j { r + 1 } else { 0 };
                    let known: f64 =
                        (from..SIDE).map(|c| upper[r * SIDE + c] * x[j * SIDE + c]).sum();
                    x[i * SIDE + r] -= known;
                    if i == j {
                        x[i * SIDE + r] /= upper[r * SIDE + r];
                    }
                }
            }
        }
        Ok(x.iter().map(|x| (x - 1.0).abs()).fold(0.0, |worst, error| {
            if error.is_nan() { f64::INFINITY } else { worst.max(error) }
        }))
    }
}

/// Returns the fingerprint of a factored matrix, in rows of blocks.
///
/// # Errors
/// An error of `block` is passed on.
pub fn fingerprint<E>(
    blocks: usize,
    mut block: impl FnMut(usize, usize) -> Result<Block, E>,
) -> Result<u64, E> {
    let mut print = Fingerprint::new();
    for i in 0..blocks {
        for j in 0..blocks {
            print.f64s(&block(i, j)?);
        }
    }
    Ok(print.value())
}
