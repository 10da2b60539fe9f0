//! Computes one plane of one Jacobi iteration of Himeno, as a pure function from three planes to
//! one.
//!
//! The kernel is the 19-point stencil of the original, with its order of operations, so that the
//! field has the same bits under every partition. The sum of squared residuals (gosa) is taken in
//! f64, because an f32 sum stalls at size L. The order of this sum depends on the plane alone. The
//! caller adds the planes' sums in plane order.

use std::ops::Range;

/// Relaxation factor of the original.
const OMEGA: f32 = 0.8;
/// Number of independent partial sums of squares. They fill a vector register of f64, and are
/// always added in the same order.
const LANES: usize = 8;
/// Number of points that are computed at once. They fill a vector register of f32.
const BLOCK: usize = 16;
/// Number of values of a row that a block reads: its points, and one value on both sides.
const WINDOW: usize = BLOCK + 2;

/// Minimum number of values in a row.
pub const COLUMNS_MIN: usize = WINDOW;

/// Coefficients a[4], b[3], c[3], bnd and wrk1 of some points. A storage of its own type makes an
/// own function of [`relax_plane`].
pub trait Coefficients: Copy {
    /// Coefficients of the points of a block.
    type Block: Copy;
    /// Returns the coefficients of a row, which has these points.
    #[must_use]
    fn row(&self, points: Range<usize>) -> Self;
    /// Returns the coefficients of the block that begins at this point of the row.
    fn block(&self, first: usize) -> Self::Block;
    /// Returns the coefficients of point `n` of a block.
    fn at(block: &Self::Block, n: usize) -> [f32; 12];
}

/// One array for each coefficient.
#[derive(Clone, Copy, Debug)]
pub struct Arrays<'a>(pub [&'a [f32]; 12]);

impl<'a> Coefficients for Arrays<'a> {
    type Block = [&'a [f32; BLOCK]; 12];

    #[inline(always)]
    fn row(&self, points: Range<usize>) -> Self {
        Self(self.0.map(|array| &array[points.clone()]))
    }

    #[inline(always)]
    fn block(&self, first: usize) -> Self::Block {
        self.0.map(|row| window(row, first))
    }

    #[inline(always)]
    fn at(block: &Self::Block, n: usize) -> [f32; 12] {
        block.map(|values| values[n])
    }
}

/// One value for each coefficient, the same at all points.
#[derive(Clone, Copy, Debug)]
pub struct Scalars(pub [f32; 12]);

impl Coefficients for Scalars {
    type Block = [f32; 12];

    #[inline(always)]
    fn row(&self, _points: Range<usize>) -> Self {
        *self
    }

    #[inline(always)]
    fn block(&self, _first: usize) -> [f32; 12] {
        self.0
    }

    #[inline(always)]
    fn at(block: &[f32; 12], _n: usize) -> [f32; 12] {
        *block
    }
}

/// Returns the number of values that `residuals` of [`relax_plane`] needs.
#[must_use]
pub const fn residuals_len(columns: usize) -> usize {
    columns + LANES
}

/// Computes a plane of the new field from the planes before, at and after it of the old one.
/// Returns the plane's sum of squared residuals. The border of `new` stays as it is. `residuals` is
/// scratch memory for one row.
///
/// # Panics
/// A row has fewer than [`COLUMNS_MIN`] values, or a slice is too short.
#[inline(never)] // the same code in all programs, whatever surrounds the call
pub fn relax_plane<C: Coefficients>(
    columns: usize,
    coefficients: &C,
    old: [&[f32]; 3],
    new: &mut [f32],
    residuals: &mut [f32],
) -> f64 {
    assert!(columns >= COLUMNS_MIN, "a row of {columns} points is shorter than a block");
    let residuals = &mut residuals[..residuals_len(columns)];
    // Squares of zero fill the last lanes of a row.
    residuals.fill(0.0);
    let inner = 1..1 + (columns - 2).next_multiple_of(LANES);
    let mut gosa = [0.0; LANES];
    for j in 1..new.len() / columns - 1 {
        let points = |j: usize| j * columns..(j + 1) * columns;
        let around = old.map(|plane| [j - 1, j, j + 1].map(|j| &plane[points(j)]));
        relax_row(&around, &coefficients.row(points(j)), &mut new[points(j)], residuals);
        for residuals in residuals[inner.clone()].as_chunks::<LANES>().0 {
            for (lane, residual) in gosa.iter_mut().zip(residuals) {
                *lane += f64::from(*residual) * f64::from(*residual);
            }
        }
    }
    gosa.iter().sum()
}

/// Nine rows of the old field around the row to compute: above (i − 1), here and below (i + 1),
/// each with j − 1, j and j + 1.
type Rows<'a> = [[&'a [f32]; 3]; 3];

