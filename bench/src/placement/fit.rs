//! Straight lines through measured times, as in table 5 of paper 003.

use std::fmt;

/// Line y = `slope` · x + `base`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// µs for each byte.
    pub slope: f64,
    /// µs at 0 bytes.
    pub base: f64,
}

impl Fit {
    /// Returns the line with the least squares, or `None` for fewer than two different `x`.
    pub fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let product: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = (spread > 0.0).then(|| product / spread)?;
        Some(Fit { slope, base: y - slope * x })
    }

    /// Returns the time for `size` bytes, in µs.
    pub fn at(self, size: f64) -> f64 {
        self.slope * size + self.base
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "y = {:.5} x + {:.2}", self.slope, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_line_give_the_line() {
        let then = Fit { slope: 0.016, base: 13.0 };
        let points: Vec<_> = [8.0, 256.0, 4096.0].map(|x| (x, then.at(x))).into();
        let found = Fit::of(&points).expect("a line");
        assert!((found.slope - 0.016).abs() < 1e-12 && (found.base - 13.0).abs() < 1e-9);
        assert_eq!(then.to_string(), "y = 0.01600 x + 13.00");
    }

    #[test]
    fn scatter_is_averaged() {
        let found = Fit::of(&[(0.0, 1.0), (0.0, 3.0), (10.0, 7.0), (10.0, 5.0)]).expect("a line");
        assert!((found.slope - 0.4).abs() < 1e-12 && (found.base - 2.0).abs() < 1e-12);
    }

    #[test]
    fn one_place_gives_no_line() {
        assert_eq!(Fit::of(&[]), None);
        assert_eq!(Fit::of(&[(8.0, 1.0), (8.0, 2.0)]), None);
    }
}
