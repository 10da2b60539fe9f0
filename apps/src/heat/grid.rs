//! Plate: its extent, and its starting field.

use std::ops::Range;

use clap::ValueEnum;
use oikaze_apps::{PAGE, uniform};

/// Minimum number of points along one side: two of the border and one inside.
pub const SIZE_MIN: usize = 3;
/// Maximum number of points along one side, for a field of 8 GiB.
pub const SIZE_MAX: usize = 32_768;

/// Floating-point operations for each inner point, with the two of the sum of squares.
const FLOPS_PER_POINT: f64 = 9.0;
/// Seed of the starting field.
const SEED: u64 = 1;

/// Starting field of the plate. The border keeps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Start {
    /// Random temperatures from 0 to 1.
    Random,
    /// A hot disc in the middle of a cold plate. Its diameter is half the plate.
    Disc,
}

/// A square plate of `size` × `size` points, stored row by row.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Number of points along one side, the fixed border included.
    pub size: usize,
    /// Temperatures at the start.
    pub start: Start,
}

impl Grid {
    /// Returns the number of values from one row to the next. A row begins at a page, so that no
    /// page has two writers.
    #[must_use]
    pub const fn stride(self) -> usize {
        self.size.next_multiple_of(PAGE / size_of::<f64>())
    }

    /// Returns the places of some rows, with the padding of each row.
    #[must_use]
    pub const fn rows(self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.stride()..rows.end * self.stride()
    }

    /// Fills row `i` with the starting field.
    pub fn fill_row(self, i: usize, row: &mut [f64]) {
        // Twice the distance from the middle, which may lie between two points.
        let from_middle = |index: usize| (2 * index).abs_diff(self.size - 1);
        for (j, value) in row[..self.size].iter_mut().enumerate() {
            *value = match self.start {
                Start::Random => uniform(SEED, (i * self.size + j) as u64),
                Start::Disc => {
                    let [across, down] = [i, j].map(|index| from_middle(index).pow(2));
                    f64::from(u8::from(4 * (across + down) <= self.size * self.size))
                }
            };
        }
    }

    /// Returns millions of floating-point operations per second.
    #[must_use]
    pub fn mflops(self, iterations: u32, seconds: f64) -> f64 {
        let inner = (self.size - 2) as f64;
        FLOPS_PER_POINT * inner * inner * f64::from(iterations) / seconds / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disc_has_a_quarter_of_pi_of_half_the_plate() {
        let grid = Grid { size: 1000, start: Start::Disc };
        let mut row = vec![0.0; grid.stride()];
        let hot: f64 = (0..grid.size)
            .map(|i| {
                grid.fill_row(i, &mut row);
                row.iter().sum::<f64>()
            })
            .sum();
        let expected = std::f64::consts::PI * 250.0 * 250.0;
        assert!((hot - expected).abs() < 500.0, "{hot} points, expected {expected}");
    }
}
