//! Heat equation on a square plate: explicit steps with a 5-point stencil over shared memory.
#![forbid(unsafe_code)]

mod grid;
mod output;
mod parallel;
mod picture;
mod serial;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};
use oikaze::Job;
use oikaze_apps::{
    ArrayOptions, Program, Progress, Rate, Report, RunOptions, RunPlan, differ, hex,
};

use grid::{Grid, SIZE_MAX, SIZE_MIN, Start};
use parallel::Solution;

/// The two-dimensional heat equation over shared memory.
///
/// Each node has a block of rows. It reads one row of each adjacent node in every step. A reduction
/// tells all nodes the sum of squared changes of the whole plate. Start it on n nodes with `oikaze
/// run -n 4 -- heat`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Points along one side of the plate, the fixed border included.
    #[arg(long, default_value_t = 1024, value_parser = size)]
    size: usize,
    /// Number of time steps.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Temperatures at the start.
    #[arg(long, value_enum, default_value = "random")]
    start: Start,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// Files to write at the end. They are not part of the time that a run reports.
#[derive(Args, Debug)]
pub struct Files {
    /// Writes the last field as a picture of at most 1024 × 1024 pixels, on node 0.
    #[arg(long, value_name = "FILE", conflicts_with = "serial")]
    png: Option<PathBuf>,
    /// Writes the last field for NumPy. All nodes write their rows, so they need one file system.
    #[arg(long, value_name = "FILE.npy", conflicts_with = "serial", value_parser = npy)]
    npy: Option<PathBuf>,
}

impl Files {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.png, &self.npy].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Sum of squared changes of the last step.
    residual: f64,
    /// Fingerprint of the field, if it was taken.
    hash: Option<u64>,
    /// Seconds that the steps took.
    seconds: f64,
}

/// Maximum relative error of the residual.
const TOLERANCE: f64 = 1e-10;

fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (SIZE_MIN..=SIZE_MAX).contains(&size) => Ok(size),
        _ => Err(format!("a number of points from {SIZE_MIN} to {SIZE_MAX} is needed")),
    }
}

fn npy(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("npy") => Ok(path),
        _ => Err("the name of a file for NumPy ends in .npy".to_owned()),
    }
}

impl Options {
    fn grid(&self) -> Grid {
        Grid { size: self.size, start: self.start }
    }
}

impl Program for Options {
    const NAME: &'static str = "heat";
    type Outcome = Outcome;
    type Solution = Solution;

    fn serial(&self, progress: Progress) -> Result<Outcome, Box<dyn Error>> {
        Ok(serial::solve(self.grid(), self.iterations, progress))
    }

    fn parallel(&self, job: &Job, mut progress: Progress) -> Result<Solution, Box<dyn Error>> {
        output::check(job, &self.files)?;
        let solution = parallel::solve(job, self, &mut progress)?;
        output::write(job, &self.files, &solution, &mut progress)?;
        progress.finish();
        Ok(solution)
    }

    fn outcome(&self, solution: &Solution) -> oikaze::Result<Outcome> {
        solution.outcome(self.run.verify || self.run.json)
    }

    fn plan(&self) -> RunPlan {
        let steps = u64::from(self.iterations) + self.files.paths().count() as u64;
        RunPlan { options: self.run, touch: Some(self.arrays.touch), steps }
    }

    fn report(&self, outcome: &Outcome) -> Report {
        Report {
            problem: format!("{0} × {0}, {1} steps", self.size, self.iterations),
            rate: Rate::Mflops(self.grid().mflops(self.iterations, outcome.seconds)),
            seconds: outcome.seconds,
            result: format!("residual {:.9e}", outcome.residual),
            check: outcome.hash.map(hex).unwrap_or_default(),
            fields: serde_json::json!({
                "size": self.size, "iterations": self.iterations, "residual": outcome.residual,
                "png": self.files.png, "npy": self.files.npy,
            }),
        }
    }

    fn check(&self, outcome: &Outcome, serial: Option<&Outcome>) -> Result<String, String> {
        let hash = outcome.hash.ok_or("the run took no fingerprint of the field (a defect)")?;
        if let Some(serial) = serial {
            let expected = serial.hash.map(hex).unwrap_or_default();
            differ("hash of the field", &hex(hash), &expected, "serial run")?;
            // The order of additions depends on the number of nodes, that of the field does not.
            let error = (outcome.residual - serial.residual).abs();
            if error.is_nan() || error > TOLERANCE * serial.residual {
                return Err(format!(
                    "wrong result: residual: this run has {:e}, expected {:e} (serial run) within a relative error of {TOLERANCE:.0e}",
                    outcome.residual, serial.residual
                ));
            }
        }
        Ok(format!("field hash {}", hex(hash)))
    }
}

fn main() -> ExitCode {
    oikaze_apps::main::<Options>()
}
