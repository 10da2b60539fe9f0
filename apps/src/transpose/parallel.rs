//! Parallel program over shared memory. Each node writes its own rows, and reads a stripe of
//! columns of every node.

use std::time::Instant;

use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress, Touched, homes};
use oikaze_kernels::transpose::{VALUES, transpose};

use crate::layout::Layout;
use crate::serial::{fill, fingerprint};
use crate::{Options, Outcome};

/// A matrix that is still in shared memory.
pub struct Solution {
    layout: Layout,
    nodes: u32,
    matrix: Touched<f64>,
    seconds: f64,
}

impl Solution {
    /// Returns the result. With `print`, this node also reads the whole matrix from all nodes and
    /// takes its fingerprint.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self, print: bool) -> Result<Outcome> {
        let mut hash = Fingerprint::new();
        for rank in (0..self.nodes).filter(|_| print) {
            let values = self.matrix.array.read(self.layout.values(rank))?;
            fingerprint(&mut hash, values.as_chunks().0, self.layout.rows(rank).len());
        }
        Ok(Outcome { hash: print.then(|| hash.value()), seconds: self.seconds })
    }
}

/// Transposes with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn solve(job: &Job, options: &Options, mut progress: Progress) -> Result<Solution> {
    let (size, nodes, arrays) = (options.size, job.size(), options.arrays);
    let layout = Layout::new(size, nodes);
    let ends = || (0..nodes).map(|rank| layout.values(rank).end);
    let mut old = Touched::new(job, "matrix0", layout.len(), homes::<f64>(ends()), arrays)?;
    let mut new = Touched::new(job, "matrix1", layout.len(), homes::<f64>(ends()), arrays)?;
    {
        let mut values = old.write(layout.values(job.rank()))?;
        let tiles = values.as_chunks_mut::<VALUES>().0;
        for ((row, column), tile) in layout.tiles(job.rank()).zip(tiles) {
            fill(size, row, column, tile);
        }
    }
    // Touched once, as the serial program does, so that the first step has no page faults here.
    new.write(layout.values(job.rank()))?.fill(0.0);
    job.barrier()?;
    let started = Instant::now();
    for _ in 0..options.iterations {
        step(job, layout, &old, &new)?;
        job.barrier()?; // now every node sees all of `new`, and no node reads `old` any more
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Ok(Solution { layout, nodes, matrix: old, seconds })
}

/// Stores this node's rows of the transposed matrix.
fn step(job: &Job, layout: Layout, old: &Touched<f64>, new: &Touched<f64>) -> Result<()> {
    let (me, nodes) = (job.rank(), job.size());
    let mine = layout.rows(me);
    if mine.is_empty() {
        return Ok(()); // more nodes than rows of tiles
    }
    let mut new = new.write(layout.values(me))?;
    let new = new.as_chunks_mut::<VALUES>().0;
    // Every node begins with its own tiles and goes on with those of the next node, so that the
    // nodes do not all ask the same one.
    for rank in (me..nodes).chain(0..me) {
        let theirs = layout.rows(rank);
        let old = old.read(layout.stripe(rank, &mine))?;
        let mut tiles = old.as_chunks::<VALUES>().0.iter();
        for row in 0..mine.len() {
            for (column, tile) in theirs.clone().zip(&mut tiles) {
                transpose(tile, &mut new[column * mine.len() + row]);
            }
        }
    }
    Ok(())
}
