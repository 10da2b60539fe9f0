//! Parallel program over shared memory. Each node updates its own blocks and reads the step's row
//! and column from other nodes.

use std::time::Instant;

use oikaze::shared::{Homes, ReadGuard, WriteGuard};
use oikaze::{Error, Job, Result};
use oikaze_apps::{Progress, Touched};

use crate::Options;
use crate::block::{self, Block};
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
    let homes = Homes::Explicit(layout.homes());
    let array = Touched::new(job, "matrix", layout.len(), homes, options.run.touch)?;
    let mut factors = Factors { matrix, layout, array, me: job.rank() as usize, seconds: 0.0 };
    let blocks = factors.layout.blocks();
    for (i, j) in factors.mine(0..blocks, 0..blocks) {
        matrix.fill(i, j, &mut factors.write(i, j)?);
    }
    job.barrier()?;
    let started = Instant::now();
    for k in 0..blocks {
        // No node reads the diagonal block before the first barrier, or the step's row and column
        // before the second one.
        if factors.is_mine(k, k) {
            block::factor(block_of(&mut factors.write(k, k)?)?);
        }
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
    /// Updates this node's blocks in the step's column below the diagonal block and in its row to
    /// the right.
    fn perimeter(&self, k: usize) -> Result<()> {
        let rest = k + 1..self.layout.blocks();
        let column: Vec<_> = self.mine(rest.clone(), k..k + 1).collect();
        let row: Vec<_> = self.mine(k..k + 1, rest).collect();
        if column.is_empty() && row.is_empty() {
            return Ok(());
        }
        let diagonal = self.get(k, k)?;
        for (i, j) in column {
            block::divide(block_of(&mut self.write(i, j)?)?, &diagonal);
        }
        for (i, j) in row {
            block::eliminate(block_of(&mut self.write(i, j)?)?, &diagonal);
        }
        Ok(())
    }

    /// Updates this node's blocks below and to the right of the step's row and column.
    fn interior(&self, k: usize) -> Result<()> {
        let rest = k + 1..self.layout.blocks();
        let columns: Vec<usize> =
            rest.clone().filter(|&j| rest.clone().any(|i| self.is_mine(i, j))).collect();
        let above = columns.iter().map(|&j| self.get(k, j)).collect::<Result<Vec<_>>>()?;
        for i in rest {
            let mut row =
                columns.iter().zip(&above).filter(|&(&j, _)| self.is_mine(i, j)).peekable();
            if row.peek().is_none() {
                continue;
            }
            let left = self.get(i, k)?;
            for (&j, above) in row {
                block::update(block_of(&mut self.write(i, j)?)?, &left, above);
            }
        }
        Ok(())
    }

    fn is_mine(&self, i: usize, j: usize) -> bool {
        self.layout.owner(i, j) == self.me
    }

    fn mine(
        &self,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        rows.flat_map(move |i| columns.clone().map(move |j| (i, j)))
            .filter(|&(i, j)| self.is_mine(i, j))
    }

    fn read(&self, i: usize, j: usize) -> Result<ReadGuard<'_, f64>> {
        self.array.read(self.layout.values(i, j))
    }

    fn write(&self, i: usize, j: usize) -> Result<WriteGuard<'_, f64>> {
        self.array.write(self.layout.values(i, j))
    }

    /// Returns a copy of a block.
    fn get(&self, i: usize, j: usize) -> Result<Block> {
        self.read(i, j)?.first_chunk().copied().ok_or_else(too_short)
    }

    /// Tests the factors, which this node reads from all nodes.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self) -> Result<Outcome> {
        let error = self.matrix.error(|i, j| self.get(i, j))?;
        let hash = fingerprint(self.layout.blocks(), |i, j| self.get(i, j))?;
        Ok(Outcome { error, hash, seconds: self.seconds })
    }
}

/// Returns the block that a guard holds.
fn block_of(values: &mut [f64]) -> Result<&mut Block> {
    values.first_chunk_mut().ok_or_else(too_short)
}

fn too_short() -> Error {
    Error::invalid("a block of the matrix", "the layout gives it too few values (a defect of lu)")
}
