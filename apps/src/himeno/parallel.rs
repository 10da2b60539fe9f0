//! Parallel program over shared memory. Each node relaxes its planes and reads the adjacent planes
//! with plain loads.

use std::error::Error;
use std::time::Instant;

use oikaze::collective::operator::Sum;
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress, Touched, homes};
use oikaze_kernels::himeno::residuals_len;

use crate::Options;
use crate::coefficients::Coefficients;
use crate::problem::Shape;
use crate::serial::Outcome;

/// A solved field that is still in shared memory.
pub struct Solution {
    shape: Shape,
    field: Touched<f32>,
    gosa: f64,
    seconds: f64,
}

impl Solution {
    /// Returns the result of the computation. With `fingerprint`, this node also reads the whole
    /// field from all nodes and takes its fingerprint.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self, fingerprint: bool) -> Result<Outcome> {
        let mut print = Fingerprint::new();
        for i in (0..self.shape.planes).filter(|_| fingerprint) {
            print.f32s(&self.field.array.read(elements(self.shape, &(i..i + 1)))?);
        }
        Ok(Outcome {
            gosa: self.gosa,
            hash: fingerprint.then(|| print.value()),
            seconds: self.seconds,
        })
    }
}

/// Iterates with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn solve(
    job: &Job,
    options: &Options,
    mut progress: Progress,
) -> Result<Solution, Box<dyn Error>> {
    let shape = options.size.shape();
    let mine = shape.planes_of(job.rank(), job.size());
    let coefficients = options.coefficients(shape, &mine)?;
    let (nodes, touch) = (job.size(), options.arrays.touch);
    let ends = || (0..nodes).map(|rank| shape.planes_of(rank, nodes).end * shape.plane());
    let mut old = Touched::new(job, "p0", shape.len(), homes::<f32>(ends()), touch)?;
    let mut new = Touched::new(job, "p1", shape.len(), homes::<f32>(ends()), touch)?;
    for field in [&old, &new] {
        let mut planes = field.write(elements(shape, &mine))?;
        for (i, plane) in mine.clone().zip(planes.chunks_exact_mut(shape.plane())) {
            shape.start(i, plane);
        }
    }
    job.barrier()?;
    let mut sums = vec![0.0; shape.planes];
    let started = Instant::now();
    for _ in 0..options.iterations {
        relax(shape, &mine, &coefficients, &old, &new, &mut sums)?;
        job.barrier()?; // now every node sees all planes, and no node reads `old` any more
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    // Every node gives its planes' sums, and zero for all others, so the addition is exact. The
    // planes are then added in their order. The result has the same bits on any number of nodes.
    let gosa = job.barrier_reduce_all(&sums, Sum)?.iter().sum();
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Ok(Solution { shape, field: old, gosa, seconds })
}

/// Runs one iteration over the inner planes of `mine`. Stores each plane's sum of squared residuals
/// in `sums`.
fn relax(
    shape: Shape,
    mine: &std::ops::Range<usize>,
    coefficients: &Coefficients,
    old: &Touched<f32>,
    new: &Touched<f32>,
    sums: &mut [f64],
) -> Result<()> {
    let inner = mine.start.max(1)..mine.end.min(shape.planes - 1);
    if inner.is_empty() {
        return Ok(()); // more nodes than planes
    }
    let around = inner.start - 1..inner.end + 1;
    let old = old.read(elements(shape, &around))?;
    let plane = |i: usize| elements(shape, &(i - around.start..i - around.start + 1));
    let mut residuals = vec![0.0; residuals_len(shape.columns)];
    for part in borders_first(&inner) {
        let mut new = new.write(elements(shape, &part))?;
        for (i, new) in part.zip(new.chunks_exact_mut(shape.plane())) {
            let three = [&old[plane(i - 1)], &old[plane(i)], &old[plane(i + 1)]];
            sums[i] = coefficients.relax_plane(i, shape, three, new, &mut residuals);
        }
    }
    Ok(())
}

/// Returns the parts of a node's planes in the order in which they are computed. The planes at a
/// border come first. When their guards end, they begin to travel to the nodes that read them,
/// while this node computes the other planes.
fn borders_first(inner: &std::ops::Range<usize>) -> [std::ops::Range<usize>; 3] {
    let (first, last) = ((inner.start + 1).min(inner.end), inner.end.max(inner.start + 2) - 1);
    [inner.start..first, last..inner.end.max(last), first..last.min(inner.end)]
}

/// Returns the elements of some planes.
fn elements(shape: Shape, planes: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    planes.start * shape.plane()..planes.end * shape.plane()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_is_in_one_part() {
        for (inner, parts) in
            [(4..10, [4..5, 9..10, 5..9]), (4..6, [4..5, 5..6, 5..5]), (4..5, [4..5, 5..5, 5..5])]
        {
            assert_eq!(borders_first(&inner), parts);
        }
    }
}
