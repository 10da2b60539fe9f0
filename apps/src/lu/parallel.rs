//! Parallel program over shared memory. Each node updates its own blocks and reads the step's row
//! and column from other nodes.

use std::ops::Range;
use std::time::Instant;

use oikaze::shared::{ReadGuard, WriteGuard};
use oikaze::{Error, Job, Result};
use oikaze_apps::{Progress, Touched, homes};
use oikaze_kernels::lu::{self, Block, VALUES};

use crate::Options;
use crate::layout::Layout;
use crate::matrix::{Matrix, fingerprint};
use crate::serial::Outcome;

/// A matrix of blocks in shared memory, and this node's part in it.
pub struct Factors {
    matrix: Matrix,
    layout: Layout,
    array: Touched<f64>,
    me: usize,
    /// Seconds that the factorization took.
    seconds: f64,
}

/// Factors the matrix with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn factor(job: &Job, options: &Options, mut progress: Progress) -> Result<Factors> {
    let matrix = options.matrix();
    let layout = Layout::new(matrix.n, job.size());
    let homes = homes::<f64>(layout.ends());
    let array = Touched::new(job, "matrix", layout.len(), homes, options.arrays.touch)?;
    let mut factors = Factors { matrix, layout, array, me: job.rank() as usize, seconds: 0.0 };
    factors.fill()?;
    job.barrier()?;
    let started = Instant::now();
    for k in 0..factors.layout.blocks() {
        // No node reads the diagonal block before the first barrier, or the step's row and column
        // before the second one.
        factors.diagonal(k)?;
        job.barrier()?;
        factors.perimeter(k)?;
        job.barrier()?;
        factors.interior(k)?;
        progress.step();
    }
    factors.seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Ok(factors)
}

impl Factors {
    /// Computes this node's blocks of the matrix.
    fn fill(&self) -> Result<()> {
        for i in self.layout.rows(self.me, 0) {
            let mut row = self.write(self.layout.row(i, self.me, 0))?;
            for (j, block) in self.layout.columns(self.me, 0).zip(blocks_mut(&mut row)) {
                self.matrix.fill(i, j, block);
            }
        }
        Ok(())
    }

    /// Factors the diagonal block, on its owner, and pushes it to its readers. The guard has the
    /// whole page, which no other node reads meanwhile: the other nodes read row and column k − 1.
    fn diagonal(&self, k: usize) -> Result<()> {
        if self.layout.owner(k, k) != self.me {
            return Ok(());
        }
        let (page, block) = (self.layout.pages(k, k), self.layout.values(k, k));
        let mut values = self.write(page.clone())?;
        let diagonal =
            values[block.start - page.start..].first_chunk_mut().ok_or_else(too_short)?;
        lu::factor(diagonal);
        self.array.push(values, &self.layout.readers_of_diagonal(self.me))
    }

    /// Updates this node's blocks in the step's column below the diagonal block and in its row to
    /// the right. Pushes the row to its readers.
    fn perimeter(&self, k: usize) -> Result<()> {
        let in_column = self.layout.columns(self.me, k).next() == Some(k);
        let in_row = self.layout.rows(self.me, k).next() == Some(k);
        if !in_column && !in_row {
            return Ok(());
        }
        let diagonal: Block = *self.block(k, k)?.first_chunk().ok_or_else(too_short)?;
        // The row first: other nodes wait for it. It travels while this node computes its column.
        let row = self.layout.row(k, self.me, k + 1);
        if in_row && !row.is_empty() {
            let mut row = self.write(row)?;
            for right in blocks_mut(&mut row) {
                lu::eliminate(right, &diagonal);
            }
            self.array.push(row, &self.layout.readers_of_rows(self.me))?;
        }
        for i in self.layout.rows(self.me, k + 1).filter(|_| in_column) {
            let mut below = self.write(self.layout.values(i, k))?;
            lu::divide(below.first_chunk_mut().ok_or_else(too_short)?, &diagonal);
        }
        Ok(())
    }

    /// Updates this node's blocks below and to the right of the step's row and column.
    fn interior(&self, k: usize) -> Result<()> {
        let above = self.layout.row(k, self.me, k + 1);
        if above.is_empty() {
            return Ok(());
        }
        let rows = || self.layout.rows(self.me, k + 1);
        let column: Vec<_> = rows().map(|i| self.layout.values(i, k)).collect();
        let lefts = self.array.read_many(&column)?;
        if lefts.is_empty() {
            return Ok(());
        }
        let above = self.read(above)?;
        for (i, left) in rows().zip(&lefts) {
            let left = left.first_chunk().ok_or_else(too_short)?;
            let mut row = self.write(self.layout.row(i, self.me, k + 1))?;
            for (block, above) in blocks_mut(&mut row).zip(blocks(&above)) {
                lu::update(block, left, above);
            }
        }
        Ok(())
    }

    fn read(&self, values: Range<usize>) -> Result<ReadGuard<'_, f64>> {
        self.array.read(values)
    }

    fn write(&self, values: Range<usize>) -> Result<WriteGuard<'_, f64>> {
        self.array.write(values)
    }

    /// Returns a guard of block (i, j).
    fn block(&self, i: usize, j: usize) -> Result<ReadGuard<'_, f64>> {
        self.read(self.layout.values(i, j))
    }

    /// Tests the factors, which this node reads from all nodes.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self) -> Result<Outcome> {
        // Fetched in large pieces, because the tests read one block after another.
        drop(self.array.array.read(0..self.layout.len())?);
        let copy = |i, j| -> Result<Block> {
            let values = self.array.array.read(self.layout.values(i, j))?;
            values.first_chunk().copied().ok_or_else(too_short)
        };
        let error = self.matrix.error(copy)?;
        let hash = fingerprint(self.layout.blocks(), copy)?;
        Ok(Outcome { error, hash, seconds: self.seconds })
    }
}

/// Returns the blocks that a guard holds.
fn blocks(values: &[f64]) -> impl Iterator<Item = &Block> {
    values.as_chunks::<VALUES>().0.iter()
}

/// Returns the blocks that a guard holds, to be written.
fn blocks_mut(values: &mut [f64]) -> impl Iterator<Item = &mut Block> {
    values.as_chunks_mut::<VALUES>().0.iter_mut()
}

fn too_short() -> Error {
    Error::invalid("a block of the matrix", "the layout gives it too few values (a defect of lu)")
}
