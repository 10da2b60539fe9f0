//! Parallel sort: the nodes exchange their keys by collectives, without shared memory.
#![forbid(unsafe_code)]

mod keys;
mod parallel;
mod serial;
mod splitters;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oikaze::Job;
use oikaze_apps::{Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex};

use keys::{Distribution, Keys};

/// Sort of 64-bit keys over collectives.
///
/// Each node sorts its part of the keys and shows samples to all nodes. The samples divide the
/// result into one share for each node. Each node sends each other node its keys of that node's
/// share, and merges what it gets. Start it on n nodes with `oikaze run -n 4 -- sort`, or alone:
/// one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Number of keys that all nodes together sort in one round.
    #[arg(long, default_value_t = 1 << 22, value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    size: u64,
    /// Number of rounds, each with other keys.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Seed of the keys.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Distribution of the keys.
    #[arg(long, value_enum, default_value = "uniform")]
    distribution: Distribution,
    #[command(flatten)]
    run: RunOptions,
}

/// Maximum number of keys of a round.
const KEYS_MAX: u64 = 1 << 40;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Fingerprint of the sorted keys of all rounds.
    hash: u64,
    /// Largest number of keys that one node had after a round.
    largest_share: usize,
    /// Seconds that sorting took, without making and checking keys.
    seconds: f64,
}

impl Options {
    fn keys(&self) -> Keys {
        Keys { seed: self.seed, count: self.size as usize, distribution: self.distribution }
    }
}

impl Program for Options {
    const NAME: &'static str = "sort";
    type Outcome = Outcome;
    type Solution = Outcome;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::solve(self.keys(), self.iterations, progress)?)
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        parallel::solve(job, self, progress)
    }

    fn outcome(&self, solution: &Outcome) -> oikaze::Result<Outcome> {
        Ok(*solution) // all nodes have it
    }

    fn plan(&self) -> RunPlan {
        RunPlan { options: self.run, touch: None, steps: self.iterations.into() }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        let Self { size, iterations, seed, .. } = self;
        let (distribution, largest) = (self.distribution.name(), outcome.largest_share);
        Report {
            problem: format!("{size} {distribution} keys, {iterations} rounds"),
            rate: Rate::Mkeys(*size as f64 * f64::from(*iterations) / outcome.seconds / 1e6),
            seconds: outcome.seconds,
            result: format!("keys hash {}, largest share {largest}", hex(outcome.hash)),
            check: hex(outcome.hash),
            fields: serde_json::json!({
                "size": size, "iterations": iterations, "seed": seed,
                "distribution": distribution, "largest_share": largest,
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        if let Some(serial) = serial {
            differ("hash of the keys", &hex(outcome.hash), &hex(serial.hash), "serial run")?;
        }
        Ok(format!("keys hash {}", hex(outcome.hash)))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