/// Computes one row, block by block. The last block ends with the row and overlaps the one before,
/// so that no point is left to a loop of its own. Points of both blocks get the same values twice.
#[inline(always)]
fn relax_row<C: Coefficients>(
    rows: &Rows<'_>,
    coefficients: &C,
    new: &mut [f32],
    residuals: &mut [f32],
) {
    let columns = new.len();
    let rows = rows.map(|three| three.map(|row| &row[..columns]));
    let residuals = &mut residuals[..columns];
    let last = columns - WINDOW;
    for start in (0..columns - 2).step_by(BLOCK) {
        let start = start.min(last);
        let around = rows.map(|three| three.map(|row| window(row, start)));
        let (next, residual) = relax_block::<C>(&around, &coefficients.block(start + 1));
        new[start + 1..start + 1 + BLOCK].copy_from_slice(&next);
        residuals[start + 1..start + 1 + BLOCK].copy_from_slice(&residual);
    }
}

/// Returns the `N` values from `start` on, as an array. The length is known to the compiler, so
/// that it needs no test of an index inside of a block.
#[inline(always)]
fn window<const N: usize>(row: &[f32], start: usize) -> &[f32; N] {
    row[start..].first_chunk().expect("a block is inside of its row")
}

/// Computes one block. Returns the new values and the residuals. The results are in arrays of their
/// own, because the compiler then sees that a store overlaps no value which is still to be loaded.
#[inline(always)]
fn relax_block<C: Coefficients>(
    rows: &[[&[f32; WINDOW]; 3]; 3],
    coefficients: &C::Block,
) -> ([f32; BLOCK], [f32; BLOCK]) {
    let [[above_jm, above, above_jp], [here_jm, here, here_jp], [below_jm, below, below_jp]] =
        *rows;
    let (mut new, mut residuals) = ([0.0; BLOCK], [0.0; BLOCK]);
    for n in 0..BLOCK {
        let k = n + 1;
        let next = [below[k], here_jp[k], here[k + 1], above[k], here_jm[k], here[k - 1]];
        let ij = [below_jp[k], below_jm[k], above_jp[k], above_jm[k]];
        let jk = [here_jp[k + 1], here_jm[k + 1], here_jp[k - 1], here_jm[k - 1]];
        let ik = [below[k + 1], above[k + 1], below[k - 1], above[k - 1]];
        let residual = residual(&C::at(coefficients, n), here[k], &next, &ij, &jk, &ik);
        residuals[n] = residual;
        new[n] = here[k] + OMEGA * residual;
    }
    (new, residuals)
}

