//! Parallel program over shared memory.

use std::ops::Range;
use std::time::Instant;

use oikaze::shared::builder::Homes;
use oikaze::{Job, Result};
use oikaze_apps::{Fingerprint, PAGE, Progress, Touched};
use oikaze_kernels::histogram::fullest;

use crate::keys::Keys;
use crate::{Options, Outcome, Table};

/// Bins in one page.
const BINS_PER_PAGE: usize = PAGE / size_of::<u64>();

/// A histogram that is still in shared memory.
pub struct Solution {
    total: Touched<u64>,
    peaks: u64,
    seconds: f64,
}

impl Solution {
    /// Reads the histogram from all nodes.
    ///
    /// # Errors
    /// A node is lost.
    pub fn outcome(&self) -> Result<Outcome> {
        let mut hash = Fingerprint::new();
        hash.u64s(&self.total.array.read(0..self.total.array.len())?);
        Ok(Outcome { hash: hash.value(), peaks: self.peaks, seconds: self.seconds })
    }
}

/// Counters of a round, where `Options` want them.
enum Counters {
    /// One table after the other. Each begins at a page of its node.
    Separate(Touched<u64>),
    /// Counters of all nodes for bin 0, then those for bin 1, and so on.
    Interleaved(Touched<u64>),
    /// Private counters, which are added under locks.
    Private(Vec<u64>),
}

/// A node's part of the work.
struct Part<'a> {
    job: &'a Job,
    keys: Keys,
    /// Keys that this node counts in each round.
    mine: Range<u64>,
    total: Touched<u64>,
}

/// Counts with all nodes of the job.
///
/// # Errors
/// A node is lost, or there is no memory.
pub fn solve(job: &Job, options: &Options, mut progress: Progress) -> Result<Solution> {
    let (keys, arrays) = (options.keys(), options.arrays);
    let (rank, nodes) = (u64::from(job.rank()), u64::from(job.size()));
    let share = |rank| (u128::from(keys.count) * u128::from(rank) / u128::from(nodes)) as u64;
    let total = Touched::new(job, "total", keys.bins, Homes::Block, arrays)?;
    let mine = share(rank)..share(rank + 1);
    let part = Part { job, keys, mine, total };
    let counters = |name, len| Touched::new(job, name, len, Homes::Block, arrays);
    let nodes = job.size() as usize;
    let mut counters = match options.table {
        _ if options.locks => Counters::Private(vec![0; keys.bins]),
        Table::Separate => Counters::Separate(counters("tables", nodes * part.table_len())?),
        Table::Interleaved => Counters::Interleaved(counters("counters", nodes * keys.bins)?),
    };
    let mut peaks = Fingerprint::new();
    job.barrier()?;
    let started = Instant::now();
    for round in 0..options.iterations {
        // In each of these functions all nodes have read the histogram of the round before, and
        // passed a barrier, before a node writes this round's.
        match &mut counters {
            Counters::Separate(tables) => part.count_separately(round, tables)?,
            Counters::Interleaved(counters) => part.count_interleaved(round, counters)?,
            Counters::Private(counts) => part.count_with_locks(round, counts)?,
        }
        job.barrier()?; // now every node sees the whole histogram
        peaks.u64s(&fullest(&part.total.read(0..keys.bins)?));
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    Ok(Solution { total: part.total, peaks: peaks.value(), seconds })
}

impl Part<'_> {
    /// Returns the number of counters from one node's table to the next one's: whole pages.
    fn table_len(&self) -> usize {
        self.keys.bins.next_multiple_of(BINS_PER_PAGE)
    }

    /// Returns the bins that this node adds up over all nodes.
    fn bins(&self) -> Range<usize> {
        self.total.array.home_range(self.job.rank())
    }

    /// Counts in a table of this node, then adds this node's bins of all tables to the histogram.
    fn count_separately(&self, round: u32, tables: &Touched<u64>) -> Result<()> {
        let start = |rank: u32| rank as usize * self.table_len();
        {
            let first = start(self.job.rank());
            let mut counts = tables.write(first..first + self.keys.bins)?;
            counts.fill(0);
            self.keys.count(round, self.mine.clone(), &mut counts);
        }
        self.job.barrier()?;
        let bins = self.bins();
        let mut total = self.total.write(bins.clone())?;
        for rank in 0..self.job.size() {
            let counts = tables.read(start(rank) + bins.start..start(rank) + bins.end)?;
            for (total, count) in total.iter_mut().zip(counts.iter()) {
                *total += count;
            }
        }
        Ok(())
    }

    /// Counts in every page of one table, then adds this node's bins to the histogram.
    fn count_interleaved(&self, round: u32, counters: &Touched<u64>) -> Result<()> {
        let nodes = self.job.size() as usize;
        {
            // Other nodes write other counters between these ones at the same time. A guard of all
            // counters would say that this node alone writes them, so the guard is a lazy one.
            let mut counters = counters.array.write_lazily(0..counters.array.len())?;
            let me = self.job.rank() as usize;
            for own in counters.iter_mut().skip(me).step_by(nodes) {
                *own = 0;
            }
            let keys = self.keys;
            keys.each(round, self.mine.clone(), |bin| counters[bin * nodes + me] += 1);
        }
        self.job.barrier()?;
        let bins = self.bins();
        let mut total = self.total.write(bins.clone())?;
        let counters = counters.read(bins.start * nodes..bins.end * nodes)?;
        for (total, counts) in total.iter_mut().zip(counters.chunks_exact(nodes)) {
            *total += counts.iter().sum::<u64>();
        }
        Ok(())
    }

    /// Counts in private memory, then adds the counts to the histogram page by page, under a lock
    /// for each page. Every node begins with another page, so that the nodes seldom wait.
    fn count_with_locks(&self, round: u32, counts: &mut [u64]) -> Result<()> {
        counts.fill(0);
        self.keys.count(round, self.mine.clone(), counts);
        self.job.barrier()?; // now no node reads the histogram of the round before any more
        let pages = self.keys.bins.div_ceil(BINS_PER_PAGE);
        let first = pages * self.job.rank() as usize / self.job.size() as usize;
        for page in (first..pages).chain(0..first) {
            let bins = page * BINS_PER_PAGE..((page + 1) * BINS_PER_PAGE).min(self.keys.bins);
            let held = self.job.lock(page as u64)?;
            let mut total = self.total.write(bins.clone())?;
            for (total, count) in total.iter_mut().zip(&counts[bins]) {
                *total += count;
            }
            drop(total); // before the lock is given back
            held.release()?;
        }
        Ok(())
    }
}
