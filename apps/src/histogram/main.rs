//! Histogram of random keys: all nodes count into tables in shared memory, and every node sees all
//! counts after each round.
#![forbid(unsafe_code)]

mod keys;
mod parallel;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use oikaze::Job;
use oikaze_apps::{
    ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex,
};

use keys::Keys;
use parallel::Solution;

/// Place of a node's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// A table for each node, in pages of its own. No page has two writers.
    Separate,
    /// One table that has the counters of all nodes for one bin beside each other. Every node
    /// writes every page (false sharing), which is correct but costs a diff of each page.
    Interleaved,
}

/// Histogram of random keys over shared memory.
///
/// In each round every node counts its share of the keys, and adds up one part of the bins over all
/// nodes. Then every node reads the whole histogram and finds its fullest bin. Start it on n nodes
/// with `oikaze run -n 4 -- histogram`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Number of bins.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=BINS_MAX))]
    size: u64,
    /// Number of keys that all nodes together count in one round.
    #[arg(long, default_value_t = 1 << 18, value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Seed of the keys.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where a node counts.
    #[arg(long, value_enum, default_value = "separate")]
    table: Table,
    /// Counts in private memory, and adds the counts to the histogram under locks, of which each
    /// page has one.
    #[arg(long, conflicts_with = "table")]
    locks: bool,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// Maximum number of bins.
const BINS_MAX: u64 = 1 << 24;
/// Maximum number of keys of a round.
const KEYS_MAX: u64 = 1 << 40;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Fingerprint of the histogram.
    hash: u64,
    /// Fingerprint of the fullest bin after each round.
    peaks: u64,
    /// Seconds that the rounds took.
    seconds: f64,
}

impl Options {
    fn keys(&self) -> Keys {
        Keys { seed: self.seed, count: self.keys, bins: self.size as usize }
    }

    /// Returns the name of the way in which the nodes count.
    fn table_name(&self) -> &'static str {
        match self.table {
            _ if self.locks => "locks",
            Table::Separate => "separate",
            Table::Interleaved => "interleaved",
        }
    }
}

impl Program for Options {
    const NAME: &'static str = "histogram";
    type Outcome = Outcome;
    type Solution = Solution;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::solve(self.keys(), self.iterations, progress))
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Solution, Box<dyn Error>> {
        Ok(parallel::solve(job, self, progress)?)
    }

    fn outcome(&self, solution: &Solution) -> oikaze::Result<Outcome> {
        solution.outcome()
    }

    fn plan(&self) -> RunPlan {
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps: self.iterations.into() }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        let Self { size, keys, iterations, seed, .. } = self;
        let counted = *keys as f64 * f64::from(*iterations);
        Report {
            problem: format!("{size} bins, {iterations} rounds of {keys} keys"),
            rate: Rate::Mops(counted / outcome.seconds / 1e6),
            seconds: outcome.seconds,
            result: format!("counts hash {}", hex(outcome.hash)),
            check: hex(outcome.hash),
            fields: serde_json::json!({
                "size": size, "keys": keys, "iterations": iterations, "seed": seed,
                "table": self.table_name(), "peaks": hex(outcome.peaks),
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        if let Some(serial) = serial {
            let reference = "serial run";
            differ("hash of the counts", &hex(outcome.hash), &hex(serial.hash), reference)?;
            let peaks = "hash of the rounds' fullest bins";
            differ(peaks, &hex(outcome.peaks), &hex(serial.peaks), reference)?;
        }
        Ok(format!("counts hash {}", hex(outcome.hash)))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
