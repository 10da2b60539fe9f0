//! LU: factors a dense matrix in blocks over shared memory. It is SPLASH-2's kernel in the variant
//! with contiguous blocks.
#![forbid(unsafe_code)]

mod layout;
mod matrix;
mod parallel;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oikaze::Job;
use oikaze_apps::{
    ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex,
};
use oikaze_kernels::lu;

use matrix::{Matrix, TOLERANCE};
use parallel::Factors;
use serial::Outcome;

/// LU factorization over shared memory.
///
/// Start it on n nodes with `oikaze run -n 4 -- lu --n 1024`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Rows, and columns, of the matrix: a multiple of 16.
    #[arg(long, visible_alias = "size", default_value_t = 1024, value_parser = multiple_of_side)]
    n: usize,
    /// Seed of the random matrix.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// Maximum number of rows, for a matrix of 8 GiB.
const N_MAX: usize = 32_768;

fn multiple_of_side(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (lu::SIDE..=N_MAX).contains(&n) && n.is_multiple_of(lu::SIDE) => Ok(n),
        _ => Err(format!(
            "a multiple of {} from {} to {N_MAX} is needed: the matrix is cut into blocks of {0} × {0}",
            lu::SIDE,
            lu::SIDE
        )),
    }
}

impl Options {
    /// Returns the matrix to factor.
    fn matrix(&self) -> Matrix {
        Matrix { n: self.n, seed: self.seed }
    }
}

impl Program for Options {
    const NAME: &'static str = "lu";
    type Outcome = Outcome;
    type Solution = Factors;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::factor(self.matrix(), progress))
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Factors, Box<dyn Error>> {
        Ok(parallel::factor(job, self, progress)?)
    }

    fn outcome(&self, factors: &Factors) -> oikaze::Result<Outcome> {
        factors.outcome()
    }

    fn plan(&self) -> RunPlan {
        let steps = (self.n / lu::SIDE) as u64;
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        Report {
            problem: format!("{0} × {0}", self.n),
            rate: Rate::Mflops(self.matrix().flops() / outcome.seconds / 1e6),
            seconds: outcome.seconds,
            result: format!("solution within {:.1e} of ones", outcome.error),
            check: hex(outcome.hash),
            fields: serde_json::json!({
                "n": self.n, "seed": self.seed, "error": outcome.error, "hash": hex(outcome.hash),
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        if outcome.error >= TOLERANCE {
            return Err(format!(
                "wrong result: the solution is {:.1e} away from ones, allowed are {TOLERANCE:.0e}",
                outcome.error
            ));
        }
        let hash = hex(outcome.hash);
        if let Some(serial) = serial {
            differ("hash of the factors", &hash, &hex(serial.hash), "serial run")?;
        }
        Ok(format!("factors hash {hash}"))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
