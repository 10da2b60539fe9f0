//! Computes one plane of one Jacobi iteration, as a pure function from three planes to one.
//!
//! The kernel is the 19-point stencil of the original, with its order of operations, so that the
//! field has the same bits under every partition. The sum of squared residuals (gosa) is taken in
//! f64, because an f32 sum stalls at size L. The order of this sum depends on the plane alone. The
//! caller adds the planes' sums in plane order.

use std::error::Error;
use std::fmt;

use crate::problem::Shape;

/// Relaxation factor of the original.
const OMEGA: f32 = 0.8;
/// Number of independent partial sums of squares. They fill a vector register of f64, and are
/// always added in the same order.
const LANES: usize = 8;

/// Coefficients of the stencil.
///
/// The original keeps the coefficients as twelve arrays as large as the field and reads them at
/// each point, so it measures memory bandwidth. [`Coefficients::arrays`] does so too (for the
/// planes of this node only), which makes MFLOPS comparable. [`Coefficients::scalars`] does the
/// same arithmetic from registers.
pub struct Coefficients {
    /// Arrays of the coefficients; `None` if they are kept in registers.
    arrays: Option<Arrays>,
}

/// Coefficients a[4], b[3], c[3], bnd and wrk1, each for `planes` from `first` on.
struct Arrays {
    first: usize,
    plane: usize,
    /// Distance between the starts of two arrays in `values`.
    stride: usize,
    /// All twelve arrays, one after another.
    values: Vec<f32>,
}

/// Values of an array of f32 in one page.
const PAGE: usize = 4096 / size_of::<f32>();
/// Values between two arrays beyond whole pages: five cache lines. A row's twelve coefficients are
/// read together. Arrays at the same place of a page would fall into the same sets of the first
/// cache and displace each other, which took two to three times as long.
const STAGGER: usize = 5 * 64 / size_of::<f32>();

/// Values of a, b, c, bnd and wrk1 in the benchmark.
const VALUES: [f32; 12] = [1.0, 1.0, 1.0, 1.0 / 6.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0];

/// The coefficients do not fit into memory.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory {
    bytes: usize,
}

impl Error for NoMemory {}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the coefficients of this node's planes need {} MiB, which this machine (or ulimit -v) does not give: use more nodes, a \
             smaller --size, or --coefficients registers",
            self.bytes >> 20
        )
    }
}

impl Coefficients {
    /// Makes one array for each coefficient, for these planes, as the original does.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn arrays(shape: Shape, planes: &std::ops::Range<usize>) -> Result<Self, NoMemory> {
        let stride = (planes.len() * shape.plane()).next_multiple_of(PAGE) + STAGGER;
        let (mut values, count) = (Vec::new(), VALUES.len() * stride);
        values
            .try_reserve_exact(count)
            .map_err(|_| NoMemory { bytes: count * size_of::<f32>() })?;
        for (value, end) in VALUES.into_iter().zip((stride..).step_by(stride)) {
            values.resize(end, value);
        }
        let (first, plane) = (planes.start, shape.plane());
        Ok(Self { arrays: Some(Arrays { first, plane, stride, values }) })
    }

    /// Makes coefficients that are kept in registers.
    #[must_use]
    pub const fn scalars() -> Self {
        Self { arrays: None }
    }
}

