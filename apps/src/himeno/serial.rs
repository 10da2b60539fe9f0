//! Serial program without nodes and shared memory. It is the oracle of the parallel program.

use std::time::Instant;

use oikaze_apps::{Fingerprint, Progress};
use oikaze_kernels::himeno::residuals_len;

use crate::coefficients::Coefficients;
use crate::problem::Shape;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Sum of squared residuals of the last iteration.
    pub gosa: f64,
    /// Fingerprint of the field, if it was taken.
    pub hash: Option<u64>,
    /// Seconds that the iterations took.
    pub seconds: f64,
}

/// Iterates on one processor.
#[must_use]
pub fn solve(
    shape: Shape,
    iterations: u32,
    coefficients: &Coefficients,
    mut progress: Progress,
) -> Outcome {
    let mut old = vec![0.0; shape.len()];
    for (i, plane) in old.chunks_exact_mut(shape.plane()).enumerate() {
        shape.start(i, plane);
    }
    let mut new = old.clone(); // sets its border, which iterations leave alone
    let (mut gosa, mut residuals) = (0.0, vec![0.0; residuals_len(shape.columns)]);
    let started = Instant::now();
    for _ in 0..iterations {
        gosa = 0.0;
        for i in 1..shape.planes - 1 {
            let plane = |i: usize| i * shape.plane()..(i + 1) * shape.plane();
            let around = [&old[plane(i - 1)], &old[plane(i)], &old[plane(i + 1)]];
            gosa += coefficients.relax_plane(i, shape, around, &mut new[plane(i)], &mut residuals);
        }
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    let mut hash = Fingerprint::new();
    hash.f32s(&old);
    Outcome { gosa, hash: Some(hash.value()), seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Size, known};

    #[test]
    fn known_results() {
        for (size, iterations) in [(Size::Xs, 3), (Size::Xs, 100), (Size::S, 3)] {
            let known = known(size, iterations).expect("in the table");
            let outcome =
                solve(size.shape(), iterations, &Coefficients::scalars(), Progress::new(false, 0));
            assert_eq!(outcome.hash, Some(known.hash), "{} / {iterations}", size.name());
            assert_eq!(format!("{:.9e}", outcome.gosa), format!("{:.9e}", known.gosa));
        }
    }
}
