//! Measures collectives, as `bench/mpi/collectives.c` measures those of MPI.
//!
//! - A size is the bytes of one node's vector (broadcast, all_reduce), of its contribution
//!   (all_gather), or of the block for one node (all_to_all).
//! - The operations are divided into blocks. The time of an operation is the mean of a block on the
//!   slowest node. The median of the blocks counts.
//! - The root of a broadcast changes with each operation. Each root has received the operation
//!   before, so the operations cannot overlap.
//! - The first and the last word of each vector change with each operation, and are checked. All
//!   words are written and checked before the measurement, and checked after it.

use super::Perf;
use clap::ValueEnum;
use oikaze::prelude::*;
use oikaze::{Error, Result};
use serde_json::json;
use std::time::Instant;

/// Sizes in bytes that `--sweep` measures.
pub const SWEEP: &str = "8,256,4K,32K,256K,1M,4M";
/// Blocks of a measurement.
const BLOCKS: usize = 10;
/// Number of operations before the measurement, of which every word is checked.
const WARM_UP: u32 = 10;
/// Minimum number of operations in a block.
const BLOCK_MIN: u32 = 2;
/// Number of operations, unless `--iterations` says otherwise.
const ITERATIONS: u32 = 5000;
/// Maximum number of bytes of all operations, unless `--volume` says otherwise.
const VOLUME: usize = 64 << 20;

/// Collective to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Case {
    /// Barrier of all nodes
    Barrier,
    /// SIZE bytes of one node for all
    Broadcast,
    /// Sum of SIZE bytes of doubles of all nodes, on all nodes
    #[value(alias = "all-reduce")]
    AllReduce,
    /// SIZE bytes of each node, on all nodes
    #[value(alias = "all-gather")]
    AllGather,
    /// SIZE bytes of each node for each node
    #[value(alias = "all-to-all")]
    AllToAll,
}

impl Case {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the algorithm that is chosen for this size.
    fn algorithm(self, job: &Job, bytes: usize) -> &'static str {
        match self {
            Case::Barrier => "tree",
            _ => job.team().algorithm(&self.name(), bytes),
        }
    }
}

/// One measured size.
struct Line {
    case: Case,
    size: usize,
    algorithm: &'static str,
    operations: u64,
    /// Time of an operation in each block, in µs, in ascending order.
    blocks: Vec<f64>,
    /// Bytes of datagrams that all nodes together have sent for an operation.
    sent_bytes: f64,
}

impl Line {
    fn median(&self) -> f64 {
        let at = |place: usize| self.blocks.get(place).copied().unwrap_or(f64::NAN);
        f64::midpoint(at((BLOCKS - 1) / 2), at(BLOCKS / 2))
    }

    fn extremes(&self) -> (f64, f64) {
        let at = |block: Option<&f64>| block.copied().unwrap_or(f64::NAN);
        (at(self.blocks.first()), at(self.blocks.last()))
    }

    fn in_table(&self) -> String {
        let (fastest, slowest) = self.extremes();
        format!(
            "{:<11}{:>9}  {:<24}{:>10.2}{fastest:>10.2}{slowest:>10.2}\n",
            self.case.name(),
            self.size,
            self.algorithm,
            self.median()
        )
    }

    fn in_json(&self, job: &Job) -> String {
        let (fastest, slowest) = self.extremes();
        let line = json!({
            "test": "collectives",
            "case": self.case.name(),
            "size": self.size,
            "nodes": job.size(),
            "algorithm": self.algorithm,
            "operations": self.operations,
            "us": self.median(),
            "fastest_us": fastest,
            "slowest_us": slowest,
            "sent_bytes": self.sent_bytes.round(),
        });
        format!("{line}\n")
    }
}

/// Measures the chosen case, or all. Node 0 prints a table, or one line of JSON for each size.
///
/// # Errors
/// The job or an operation fails, or a result is wrong.
pub fn run(perf: &Perf, job: &Job) -> Result<()> {
    let cases = match perf.case {
        Some(case) => vec![case],
        None => Case::value_variants().to_vec(),
    };
    let mut text = String::new();
    if !perf.json {
        text += &format!("collectives of {} nodes, µs of the slowest node\n", job.size());
        text += &format!(
            "{:<11}{:>9}  {:<24}{:>10}{:>10}{:>10}\n",
            "case", "bytes", "algorithm", "median", "fastest", "slowest"
        );
    }
    for case in cases {
        let sizes = match case {
            Case::Barrier => vec![0],
            _ if perf.sweep.is_empty() => vec![perf.size],
            _ => perf.sweep.clone(),
        };
        for size in sizes {
            let line = Measurement::new(job, case, size).run(perf)?;
            text += &if perf.json { line.in_json(job) } else { line.in_table() };
        }
    }
    if job.rank() == 0 { crate::print::print(&text) } else { Ok(()) }
}

/// Measurement of one size: the vectors of this node.
struct Measurement<'a> {
    job: &'a Job,
    case: Case,
    size: usize,
    /// Elements of one vector or block.
    words: usize,
    sent: Vec<f64>,
    received: Vec<f64>,
}

/// Returns the value that a node sends to another one in an operation.
fn value(turn: u32, from: u32, to: u32) -> f64 {
    f64::from(turn) * 4096.0 + f64::from(from) * 64.0 + f64::from(to)
}