/// Returns the residual at one point, in the original's order of operations. `next` holds the six
/// adjacent points (i+1, j+1, k+1, i−1, j−1, k−1). `ij`, `jk` and `ik` hold the corners of three
/// planes through the point, in the original's order: plus, minus, minus, plus.
#[inline(always)]
fn residual(
    c: &[f32; 12],
    p: f32,
    next: &[f32; 6],
    ij: &[f32; 4],
    jk: &[f32; 4],
    ik: &[f32; 4],
) -> f32 {
    let [a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, bnd, wrk1] = *c;
    let s0 = a0 * next[0]
        + a1 * next[1]
        + a2 * next[2]
        + b0 * (ij[0] - ij[1] - ij[2] + ij[3])
        + b1 * (jk[0] - jk[1] - jk[2] + jk[3])
        + b2 * (ik[0] - ik[1] - ik[2] + ik[3])
        + c0 * next[3]
        + c1 * next[4]
        + c2 * next[5]
        + wrk1;
    (s0 * a3 - p) * bnd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the coefficients in the benchmark.
    const VALUES: [f32; 12] = [1.0, 1.0, 1.0, 1.0 / 6.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0];

    /// Computes the stencil point by point, as its definition says, without optimisation. Returns
    /// the middle plane of three, and its sum of squared residuals.
    fn naive(rows: usize, columns: usize, old: &[f32]) -> (Vec<f32>, f64) {
        let at = |i: usize, j: usize, k: usize| old[(i * rows + j) * columns + k];
        let mut new = old[rows * columns..2 * rows * columns].to_vec();
        let mut lanes = [0.0; 8];
        for j in 1..rows - 1 {
            for k in 1..columns - 1 {
                let s = at(2, j, k)
                    + at(1, j + 1, k)
                    + at(1, j, k + 1)
                    + at(0, j, k)
                    + at(1, j - 1, k)
                    + at(1, j, k - 1);
                let ss = s * (1.0 / 6.0) - at(1, j, k);
                new[j * columns + k] = at(1, j, k) + 0.8 * ss;
                lanes[(k - 1) % 8] += f64::from(ss) * f64::from(ss);
            }
        }
        (new, lanes.iter().sum())
    }

    #[test]
    fn both_storages_agree_with_the_naive_kernel_bit_for_bit() {
        for (rows, columns) in [(3, 18), (7, 21), (4, 33), (5, 34), (4, 35), (6, 64)] {
            let plane = rows * columns;
            let old: Vec<f32> =
                (0..3 * plane).map(|n| ((n * 7919) % 1000) as f32 / 999.0).collect();
            let (expected, sum) = naive(rows, columns, &old);
            let arrays = VALUES.map(|value| vec![value; plane]);
            let arrays = std::array::from_fn(|n| arrays[n].as_slice());
            let planes = std::array::from_fn(|i| &old[i * plane..(i + 1) * plane]);
            for by_arrays in [true, false] {
                let mut new = planes[1].to_vec();
                // Residuals of an earlier plane make no difference.
                let mut residuals = vec![9.0; residuals_len(columns)];
                let gosa = if by_arrays {
                    relax_plane(columns, &Arrays(arrays), planes, &mut new, &mut residuals)
                } else {
                    relax_plane(columns, &Scalars(VALUES), planes, &mut new, &mut residuals)
                };
                let bits = |values: &[f32]| values.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&new), bits(&expected), "{rows} × {columns}");
                assert_eq!(gosa.to_bits(), sum.to_bits(), "{rows} × {columns}");
            }
        }
    }

    /// Gives each coefficient a value of its own at each point, so that none can stand in for
    /// another.
    #[test]
    fn each_coefficient_is_that_of_its_point() {
        let (rows, columns) = (4, 40);
        let plane = rows * columns;
        let value = |seed: usize, n: usize| ((n * 7919 + seed * 104_729) % 1000) as f32 / 999.0;
        let arrays: [Vec<f32>; 12] =
            std::array::from_fn(|seed| (0..plane).map(|n| value(seed, n)).collect());
        let old: [Vec<f32>; 3] =
            std::array::from_fn(|i| (0..plane).map(|n| value(20 + i, n)).collect());
        let coefficients = Arrays(std::array::from_fn(|n| arrays[n].as_slice()));
        let mut new = old[1].clone();
        let mut residuals = vec![0.0; residuals_len(columns)];
        let three = std::array::from_fn(|i| old[i].as_slice());
        relax_plane(columns, &coefficients, three, &mut new, &mut residuals);
        for (j, k) in (1..rows - 1).flat_map(|j| (1..columns - 1).map(move |k| (j, k))) {
            let c = |n: usize| arrays[n][j * columns + k];
            let p = |i: usize, j: usize, k: usize| old[i][j * columns + k];
            let s0 = c(0) * p(2, j, k)
                + c(1) * p(1, j + 1, k)
                + c(2) * p(1, j, k + 1)
                + c(4) * (p(2, j + 1, k) - p(2, j - 1, k) - p(0, j + 1, k) + p(0, j - 1, k))
                + c(5)
                    * (p(1, j + 1, k + 1) - p(1, j - 1, k + 1) - p(1, j + 1, k - 1)
                        + p(1, j - 1, k - 1))
                + c(6) * (p(2, j, k + 1) - p(0, j, k + 1) - p(2, j, k - 1) + p(0, j, k - 1))
                + c(7) * p(0, j, k)
                + c(8) * p(1, j - 1, k)
                + c(9) * p(1, j, k - 1)
                + c(11);
            let expected = p(1, j, k) + 0.8 * ((s0 * c(3) - p(1, j, k)) * c(10));
            assert_eq!(new[j * columns + k].to_bits(), expected.to_bits(), "({j}, {k})");
        }
    }

    #[test]
    #[should_panic(expected = "shorter than a block")]
    fn row_shorter_than_a_block_is_refused() {
        let old = [0.0; 3 * (COLUMNS_MIN - 1)];
        let coefficients = Scalars(VALUES);
        let (mut new, mut residuals) = (old, [0.0; residuals_len(COLUMNS_MIN)]);
        relax_plane(COLUMNS_MIN - 1, &coefficients, [&old; 3], &mut new, &mut residuals);
    }
}
