//! Parallel program over shared memory. Each node computes its rows and reads the adjacent rows
//! with plain loads.

use std::ops::Range;
use std::time::Instant;

use oikaze::collective::operator::Sum;
use oikaze::shared::ReadGuard;
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, Progress, StencilShare, Touched, homes, part};
use oikaze_kernels::heat::step_row;

use crate::grid::Grid;
use crate::{Options, Outcome};

/// A field that is still in shared memory.
pub struct Solution {
    /// Extent of the plate.
    pub grid: Grid,
    field: Touched<f64>,
    residual: f64,
    seconds: f64,
}

impl Solution {
    /// Returns a row of the field, with its padding.
    ///
    /// # Errors
    /// A node is lost.
    pub fn row(&self, i: usize) -> Result<ReadGuard<'_, f64>> {
        self.field.array.read(self.grid.rows(&(i..i + 1)))
    }

    /// Returns the result of the computation. With `fingerprint`, this node also reads the whole
    /// field from all nodes and takes its fingerprint.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self, fingerprint: bool) -> Result<Outcome> {
        let mut print = Fingerprint::new();
        for i in (0..self.grid.size).filter(|_| fingerprint) {
            let row = self.row(i)?;
            print.f64s(&row[..self.grid.size]);
        }
        let hash = fingerprint.then(|| print.value());
        Ok(Outcome { residual: self.residual, hash, seconds: self.seconds })
    }
}

/// Computes the time steps with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn solve(job: &Job, options: &Options, progress: &mut Progress) -> Result<Solution> {
    let grid = options.grid();
    let (nodes, arrays) = (job.size(), options.arrays);
    let share = StencilShare::new(grid.size, job.rank(), nodes);
    let len = grid.size * grid.stride();
    let ends = || (0..nodes).map(|rank| grid.rows(&part(grid.size, rank, nodes)).end);
    let mut old = Touched::new(job, "plate0", len, homes::<f64>(ends()), arrays)?;
    let mut new = Touched::new(job, "plate1", len, homes::<f64>(ends()), arrays)?;
    for field in [&old, &new] {
        let mut rows = field.write(grid.rows(&share.mine))?;
        for (i, row) in share.mine.clone().zip(rows.chunks_exact_mut(grid.stride())) {
            grid.fill_row(i, row);
        }
    }
    job.barrier()?;
    let mut residual = 0.0;
    let started = Instant::now();
    for _ in 0..options.iterations {
        // The borders travel while this node computes the other rows.
        let parts = share.borders().chain([share.interior()]);
        let changes = parts.map(|rows| step(grid, rows, &old, &new)).sum::<Result<f64>>()?;
        // The reduction is also a barrier: now every node sees all rows of `new`, and no node reads
        // `old` any more.
        residual = job.barrier_reduce(changes, Sum)?;
        std::mem::swap(&mut old, &mut new);
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(Solution { grid, field: old, residual, seconds })
}

/// Computes these rows. Returns their sum of squared changes.
fn step(grid: Grid, rows: Range<usize>, old: &Touched<f64>, new: &Touched<f64>) -> Result<f64> {
    if rows.is_empty() {
        return Ok(0.0);
    }
    let old = old.read(grid.rows(&(rows.start - 1..rows.end + 1)))?;
    let mut new = new.write(grid.rows(&rows))?;
    let row = |i: usize| &old[i * grid.stride()..][..grid.size];
    let news = new.chunks_exact_mut(grid.stride()).map(|new| &mut new[..grid.size]);
    Ok(news.enumerate().map(|(i, new)| step_row(row(i), row(i + 1), row(i + 2), new)).sum())
}
