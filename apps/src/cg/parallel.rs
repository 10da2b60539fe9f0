//! Parallel program. Each node has some rows of the matrix and of all vectors in private memory.
//! Only the vector that is multiplied with the matrix is in shared memory: every node reads all of
//! it, and writes its own part.

use std::ops::Range;
use std::time::Instant;

use oikaze::collective::operator::Sum;
use oikaze::{Job, Result};
use oikaze_apps::{PAGE, Progress, Touched, homes};
use oikaze_kernels::cg::{add_multiple, multiply_and_add};

use crate::class::{Class, STEPS};
use crate::matrix::Rows;
use crate::pieces::{PieceSums, dot_pieces};
use crate::{Options, Outcome};

/// A node's part of the problem.
struct Part<'a> {
    job: &'a Job,
    class: Class,
    pieces: Range<usize>,
    matrix: Rows,
    /// Vector that is multiplied with the matrix. Each node's part begins at a page, so that no
    /// page has two writers.
    shared: Touched<f64>,
    /// Place of this node's part in `shared`.
    mine: Range<usize>,
}

/// Estimates the eigenvalue with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn solve(job: &Job, options: &Options, mut progress: Progress) -> Result<Outcome> {
    let part = Part::new(job, options)?;
    let own_rows = part.mine.len();
    let mut x = vec![1.0; own_rows];
    let (mut z, mut p, mut r, mut q) = (x.clone(), x.clone(), x.clone(), x.clone());
    let (mut zeta, mut residual) = (0.0, 0.0);
    let mut started = Instant::now();
    for iteration in 0..=options.iterations() {
        z.fill(0.0);
        r.copy_from_slice(&x);
        p.copy_from_slice(&x);
        let mut rho = part.dot(&r, &r)?;
        for _ in 0..STEPS {
            part.multiply(&p, &mut q)?;
            // This sum is also a barrier: after it no node reads the shared vector any more.
            let alpha = rho / part.dot(&p, &q)?;
            add_multiple(&mut z, alpha, &p);
            add_multiple(&mut r, -alpha, &q);
            let before = rho;
            rho = part.dot(&r, &r)?;
            multiply_and_add(&mut p, rho / before, &r);
        }
        part.multiply(&z, &mut q)?;
        add_multiple(&mut q, -1.0, &x);
        residual = part.dot(&q, &q)?.sqrt();
        zeta = part.class.shift + 1.0 / part.dot(&x, &z)?;
        let norm = 1.0 / part.dot(&z, &z)?.sqrt();
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
    Ok(Outcome { zeta, residual, seconds })
}

impl<'a> Part<'a> {
    /// Computes this node's rows of the matrix and makes the shared vector. Collective.
    fn new(job: &'a Job, options: &Options) -> Result<Self> {
        let (class, nodes) = (options.class(), job.size());
        let rows_of = |rank| class.rows_of(&Class::pieces_of(rank, nodes));
        // The first row of each node and its place in the shared vector.
        let mut places = Vec::new();
        let mut end = 0;
        for rank in 0..nodes {
            places.push((rows_of(rank).start, end));
            end += rows_of(rank).len().next_multiple_of(PAGE / size_of::<f64>());
        }
        let ends = places.iter().skip(1).map(|&(_, place)| place).chain([end]);
        let shared = Touched::new(job, "vector", end, homes::<f64>(ends), options.arrays)?;
        let rows = rows_of(job.rank());
        let start = places.get(job.rank() as usize).map_or(0, |&(_, place)| place);
        let mut matrix = Rows::new(&class, &rows);
        matrix.move_columns(|row| {
            // Nodes without rows have the first row of the next node.
            let owner = places.partition_point(|&(first, _)| first <= row) - 1;
            places[owner].1 + row - places[owner].0
        });
        let pieces = Class::pieces_of(job.rank(), nodes);
        Ok(Self { job, class, pieces, matrix, shared, mine: start..start + rows.len() })
    }

    /// Computes this node's rows of the product of the matrix with a vector, of which `own` is this
    /// node's part.
    fn multiply(&self, own: &[f64], product: &mut [f64]) -> Result<()> {
        if !own.is_empty() {
            self.shared.write(self.mine.clone())?.copy_from_slice(own);
        }
        self.job.barrier()?;
        self.matrix.multiply(&self.shared.read(0..self.shared.array.len())?, product);
        Ok(())
    }

    /// Returns the scalar product of two vectors, of which this node passes its own parts. The
    /// result has the same bits on any number of nodes.
    fn dot(&self, one: &[f64], other: &[f64]) -> Result<f64> {
        let sums: PieceSums = dot_pieces(&self.class, &self.pieces, one, other);
        // Other nodes pass zero for these pieces, so this addition is exact.
        Ok(self.job.barrier_reduce_all(&sums, Sum)?.iter().sum())
    }
}
