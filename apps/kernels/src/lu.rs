//! Kernels of SPLASH-2's LU: four operations on one or two blocks of 16 × 16 values, which are
//! stored row-major.
//!
//! On every node, each value is updated by the same operations in the same order. Results have the
//! same bits on any number of nodes.

use std::ops::Range;

/// Number of rows, and of columns, of a block.
pub const SIDE: usize = 16;
/// Number of values in a block.
pub const VALUES: usize = SIDE * SIDE;

/// Values of one block.
pub type Block = [f64; VALUES];

/// Returns row `i` of a block.
#[inline(always)]
fn row(block: &Block, i: usize) -> [f64; SIDE] {
    std::array::from_fn(|j| block[i * SIDE + j])
}

/// Computes `row i of block −= factor × source`, from column `from` on.
#[inline(always)]
fn subtract(block: &mut Block, i: usize, from: usize, factor: f64, source: &[f64; SIDE]) {
    for j in from..SIDE {
        block[i * SIDE + j] -= factor * source[j];
    }
}

/// Divides column `k` of these rows by the pivot, and takes the multiples of the pivot's row that
/// result from the columns behind it.
#[inline(always)]
fn reduce(block: &mut Block, rows: Range<usize>, k: usize, pivot: &[f64; SIDE]) {
    for i in rows {
        let ratio = block[i * SIDE + k] / pivot[k];
        block[i * SIDE + k] = ratio;
        subtract(block, i, k + 1, ratio, pivot);
    }
}

/// Factors a diagonal block into L (unit diagonal, below) and U (diagonal and above), in place,
/// without pivoting (lu0).
#[inline]
pub fn factor(diagonal: &mut Block) {
    for k in 0..SIDE {
        let pivot = row(diagonal, k);
        reduce(diagonal, k + 1..SIDE, k, &pivot);
    }
}

/// Divides a block below the diagonal one: `block ← block × U⁻¹` (bdiv).
#[inline]
pub fn divide(block: &mut Block, diagonal: &Block) {
    for k in 0..SIDE {
        reduce(block, 0..SIDE, k, &row(diagonal, k));
    }
}

/// Eliminates a block to the right of the diagonal one: `block ← L⁻¹ × block` (bmodd).
#[inline]
pub fn eliminate(block: &mut Block, diagonal: &Block) {
    for i in 1..SIDE {
        // Rows above are complete, so this one stays in registers until it is.
        let mut values = row(block, i);
        for k in 0..i {
            let (factor, source) = (diagonal[i * SIDE + k], row(block, k));
            for j in 0..SIDE {
                values[j] -= factor * source[j];
            }
        }
        block[i * SIDE..(i + 1) * SIDE].copy_from_slice(&values);
    }
}

/// Updates an inner block: `block ← block − left × above` (bmod). Four rows are updated together,
/// so that each row of `above` is read a quarter as often. A loop over the four stays a loop, and
/// its rows in memory, so they have names.
#[inline]
pub fn update(block: &mut Block, left: &Block, above: &Block) {
    for i in (0..SIDE).step_by(4) {
        let [mut a, mut b, mut c, mut d] = [i, i + 1, i + 2, i + 3].map(|i| row(block, i));
        for k in 0..SIDE {
            let source = row(above, k);
            let [fa, fb, fc, fd] = [i, i + 1, i + 2, i + 3].map(|i| left[i * SIDE + k]);
            for j in 0..SIDE {
                a[j] -= fa * source[j];
                b[j] -= fb * source[j];
                c[j] -= fc * source[j];
                d[j] -= fd * source[j];
            }
        }
        for (row, values) in [a, b, c, d].iter().enumerate() {
            block[(i + row) * SIDE..(i + row + 1) * SIDE].copy_from_slice(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> Block {
        std::array::from_fn(|n| {
            let value = crate::random::uniform(seed, n as u64);
            if n / SIDE == n % SIDE { 10.0 + value } else { value }
        })
    }

    fn product(left: &Block, right: &Block) -> Block {
        std::array::from_fn(|n| {
            (0..SIDE).map(|k| left[n / SIDE * SIDE + k] * right[k * SIDE + n % SIDE]).sum()
        })
    }

    fn parts(factored: &Block) -> (Block, Block) {
        let lower = std::array::from_fn(|n| match (n / SIDE).cmp(&(n % SIDE)) {
            std::cmp::Ordering::Greater => factored[n],
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Less => 0.0,
        });
        let upper = std::array::from_fn(|n| if n / SIDE <= n % SIDE { factored[n] } else { 0.0 });
        (lower, upper)
    }

    fn close(one: &Block, other: &Block) -> bool {
        one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    #[test]
    fn each_kernel_undoes_a_product() {
        let (diagonal, right, below) = (random(1), random(2), random(3));
        let mut factored = diagonal;
        factor(&mut factored);
        let (lower, upper) = parts(&factored);
        assert!(close(&product(&lower, &upper), &diagonal));
        let mut divided = below;
        divide(&mut divided, &factored);
        assert!(close(&product(&divided, &upper), &below));
        let mut eliminated = right;
        eliminate(&mut eliminated, &factored);
        assert!(close(&product(&lower, &eliminated), &right));
        let mut updated = product(&below, &right);
        update(&mut updated, &below, &right);
        assert!(close(&updated, &[0.0; VALUES]));
    }
}
