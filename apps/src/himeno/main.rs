//! Himeno: Jacobi iterations for Poisson's equation on a three-dimensional grid, over shared memory.
#![forbid(unsafe_code)]

mod kernel;
mod problem;
mod report;
mod serial;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use oikaze_apps::Progress;

use kernel::Coefficients;
use problem::Size;

/// Where the twelve coefficients of the stencil are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// In arrays as large as the field, read at each point, as the original does (MFLOPS are comparable).
    Arrays,
    /// In registers: the same arithmetic, far less memory traffic.
    Registers,
}

/// The Himeno benchmark over shared memory.
///
/// Start it on n nodes with `oikaze run -n 4 -- himeno --size S --iterations 100`, or alone: one node is a job, too.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 120)]
pub struct Options {
    /// Size of the grid.
    #[arg(long, value_enum, ignore_case = true, default_value = "s")]
    size: Size,
    /// Jacobi iterations.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// The plain serial program, without Oikaze.
    #[arg(long)]
    serial: bool,
    /// Compares the field with the one of the serial program, bit for bit, and with published results where there are any.
    #[arg(long)]
    verify: bool,
    /// Where the coefficients are kept.
    #[arg(long, value_enum, default_value = "arrays")]
    coefficients: Storage,
    /// One line of JSON in place of text.
    #[arg(long)]
    json: bool,
    /// Shows a progress bar.
    #[arg(long)]
    progress: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.serial { run_serial(&options) } else { Err("only --serial is built".into()) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("himeno: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_serial(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let shape = options.size.shape();
    let coefficients = match options.coefficients {
        Storage::Arrays => Coefficients::arrays(shape, &(0..shape.planes)),
        Storage::Registers => Coefficients::scalars(),
    };
    let progress = Progress::new(options.progress, options.iterations.into());
    let outcome = serial::solve(shape, options.iterations, &coefficients, progress);
    report::print(options, 1, &outcome, &[]);
    if options.verify {
        report::verify(options, &outcome, None)?
    }
    Ok(())
}
