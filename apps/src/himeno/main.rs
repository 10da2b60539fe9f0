//! Himeno benchmark: Jacobi iterations for Poisson's equation on a three-dimensional grid in shared
//! memory.
#![forbid(unsafe_code)]

mod coefficients;
mod parallel;
mod problem;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use oikaze::Job;
use oikaze_apps::{
    ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex,
};

use coefficients::{Coefficients, NoMemory};
use parallel::Solution;
use problem::{Shape, Size, known};
use serial::Outcome;

/// Storage of the twelve coefficients of the stencil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// In arrays as large as the field, read at each point, as the original does (MFLOPS are
    /// comparable).
    Arrays,
    /// In registers: the same arithmetic, far less memory traffic.
    Registers,
}

/// The Himeno benchmark over shared memory.
///
/// Start it on n nodes with `oikaze run -n 4 -- himeno --size S --iterations 100`, or alone: one
/// node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Size of the grid.
    #[arg(long, value_enum, ignore_case = true, default_value = "s")]
    size: Size,
    /// Number of Jacobi iterations.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Where the coefficients are kept.
    #[arg(long, value_enum, default_value = "arrays")]
    coefficients: Storage,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

impl Options {
    /// Returns the coefficients for some planes, in the storage that the user chose.
    fn coefficients(
        &self,
        shape: Shape,
        planes: &std::ops::Range<usize>,
    ) -> Result<Coefficients, NoMemory> {
        match self.coefficients {
            Storage::Arrays => Coefficients::arrays(shape, planes),
            Storage::Registers => Ok(Coefficients::scalars()),
        }
    }
}

impl Program for Options {
    const NAME: &'static str = "himeno";
    type Outcome = Outcome;
    type Solution = Solution;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        let shape = self.size.shape();
        let coefficients = self.coefficients(shape, &(0..shape.planes))?;
        Ok(serial::solve(shape, self.iterations, &coefficients, progress))
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Solution, Box<dyn Error>> {
        parallel::solve(job, self, progress)
    }

    fn outcome(&self, solution: &Solution) -> oikaze::Result<Outcome> {
        solution.outcome(self.run.verify || self.run.json)
    }

    fn plan(&self) -> RunPlan {
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps: self.iterations.into() }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        let hash = outcome.hash.map(hex);
        Report {
            problem: format!("{}, {} iterations", self.size.name(), self.iterations),
            rate: Rate::Mflops(self.size.shape().mflops(self.iterations, outcome.seconds)),
            seconds: outcome.seconds,
            result: format!("gosa {}", ten_digits(outcome.gosa)),
            check: hash.clone().unwrap_or_default(),
            fields: serde_json::json!({
                "size": self.size.name(), "iterations": self.iterations, "gosa": outcome.gosa, "hash": hash,
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        let name = format!("{} after {} iterations", self.size.name(), self.iterations);
        let (hash_name, gosa_name) = (format!("{name}: p hash"), format!("{name}: gosa"));
        let hash = outcome.hash.ok_or("the run took no fingerprint of the field (a defect)")?;
        if let Some(serial) = serial {
            let expected = serial.hash.map(hex).unwrap_or_default();
            differ(&hash_name, &hex(hash), &expected, "serial run")?;
            let text = |gosa: f64| format!("{gosa:e}");
            differ(&gosa_name, &text(outcome.gosa), &text(serial.gosa), "serial run")?;
        }
        if let Some(known) = known(self.size, self.iterations) {
            differ(&hash_name, &hex(hash), &hex(known.hash), "published result")?;
            let (here, there) = (ten_digits(outcome.gosa), ten_digits(known.gosa));
            differ(&gosa_name, &here, &there, "published result")?;
        }
        Ok(format!("p hash {}", hex(hash)))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}

/// Formats gosa with as many digits as published results have.
fn ten_digits(gosa: f64) -> String {
    format!("{gosa:.9e}")
}
