//! Serial program without nodes and shared memory. It is the oracle of the parallel program.

use std::time::Instant;

use oikaze_apps::Progress;
use oikaze_kernels::cg::{add_multiple, multiply_and_add};

use crate::Outcome;
use crate::class::{Class, PIECES, STEPS};
use crate::matrix::Rows;
use crate::pieces::dot_pieces;

/// Estimates the eigenvalue on one processor.
#[must_use]
pub fn solve(class: Class, iterations: u32, mut progress: Progress) -> Outcome {
    let matrix = Rows::new(&class, &(0..class.rows));
    let dot = |one: &[f64], other: &[f64]| -> f64 {
        dot_pieces(&class, &(0..PIECES), one, other).iter().sum()
    };
    let mut x = vec![1.0; class.rows];
    let (mut z, mut p, mut r, mut q) = (x.clone(), x.clone(), x.clone(), x.clone());
    let (mut zeta, mut residual) = (0.0, 0.0);
    let mut started = Instant::now();
    for iteration in 0..=iterations {
        z.fill(0.0);
        r.copy_from_slice(&x);
        p.copy_from_slice(&x);
        let mut rho = dot(&r, &r);
        for _ in 0..STEPS {
            matrix.multiply(&p, &mut q);
            let alpha = rho / dot(&p, &q);
            add_multiple(&mut z, alpha, &p);
            add_multiple(&mut r, -alpha, &q);
            let before = rho;
            rho = dot(&r, &r);
            multiply_and_add(&mut p, rho / before, &r);
        }
        matrix.multiply(&z, &mut q);
        add_multiple(&mut q, -1.0, &x);
        residual = dot(&q, &q).sqrt();
        zeta = class.shift + 1.0 / dot(&x, &z);
        let norm = 1.0 / dot(&z, &z).sqrt();
        for (x, z) in x.iter_mut().zip(&z) {
            *x = norm * z;
        }
        if iteration == 0 {
            // The first iteration warms up. The benchmark begins again after it.
            x.fill(1.0);
            started = Instant::now();
        }
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Outcome { zeta, residual, seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Size, TOLERANCE};

    #[test]
    fn zeta_of_class_s_is_the_published_one() {
        let class = Size::S.class();
        let outcome = solve(class, class.iterations, Progress::new(false, 0));
        assert!((outcome.zeta - class.zeta).abs() <= TOLERANCE * class.zeta, "{outcome:?}");
        assert!(outcome.residual < 1e-12, "{outcome:?}");
    }
}
