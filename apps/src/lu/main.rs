//! LU: factors a dense matrix in blocks over shared memory; SPLASH-2's kernel in its variant with contiguous blocks.
#![forbid(unsafe_code)]

mod block;
#[cfg_attr(not(test), expect(dead_code, reason = "for the parallel program"))]
mod layout;
mod matrix;
mod report;
mod serial;

use std::process::ExitCode;

use clap::Parser;
use oikaze_apps::Progress;

use matrix::Matrix;

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
    /// The matrix to be factored.
    fn matrix(&self) -> Matrix {
        Matrix { n: self.n, seed: self.seed }
    }

    /// A bar over the block steps.
    fn progress(&self) -> Progress {
        Progress::new(self.progress, (self.n / block::SIDE) as u64)
    }
}

/// The largest matrix: 8 GiB.
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
    let result = if options.serial { run_serial(&options) } else { Err("only --serial is built".into()) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_serial(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let mut progress = options.progress();
    let outcome = serial::factor(options.matrix(), || progress.step());
    progress.finish();
    report::print(options, 1, &outcome, &[]);
    if options.verify {
        report::verify(options, &outcome, None)?
    }
    Ok(())
}
