//! Classes of the benchmark, and their published results.

use std::ops::Range;

use clap::ValueEnum;
use oikaze_apps::part;

/// Steps of the conjugate gradient method in one outer iteration.
pub const STEPS: u32 = 25;
/// Maximum relative error of zeta, as the benchmark specifies it.
pub const TOLERANCE: f64 = 1e-10;
/// Number of pieces into which the rows are cut. A sum over all rows is first taken in each piece,
/// and the sums of the pieces are then added in order, so that the result has the same bits on any
/// number of nodes. A node has whole pieces. Most small numbers of nodes divide 96.
pub const PIECES: usize = 96;

/// Size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// Matrix of 1,400 rows
    S,
    /// Matrix of 7,000 rows
    W,
    /// Matrix of 14,000 rows
    A,
    /// Matrix of 75,000 rows
    B,
}

/// Parameters of a class, and its result.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Number of rows, and of columns.
    pub rows: usize,
    /// Number of random values in each of the vectors that make the matrix.
    pub nonzeros: usize,
    /// Number of outer iterations.
    pub iterations: u32,
    /// Shift of the eigenvalue.
    pub shift: f64,
    /// Published estimate of the eigenvalue.
    pub zeta: f64,
}

impl Size {
    /// Returns the name of the class: S to B.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::W => "W",
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// Returns the parameters of the class.
    #[must_use]
    pub const fn class(self) -> Class {
        let (rows, nonzeros, iterations, shift, zeta) = match self {
            Self::S => (1_400, 7, 15, 10.0, 8.597_177_507_864_8),
            Self::W => (7_000, 8, 15, 12.0, 10.362_595_087_124),
            Self::A => (14_000, 11, 15, 20.0, 17.130_235_054_029),
            Self::B => (75_000, 13, 75, 60.0, 22.712_745_482_631),
        };
        Class { rows, nonzeros, iterations, shift, zeta }
    }
}

impl Class {
    /// Returns the rows of a piece.
    #[must_use]
    pub const fn piece(&self, piece: usize) -> Range<usize> {
        self.rows * piece / PIECES..self.rows * (piece + 1) / PIECES
    }

    /// Returns the rows of some pieces.
    #[must_use]
    pub const fn rows_of(&self, pieces: &Range<usize>) -> Range<usize> {
        self.rows * pieces.start / PIECES..self.rows * pieces.end / PIECES
    }

    /// Returns the pieces of node `rank` of `nodes`.
    #[must_use]
    pub const fn pieces_of(rank: u32, nodes: u32) -> Range<usize> {
        part(PIECES, rank, nodes)
    }

    /// Returns millions of floating-point operations per second, as the benchmark counts them.
    #[must_use]
    pub fn mflops(&self, iterations: u32, seconds: f64) -> f64 {
        let row = (self.nonzeros * (self.nonzeros + 1)) as f64;
        let flops = 3.0 + row + f64::from(STEPS) * (5.0 + row) + 3.0;
        2.0 * f64::from(iterations) * self.rows as f64 * flops / seconds / 1e6
    }
}
