//! LU: factors a dense matrix in blocks over shared memory. It is SPLASH-2's kernel in the variant
//! with contiguous blocks.
#![forbid(unsafe_code)]

mod block;
mod layout;
mod matrix;
mod parallel;
mod report;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use oikaze_apps::{Progress, nodes_table};

use matrix::Matrix;
use serial::Outcome;

/// LU factorization over shared memory.
///
/// Start it on n nodes with `oikaze run -n 4 -- lu --n 1024`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Rows, and columns, of the matrix: a multiple of 16.
    #[arg(long, default_value_t = 1024, value_parser = multiple_of_side)]
    n: usize,
    /// Seed of the random matrix.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The plain serial program, without Oikaze.
    #[arg(long)]
    serial: bool,
    /// Tests the solution, and compares the factors with those of the serial program, bit for bit.
    #[arg(long)]
    verify: bool,
    /// One line of JSON in place of text.
    #[arg(long)]
    json: bool,
    /// Shows a progress bar.
    #[arg(long)]
    progress: bool,
}

impl Options {
    /// Returns the matrix to factor.
    fn matrix(&self) -> Matrix {
        Matrix { n: self.n, seed: self.seed }
    }

    /// Returns a progress bar over the block steps, which is shown only if the user wants it and
    /// `here` is set.
    fn progress(&self, here: bool) -> Progress {
        Progress::new(self.progress && here, (self.n / block::SIDE) as u64)
    }

    /// Runs the serial program with these options.
    fn serial_run(&self, here: bool) -> Outcome {
        let mut progress = self.progress(here);
        let outcome = serial::factor(self.matrix(), || progress.step());
        progress.finish();
        outcome
    }
}

/// Maximum number of rows, for a matrix of 8 GiB.
const N_MAX: usize = 32_768;

fn multiple_of_side(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (block::SIDE..=N_MAX).contains(&n) && n.is_multiple_of(block::SIDE) => Ok(n),
        _ => Err(format!(
            "a multiple of {} from {} to {N_MAX} is needed: the matrix is cut into blocks of {0} × {0}",
            block::SIDE,
            block::SIDE
        )),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.serial { run_serial(&options) } else { run_parallel(&options) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_serial(options: &Options) -> Result<(), Box<dyn Error>> {
    let outcome = options.serial_run(true);
    report::print(options, 1, &outcome, None);
    if options.verify { Ok(report::verify(options, &outcome, None)?) } else { Ok(()) }
}

fn run_parallel(options: &Options) -> Result<(), Box<dyn Error>> {
    let job = oikaze::join()?;
    let factors = parallel::factor(&job, options)?;
    let table = nodes_table(&job)?; // before the factors are read for the test, which is no part of the work
    let mut verified = Ok(());
    if job.rank() == 0 {
        let outcome = factors.outcome()?;
        report::print(options, job.size(), &outcome, Some(&table));
        if options.verify {
            verified = report::verify(options, &outcome, Some(&options.serial_run(false)));
        }
    }
    job.leave()?;
    Ok(verified?)
}
