//! Sums and updates of vectors. Every sum has the same order of additions wherever it is taken.

use std::ops::Range;

use crate::class::{Class, PIECES};

/// Number of independent partial sums. They hide the latency of an addition.
const LANES: usize = 8;

/// Sums of all pieces, of which a node computes its own and leaves the others zero.
pub type PieceSums = [f64; PIECES];

/// Returns the product of one row of a sparse matrix with a vector.
#[inline]
pub fn sum_of_products(columns: &[u32], values: &[f64], vector: &[f64]) -> f64 {
    let (column_lanes, column_rest) = columns.as_chunks::<LANES>();
    let (value_lanes, value_rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (columns, values) in column_lanes.iter().zip(value_lanes) {
        for lane in 0..LANES {
            sums[lane] += values[lane] * vector[columns[lane] as usize];
        }
    }
    let mut rest = 0.0;
    for (column, value) in column_rest.iter().zip(value_rest) {
        rest += value * vector[*column as usize];
    }
    add_lanes(&sums) + rest
}

/// Returns the scalar product of two vectors of equal length.
#[inline(never)]
pub fn dot(one: &[f64], other: &[f64]) -> f64 {
    let (one_lanes, one_rest) = one.as_chunks::<LANES>();
    let (other_lanes, other_rest) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in one_lanes.iter().zip(other_lanes) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * other[lane];
        }
    }
    let rest: f64 = one_rest.iter().zip(other_rest).map(|(one, other)| one * other).sum();
    add_lanes(&sums) + rest
}

/// Adds lanes in pairs.
fn add_lanes(sums: &[f64; LANES]) -> f64 {
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

/// Computes `vector ← vector + factor · other`.
#[inline(never)]
pub fn add_multiple(vector: &mut [f64], factor: f64, other: &[f64]) {
    for (value, other) in vector.iter_mut().zip(other) {
        *value += factor * other;
    }
}

/// Computes `vector ← other + factor · vector`.
#[inline(never)]
pub fn multiply_and_add(vector: &mut [f64], factor: f64, other: &[f64]) {
    for (value, other) in vector.iter_mut().zip(other) {
        *value = other + factor * *value;
    }
}

/// Returns the scalar product of each of these pieces, and zero for all others. The vectors have
/// the rows of these pieces.
pub fn dot_pieces(class: &Class, pieces: &Range<usize>, one: &[f64], other: &[f64]) -> PieceSums {
    let first = class.rows_of(pieces).start;
    let mut sums = [0.0; PIECES];
    for piece in pieces.clone() {
        let rows = class.piece(piece);
        let rows = rows.start - first..rows.end - first;
        sums[piece] = dot(&one[rows.clone()], &other[rows]);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_close_to_the_plain_ones() {
        for len in [0, 1, 7, 8, 9, 40, 133] {
            let vector = |seed| -> Vec<f64> {
                (0..len as u64).map(|i| oikaze_apps::uniform(seed, i)).collect()
            };
            let (one, other) = (vector(1), vector(2));
            let plain: f64 = one.iter().zip(&other).map(|(one, other)| one * other).sum();
            assert!((dot(&one, &other) - plain).abs() < 1e-12, "{len}");
            let columns: Vec<u32> = (0..len as u32).collect();
            assert!((sum_of_products(&columns, &one, &other) - plain).abs() < 1e-12, "{len}");
        }
    }

    #[test]
    fn pieces_cover_all_rows() {
        let class = crate::class::Size::S.class();
        let ones = vec![1.0; class.rows];
        for nodes in [1, 2, 3, 7, 96, 100] {
            let mut total = 0.0;
            for rank in 0..nodes {
                let pieces = Class::pieces_of(rank, nodes);
                let mine = &ones[class.rows_of(&pieces)];
                total += dot_pieces(&class, &pieces, mine, mine).iter().sum::<f64>();
            }
            assert_eq!(total, class.rows as f64);
        }
    }
}
