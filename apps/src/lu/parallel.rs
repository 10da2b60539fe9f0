//! Parallel program over shared memory. Each node updates its own blocks of the matrix. Blocks that
//! other nodes read are copied into a second array, to which these nodes subscribe. The owner
//! notifies them, and the copies come with the notification. So no step has a barrier.

use std::time::Instant;

use oikaze::{Error, Job, Result};
use oikaze_apps::{ArrayOptions, HomeChoice, Progress, Touched, homes};
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
    /// Copies of each owner for other nodes: its diagonal block, its part of the row, and its part
    /// of the column, of its last step.
    ///
    /// An owner writes them again in the next step whose row or column it owns. By then each reader
    /// has owned the row, or the column, of a step in between. It has notified this owner of that
    /// after it had read the copies.
    copies: Touched<f64>,
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
    let matrix_homes = homes::<f64>(layout.ends());
    let array = Touched::new(job, "matrix", layout.len(), matrix_homes, options.arrays)?;
    let copies_homes = homes::<f64>(layout.copies_ends());
    // Nobody has written them at the first barrier, and there is no other one in time.
    let declared = ArrayOptions { homes: HomeChoice::Declared, ..options.arrays };
    let copies = Touched::new(job, "copies", layout.copies_len(), copies_homes, declared)?;
    let me = job.rank() as usize;
    let mut factors = Factors { matrix, layout, array, copies, me, seconds: 0.0 };
    factors.fill()?;
    factors.subscribe(job.size() as usize)?;
    job.barrier()?;
    let started = Instant::now();
    for k in 0..factors.layout.blocks() {
        factors.diagonal(job, k)?;
        factors.perimeter(job, k)?;
        factors.interior(job, k)?;
        progress.step();
    }
    job.barrier()?; // now every node sees all factors
    factors.seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Ok(factors)
}

impl Factors {
    /// Fills this node's blocks of the matrix.
    fn fill(&self) -> Result<()> {
        for i in self.layout.rows(self.me, 0) {
            let mut row = self.array.write(self.layout.row(i, self.me, 0))?;
            for (j, block) in self.layout.columns(self.me, 0).zip(blocks_mut(&mut row)) {
                self.matrix.fill(i, j, block);
            }
        }
        Ok(())
    }

    /// Subscribes to the copies that this node reads. Their places are used again after as many
    /// steps as there are nodes, or earlier.
    fn subscribe(&self, nodes: usize) -> Result<()> {
        let layout = &self.layout;
        for k in 0..layout.blocks().min(nodes) {
            let diagonal = Some(layout.diagonal_copy(k)).filter(|_| self.reads_diagonal(k));
            let row_and_column = [layout.row_copy(k, self.me), layout.column_copy(k, self.me)];
            for copy in row_and_column.into_iter().chain(diagonal) {
                self.copies.array.subscribe(copy)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if this node reads diagonal block `k`, which another node owns.
    fn reads_diagonal(&self, k: usize) -> bool {
        let owner = self.layout.owner(k, k) as u32;
        self.layout.readers_of_diagonal(self.me).contains(&owner)
    }

    /// Factors the diagonal block, on its owner, and hands it to its readers.
    fn diagonal(&self, job: &Job, k: usize) -> Result<()> {
        let owner = self.layout.owner(k, k);
        if owner == self.me {
            let mut diagonal = self.array.write(self.layout.values(k, k))?;
            lu::factor(diagonal.first_chunk_mut().ok_or_else(too_short)?);
            self.copies.write(self.layout.diagonal_copy(k))?.copy_from_slice(&diagonal);
            drop(diagonal);
            notify(job, &self.layout.readers_of_diagonal(self.me))?;
        } else if self.reads_diagonal(k) {
            job.wait_notify(owner as u32)?;
        }
        Ok(())
    }

    /// Updates this node's blocks in the step's row to the right of the diagonal block and in its
    /// column below, and hands them to their readers.
    fn perimeter(&self, job: &Job, k: usize) -> Result<()> {
        let in_column = self.layout.owner_of_column(k, self.me) == self.me;
        let in_row = self.layout.owner_of_row(k, self.me) == self.me;
        if !in_column && !in_row {
            return Ok(());
        }
        let diagonal: Block =
            *self.copies.read(self.layout.diagonal_copy(k))?.first_chunk().ok_or_else(too_short)?;
        // The row is handed over before the column is computed, so that it travels meanwhile.
        let copy = self.layout.row_copy(k, self.me);
        if in_row && !copy.is_empty() {
            let mut row = self.array.write(self.layout.row(k, self.me, k + 1))?;
            for right in blocks_mut(&mut row) {
                lu::eliminate(right, &diagonal);
            }
            self.copies.write(copy)?.copy_from_slice(&row);
            drop(row);
            notify(job, &self.layout.readers_of_rows(self.me))?;
        }
        let copy = self.layout.column_copy(k, self.me);
        if in_column && !copy.is_empty() {
            let mut column = self.copies.write(copy)?;
            for (i, copy) in self.layout.rows(self.me, k + 1).zip(blocks_mut(&mut column)) {
                let mut below = self.array.write(self.layout.values(i, k))?;
                let below = below.first_chunk_mut().ok_or_else(too_short)?;
                lu::divide(below, &diagonal);
                *copy = *below;
            }
            drop(column);
            notify(job, &self.layout.readers_of_columns(self.me))?;
        }
        Ok(())
    }

    /// Updates this node's blocks below and to the right of the step's row and column.
    fn interior(&self, job: &Job, k: usize) -> Result<()> {
        let above = self.layout.row_copy(k, self.me);
        let left = self.layout.column_copy(k, self.me);
        let wait =
            |owner: usize| if owner == self.me { Ok(()) } else { job.wait_notify(owner as u32) };
        if !above.is_empty() {
            wait(self.layout.owner_of_row(k, self.me))?;
        }
        if !left.is_empty() {
            wait(self.layout.owner_of_column(k, self.me))?;
        }
        if above.is_empty() || left.is_empty() {
            return Ok(());
        }
        let (above, lefts) = (self.copies.read(above)?, self.copies.read(left)?);
        for (i, left) in self.layout.rows(self.me, k + 1).zip(blocks(&lefts)) {
            let mut row = self.array.write(self.layout.row(i, self.me, k + 1))?;
            for (block, above) in blocks_mut(&mut row).zip(blocks(&above)) {
                lu::update(block, left, above);
            }
        }
        Ok(())
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

fn notify(job: &Job, readers: &[u32]) -> Result<()> {
    readers.iter().try_for_each(|reader| job.notify(*reader))
}

fn too_short() -> Error {
    Error::invalid("a block of the matrix", "the layout gives it too few values (a defect of lu)")
}
