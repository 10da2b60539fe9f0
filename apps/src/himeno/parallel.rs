//! Parallel program over shared memory. Each node relaxes its planes and reads the adjacent planes
//! with plain loads. Between hosts it waits for the adjacent nodes only, by notifications in place
//! of a barrier.

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use oikaze::collective::operator::Sum;
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress, StencilShare, Touched, homes, part};
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
    let mut share = StencilShare::new(shape.planes, job.rank(), job.size());
    let coefficients = options.coefficients(shape, &share.mine)?;
    let (nodes, arrays) = (job.size(), options.arrays);
    let ends = || (0..nodes).map(|rank| part(shape.planes, rank, nodes).end * shape.plane());
    let mut old = Touched::new(job, "p0", shape.len(), homes::<f32>(ends()), arrays)?;
    let mut new = Touched::new(job, "p1", shape.len(), homes::<f32>(ends()), arrays)?;
    share.choose_barriers(&old.array);
    for field in [&old, &new] {
        let mut planes = field.write(elements(shape, &share.mine))?;
        for (i, plane) in share.mine.clone().zip(planes.chunks_exact_mut(shape.plane())) {
            shape.start(i, plane);
        }
        for plane in share.halo() {
            field.array.subscribe(elements(shape, &plane))?; // comes with each notification
        }
    }
    job.barrier()?;
    let mut sums = vec![0.0; shape.planes];
    let started = Instant::now();
    for _ in 0..options.iterations {
        for planes in share.borders() {
            relax(shape, planes, &coefficients, &old, &new, &mut sums)?;
        }
        share.notify(job)?;
        relax(shape, share.interior(), &coefficients, &old, &new, &mut sums)?;
        share.wait(job)?;
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

/// Relaxes these planes. Stores each plane's sum of squared residuals in `sums`.
fn relax(
    shape: Shape,
    planes: Range<usize>,
    coefficients: &Coefficients,
    old: &Touched<f32>,
    new: &Touched<f32>,
    sums: &mut [f64],
) -> Result<()> {
    if planes.is_empty() {
        return Ok(());
    }
    let old = old.read(elements(shape, &(planes.start - 1..planes.end + 1)))?;
    let mut new = new.write(elements(shape, &planes))?;
    let mut residuals = vec![0.0; residuals_len(shape.columns)];
    let around = old.windows(3 * shape.plane()).step_by(shape.plane());
    for ((i, around), new) in planes.zip(around).zip(new.chunks_exact_mut(shape.plane())) {
        let (above, rest) = around.split_at(shape.plane());
        let (here, below) = rest.split_at(shape.plane());
        sums[i] = coefficients.relax_plane(i, shape, [above, here, below], new, &mut residuals);
    }
    Ok(())
}

/// Returns the elements of some planes.
fn elements(shape: Shape, planes: &Range<usize>) -> Range<usize> {
    planes.start * shape.plane()..planes.end * shape.plane()
}
