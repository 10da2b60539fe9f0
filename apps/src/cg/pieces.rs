//! Scalar products by pieces of the rows. Every sum has the same order of additions wherever it is
//! taken.

use std::ops::Range;

use oikaze_kernels::cg::dot;

use crate::class::{Class, PIECES};

/// Sums of all pieces, of which a node computes its own and leaves the others zero.
pub type PieceSums = [f64; PIECES];

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
