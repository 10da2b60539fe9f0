//! CG of the NAS Parallel Benchmarks: the smallest eigenvalue of a sparse matrix by the conjugate
//! gradient method, with the search direction in shared memory.
#![forbid(unsafe_code)]

mod class;
mod matrix;
mod parallel;
mod pieces;
mod random;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oikaze::Job;
use oikaze_apps::{ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ};

use class::{Class, Size, TOLERANCE};

/// CG of the NAS Parallel Benchmarks over shared memory.
///
/// Each node has a block of rows. It reads the whole search direction in every step, and writes its
/// own part. Start it on n nodes with `oikaze run -n 4 -- cg --size A`, or alone: one node is a
/// job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Class of the benchmark.
    #[arg(long, visible_alias = "class", value_enum, ignore_case = true, default_value = "s")]
    size: Size,
    /// Number of outer iterations, of 25 steps each. Zeta is compared with the published one only
    /// with the number of the class, which is the default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Estimate of the eigenvalue.
    zeta: f64,
    /// Norm of the residual in the last outer iteration.
    residual: f64,
    /// Seconds that the outer iterations took, without the first one that warms up.
    seconds: f64,
}

impl Options {
    fn class(&self) -> Class {
        self.size.class()
    }

    fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(self.class().iterations)
    }
}

impl Program for Options {
    const NAME: &'static str = "cg";
    type Outcome = Outcome;
    type Solution = Outcome;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::solve(self.class(), self.iterations(), progress))
    }

    fn parallel(&self, job: &Job, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(parallel::solve(job, self, progress)?)
    }

    fn outcome(&self, outcome: &Outcome) -> oikaze::Result<Outcome> {
        Ok(*outcome)
    }

    fn plan(&self) -> RunPlan {
        let steps = u64::from(self.iterations()) + 1;
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        let (size, iterations) = (self.size.name(), self.iterations());
        Report {
            problem: format!("{size}, {iterations} iterations"),
            rate: Rate::Mflops(self.class().mflops(iterations, outcome.seconds)),
            seconds: outcome.seconds,
            result: format!("zeta {:.13}, residual {:.1e}", outcome.zeta, outcome.residual),
            check: format!("{:.13}", outcome.zeta),
            fields: serde_json::json!({
                "size": size, "iterations": iterations, "zeta": outcome.zeta,
                "residual": outcome.residual,
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        let class = self.class();
        if let Some(serial) = serial {
            let text = |value: f64| format!("{value:e}");
            differ("zeta", &text(outcome.zeta), &text(serial.zeta), "serial run")?;
            differ("residual", &text(outcome.residual), &text(serial.residual), "serial run")?;
        }
        if self.iterations() != class.iterations {
            return Ok(format!("zeta {:.13} of the serial run", outcome.zeta));
        }
        let error = ((outcome.zeta - class.zeta) / class.zeta).abs();
        if error.is_nan() || error > TOLERANCE {
            return Err(format!(
                "wrong result: zeta: this run has {:.13}, expected {} (published result) within a relative error of {TOLERANCE:.0e}",
                outcome.zeta, class.zeta
            ));
        }
        Ok(format!("zeta of class {}", self.size.name()))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
