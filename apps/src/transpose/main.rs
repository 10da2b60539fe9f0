//! Transposition of a matrix in shared memory: every node reads a part of the rows of every other
//! node in each step.
#![forbid(unsafe_code)]

mod layout;
mod parallel;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oikaze::Job;
use oikaze_apps::{
    ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex,
};
use oikaze_kernels::transpose::SIDE;

use parallel::Solution;

/// Transposition of a matrix over shared memory.
///
/// Each node has a block of rows. A step stores B = Aᵀ + 1, and the next step takes B as its A. The
/// addition changes every value, so that a value of an earlier step does not pass for a new one.
/// Start it on n nodes with `oikaze run -n 4 -- transpose`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Rows, and columns, of the matrix: a multiple of 32.
    #[arg(long, default_value_t = 2048, value_parser = size)]
    size: usize,
    /// Number of steps.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// Maximum number of rows, for a matrix of 8 GiB.
const SIZE_MAX: usize = 32_768;
/// Seed of the starting matrix.
const SEED: u64 = 1;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Fingerprint of the matrix, if it was taken.
    hash: Option<u64>,
    /// Seconds that the steps took.
    seconds: f64,
}

fn size(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(size) if (SIDE..=SIZE_MAX).contains(&size) && size.is_multiple_of(SIDE) => Ok(size),
        _ => Err(format!(
            "a multiple of {SIDE} from {SIDE} to {SIZE_MAX} is needed: the matrix is cut into tiles of {SIDE} × {SIDE}"
        )),
    }
}

/// Returns value (i, j) of the starting matrix of this size.
fn start(size: usize, i: usize, j: usize) -> f64 {
    oikaze_apps::uniform(SEED, (i * size + j) as u64)
}

impl Program for Options {
    const NAME: &'static str = "transpose";
    type Outcome = Outcome;
    type Solution = Solution;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::solve(self.size, self.iterations, progress))
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Solution, Box<dyn Error>> {
        Ok(parallel::solve(job, self, progress)?)
    }

    fn outcome(&self, solution: &Solution) -> oikaze::Result<Outcome> {
        solution.outcome(self.run.verify || self.run.json)
    }

    fn plan(&self) -> RunPlan {
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps: self.iterations.into() }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        let values = (self.size * self.size) as f64 * f64::from(self.iterations);
        Report {
            problem: format!("{0} × {0}, {1} steps", self.size, self.iterations),
            rate: Rate::Mops(values / outcome.seconds / 1e6),
            seconds: outcome.seconds,
            result: format!("{:.2} GB/s", 8e-9 * values / outcome.seconds),
            check: outcome.hash.map(hex).unwrap_or_default(),
            fields: serde_json::json!({ "size": self.size, "iterations": self.iterations }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        let hash = outcome.hash.ok_or("the run took no fingerprint of the matrix (a defect)")?;
        if let Some(serial) = serial {
            let expected = serial.hash.map(hex).unwrap_or_default();
            differ("hash of the matrix", &hex(hash), &expected, "serial run")?;
        }
        Ok(format!("matrix hash {}", hex(hash)))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