/// Nine rows of the old field around the row to compute, all of the same length. They are above (i
/// − 1), here and below (i + 1), each with j − 1, j and j + 1.
struct Rows<'a> {
    above: [&'a [f32]; 3],
    here: [&'a [f32]; 3],
    below: [&'a [f32]; 3],
}

/// Computes plane `i` of the new field from planes i − 1, i and i + 1 of the old one. Returns the
/// plane's sum of squared residuals. The border of `new` stays as it is. `scratch` has room for one
/// row.
pub fn relax_plane(
    shape: Shape,
    i: usize,
    coefficients: &Coefficients,
    old: [&[f32]; 3],
    new: &mut [f32],
    scratch: &mut Vec<f32>,
) -> f64 {
    let columns = shape.columns;
    scratch.clear();
    scratch.resize(columns, 0.0);
    let mut gosa = [0.0; LANES];
    for j in 1..shape.rows - 1 {
        let around = |plane: &'_ [f32]| -> [std::ops::Range<usize>; 3] {
            debug_assert_eq!(plane.len(), shape.plane());
            [j - 1, j, j + 1].map(|j| j * columns..(j + 1) * columns)
        };
        let cut = |plane: usize| around(old[plane]).map(|row| &old[plane][row]);
        let rows = Rows { above: cut(0), here: cut(1), below: cut(2) };
        let row = j * columns..(j + 1) * columns;
        match &coefficients.arrays {
            Some(arrays) => {
                let start = (i - arrays.first) * arrays.plane + row.start;
                let these = std::array::from_fn(|n| {
                    let start = n * arrays.stride + start;
                    &arrays.values[start..start + columns]
                });
                relax_row_arrays(&rows, &these, &mut new[row], scratch);
            }
            None => relax_row_scalars(&rows, std::hint::black_box(&VALUES), &mut new[row], scratch),
        }
        for residuals in scratch[1..columns - 1].chunks(LANES) {
            for (lane, residual) in gosa.iter_mut().zip(residuals) {
                *lane += f64::from(*residual) * f64::from(*residual);
            }
        }
    }
    gosa.iter().sum()
}

/// Computes one row with coefficients from arrays.
#[inline(never)] // a separate function tells the compiler that `new` and `residuals` overlap nothing
fn relax_row_arrays(
    rows: &Rows<'_>,
    coefficients: &[&[f32]; 12],
    new: &mut [f32],
    residuals: &mut [f32],
) {
    let columns = new.len();
    let [a0, a1, a2, a3, b0, b1, b2, c0, c1, c2, bnd, wrk1] =
        coefficients.map(|row| &row[..columns]);
    let [above_jm, above, above_jp] = rows.above.map(|row| &row[..columns]);
    let [here_jm, here, here_jp] = rows.here.map(|row| &row[..columns]);
    let [below_jm, below, below_jp] = rows.below.map(|row| &row[..columns]);
    let residuals = &mut residuals[..columns];
    for k in 1..columns - 1 {
        let at =
            [a0[k], a1[k], a2[k], a3[k], b0[k], b1[k], b2[k], c0[k], c1[k], c2[k], bnd[k], wrk1[k]];
        let next = [below[k], here_jp[k], here[k + 1], above[k], here_jm[k], here[k - 1]];
        let ij = [below_jp[k], below_jm[k], above_jp[k], above_jm[k]];
        let jk = [here_jp[k + 1], here_jm[k + 1], here_jp[k - 1], here_jm[k - 1]];
        let ik = [below[k + 1], above[k + 1], below[k - 1], above[k - 1]];
        let residual = residual(&at, here[k], &next, &ij, &jk, &ik);
        residuals[k] = residual;
        new[k] = here[k] + OMEGA * residual;
    }
}

/// Computes one row with coefficients in registers.
#[inline(never)]
fn relax_row_scalars(
    rows: &Rows<'_>,
    coefficients: &[f32; 12],
    new: &mut [f32],
    residuals: &mut [f32],
) {
    let columns = new.len();
    let at = *coefficients;
    let [above_jm, above, above_jp] = rows.above.map(|row| &row[..columns]);
    let [here_jm, here, here_jp] = rows.here.map(|row| &row[..columns]);
    let [below_jm, below, below_jp] = rows.below.map(|row| &row[..columns]);
    let residuals = &mut residuals[..columns];
    for k in 1..columns - 1 {
        let next = [below[k], here_jp[k], here[k + 1], above[k], here_jm[k], here[k - 1]];
        let ij = [below_jp[k], below_jm[k], above_jp[k], above_jm[k]];
        let jk = [here_jp[k + 1], here_jm[k + 1], here_jp[k - 1], here_jm[k - 1]];
        let ik = [below[k + 1], above[k + 1], below[k - 1], above[k - 1]];
        let residual = residual(&at, here[k], &next, &ij, &jk, &ik);
        residuals[k] = residual;
        new[k] = here[k] + OMEGA * residual;
    }
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

    /// Computes the stencil point by point, as its definition says, without optimisation.
    fn naive(shape: Shape, i: usize, old: &[f32]) -> Vec<f32> {
        let at = |i: usize, j: usize, k: usize| old[(i * shape.rows + j) * shape.columns + k];
        let mut new = old[i * shape.plane()..(i + 1) * shape.plane()].to_vec();
        for j in 1..shape.rows - 1 {
            for k in 1..shape.columns - 1 {
                let s = at(i + 1, j, k)
                    + at(i, j + 1, k)
                    + at(i, j, k + 1)
                    + at(i - 1, j, k)
                    + at(i, j - 1, k)
                    + at(i, j, k - 1);
                let ss = s * (1.0 / 6.0) - at(i, j, k);
                new[j * shape.columns + k] = at(i, j, k) + 0.8 * ss;
            }
        }
        new
    }

    #[test]
    fn both_kernels_agree_with_the_naive_one_bit_for_bit() {
        let shape = Shape { planes: 3, rows: 7, columns: 21 };
        let old: Vec<f32> = (0..shape.len()).map(|n| ((n * 7919) % 1000) as f32 / 999.0).collect();
        let expected = naive(shape, 1, &old);
        let plane = |i: usize| &old[i * shape.plane()..(i + 1) * shape.plane()];
        let mut sums = Vec::new();
        for coefficients in
            [Coefficients::arrays(shape, &(1..2)).expect("it is small"), Coefficients::scalars()]
        {
            let mut new = plane(1).to_vec();
            sums.push(relax_plane(
                shape,
                1,
                &coefficients,
                [plane(0), plane(1), plane(2)],
                &mut new,
                &mut Vec::new(),
            ));
            assert!(new.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
        assert_eq!(sums[0].to_bits(), sums[1].to_bits());
    }
}