impl<'a> Measurement<'a> {
    fn new(job: &'a Job, case: Case, size: usize) -> Self {
        let words = size.div_ceil(size_of::<f64>()).max(1);
        let all = words * job.size() as usize;
        let (sent, received) = match case {
            Case::Barrier | Case::Broadcast | Case::AllReduce => (words, words),
            Case::AllGather => (words, all),
            Case::AllToAll => (all, all),
        };
        let (sent, received) = (vec![0.0; sent], vec![0.0; received]);
        Measurement { job, case, size, words, sent, received }
    }

    fn run(mut self, perf: &Perf) -> Result<Line> {
        let nodes = self.job.size();
        let bounded = perf.volume.or(perf.iterations.is_none().then_some(VOLUME));
        let within = bounded.and_then(|volume| volume.checked_div(self.size));
        let within = within.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX));
        let iterations = perf.iterations.unwrap_or(ITERATIONS).min(within);
        // Every node is the root equally often.
        let each = iterations.div_ceil(BLOCKS as u32).max(BLOCK_MIN).next_multiple_of(nodes);
        let mut turns = 0..;
        let mut next = || turns.next().unwrap_or(u32::MAX);
        for _ in 0..WARM_UP {
            let turn = next();
            self.one_turn(turn, Some(turn))?;
        }
        self.job.barrier()?;
        let before = self.sent_bytes();
        let mut times = Vec::with_capacity(BLOCKS);
        let mut last = 0;
        for _ in 0..BLOCKS {
            let begun = Instant::now();
            for _ in 0..each {
                last = next();
                self.one_turn(last, None)?;
            }
            times.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(each));
        }
        if self.case != Case::Barrier {
            // The words between the ends stay those of the last turn that wrote all.
            self.check(last, Some(WARM_UP - 1))?;
        }
        // All nodes have acknowledged what they got.
        self.job.barrier()?;
        let sent_bytes = self.job.all_reduce(self.sent_bytes() - before, Sum)?;
        self.job.all_reduce_into(&mut times, Max)?;
        times.sort_by(f64::total_cmp);
        Ok(Line {
            case: self.case,
            size: self.size,
            algorithm: self.case.algorithm(self.job, self.size),
            operations: u64::from(each) * BLOCKS as u64,
            blocks: times,
            sent_bytes: sent_bytes as f64 / (f64::from(each) * BLOCKS as f64),
        })
    }

    /// Returns the bytes of datagrams that this node has sent.
    fn sent_bytes(&self) -> u64 {
        let statistics = self.job.statistics();
        statistics.bytes_sent + statistics.group_bytes_sent
    }

    /// Runs one operation, whose ends are checked. With `all`, every word is that of this turn.
    fn one_turn(&mut self, turn: u32, all: Option<u32>) -> Result<()> {
        let Measurement { job, case, .. } = *self;
        let root = turn % job.size();
        if case == Case::Barrier {
            return job.barrier();
        }
        self.write(turn, all.is_some());
        let Measurement { sent, received, .. } = self;
        match case {
            Case::Broadcast if root == job.rank() => job.broadcast_into(root, sent)?,
            Case::Broadcast => job.broadcast_into(root, received)?,
            Case::AllReduce => {
                received.copy_from_slice(sent);
                job.all_reduce_into(received, Sum)?;
            }
            Case::AllGather => job.all_gather_into(sent, received)?,
            Case::AllToAll => job.all_to_all_into(sent, received)?,
            Case::Barrier => {}
        }
        self.check(turn, all)
    }

    /// Writes what a turn sends: the first and the last word of each block, or all words.
    fn write(&mut self, turn: u32, all: bool) {
        let rank = self.job.rank();
        for (block, to) in self.sent.chunks_exact_mut(self.words).zip(0..) {
            let word = value(turn, rank, to);
            if all {
                block.fill(word);
            }
            [block[0], block[self.words - 1]] = [word; 2];
        }
    }

    /// Checks the ends of what a turn has brought. With `inner`, the words between them must be
    /// those of turn `inner`.
    fn check(&self, turn: u32, inner: Option<u32>) -> Result<()> {
        let (rank, nodes) = (self.job.rank(), self.job.size());
        let root = turn % nodes;
        let result =
            if self.case == Case::Broadcast && root == rank { &self.sent } else { &self.received };
        for (block, from) in result.chunks_exact(self.words).zip(0..) {
            let expected = |turn| match self.case {
                Case::AllReduce => (0..nodes).map(|from| value(turn, from, 0)).sum(),
                Case::Broadcast => value(turn, root, 0),
                Case::AllToAll => value(turn, from, rank),
                Case::AllGather | Case::Barrier => value(turn, from, 0),
            };
            let ends = [block[0], block[self.words - 1]];
            let within = block.get(1..self.words - 1).unwrap_or_default();
            let is_within = |turn| within.iter().all(|word| *word == expected(turn));
            if ends != [expected(turn); 2] || !inner.is_none_or(is_within) {
                return Err(Error::invalid(
                    "measuring collectives",
                    "a result is wrong (a defect)",
                ));
            }
        }
        Ok(())
    }
}
