//! Parallel program over shared memory. Each node relaxes its planes and reads the adjacent planes
//! with plain loads.

use std::error::Error;
use std::time::Instant;

use oikaze::collective::ReduceOp;
use oikaze::shared::{Homes, ReadGuard, SharedArray, WriteGuard};
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress};

use crate::kernel::{Coefficients, relax_plane};
use crate::problem::Shape;
use crate::serial::Outcome;
use crate::{Options, Touch};

/// Bytes of a page, which is the unit of homes.
const PAGE: usize = 4096;

/// A solved field that is still in shared memory.
pub struct Solution {
    shape: Shape,
    field: Field,
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
pub fn solve(job: &Job, options: &Options) -> Result<Solution, Box<dyn Error>> {
    let shape = options.size.shape();
    let mine = shape.planes_of(job.rank(), job.size());
    let coefficients = options.coefficients(shape, &mine)?;
    let homes = Homes::Explicit(page_homes(shape, job.size()));
    let mut old = Field {
        array: job.array_with_homes("p0", shape.len(), homes.clone())?,
        touch: options.touch,
    };
    let mut new =
        Field { array: job.array_with_homes("p1", shape.len(), homes)?, touch: options.touch };
    for field in [&old, &new] {
        let mut planes = field.write(elements(shape, &mine))?;
        for (i, plane) in mine.clone().zip(planes.chunks_exact_mut(shape.plane())) {
            shape.start(i, plane);
        }
    }
    job.barrier()?;
    let mut progress =
        Progress::new(options.progress && job.rank() == 0, options.iterations.into());
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
    let gosa = job.reduce_all(&sums, ReduceOp::Sum)?.iter().sum();
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
    old: &Field,
    new: &Field,
    sums: &mut [f64],
) -> Result<()> {
    let inner = mine.start.max(1)..mine.end.min(shape.planes - 1);
    if inner.is_empty() {
        return Ok(()); // more nodes than planes
    }
    let around = inner.start - 1..inner.end + 1;
    let old = old.read(elements(shape, &around))?;
    let mut new = new.write(elements(shape, &inner))?;
    let plane = |i: usize| elements(shape, &(i - around.start..i - around.start + 1));
    let mut scratch = Vec::new();
    for (i, new) in inner.clone().zip(new.chunks_exact_mut(shape.plane())) {
        let three = [&old[plane(i - 1)], &old[plane(i)], &old[plane(i + 1)]];
        sums[i] = relax_plane(shape, i, coefficients, three, new, &mut scratch);
    }
    Ok(())
}

/// A field in shared memory, and the way in which this program touches it.
struct Field {
    array: SharedArray<f32>,
    touch: Touch,
}

impl Field {
    fn read(&self, elements: std::ops::Range<usize>) -> Result<ReadGuard<'_, f32>> {
        match self.touch {
            Touch::Ahead => self.array.read(elements),
            Touch::Lazily => self.array.read_lazily(elements),
        }
    }

    fn write(&self, elements: std::ops::Range<usize>) -> Result<WriteGuard<'_, f32>> {
        match self.touch {
            Touch::Ahead => self.array.write(elements),
            Touch::Lazily => self.array.write_lazily(elements),
        }
    }
}

/// Returns the elements of some planes.
fn elements(shape: Shape, planes: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    planes.start * shape.plane()..planes.end * shape.plane()
}

/// Returns the home of each page: the node that computes the page's plane, so that only planes at a
/// border travel.
fn page_homes(shape: Shape, nodes: u32) -> Vec<u32> {
    let pages = (shape.len() * size_of::<f32>()).div_ceil(PAGE);
    let mut homes = Vec::with_capacity(pages);
    for rank in 0..nodes {
        let end = shape.planes_of(rank, nodes).end * shape.plane() * size_of::<f32>();
        homes.resize(end.div_ceil(PAGE).max(homes.len()), rank);
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Size;

    #[test]
    fn a_page_is_at_home_where_its_plane_is_computed() {
        for size in [Size::Xs, Size::S, Size::M] {
            let shape = size.shape();
            for nodes in [1, 2, 3, 4, 7, 8, 40] {
                let homes = page_homes(shape, nodes);
                assert_eq!(homes.len() * PAGE, shape.len() * 4);
                for (page, home) in homes.into_iter().enumerate() {
                    let plane = page * PAGE / 4 / shape.plane();
                    assert!(
                        shape.planes_of(home, nodes).contains(&plane),
                        "{} on {nodes}: page {page}",
                        size.name()
                    );
                }
            }
        }
    }
}
