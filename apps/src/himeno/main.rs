//! Himeno benchmark: Jacobi iterations for Poisson's equation on a three-dimensional grid in shared
//! memory.
#![forbid(unsafe_code)]

mod kernel;
mod parallel;
mod problem;
mod report;
mod serial;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use oikaze_apps::{Progress, nodes_table};

use kernel::{Coefficients, NoMemory};
use problem::{Shape, Size};
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

/// Way in which a node touches shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Touch {
    /// Fetches beforehand, in one go, everything that the node will touch.
    Ahead,
    /// Nothing is fetched before a load or a store faults on it.
    Lazily,
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
    /// The plain serial program, without Oikaze.
    #[arg(long)]
    serial: bool,
    /// Compares the field with the one of the serial program, bit for bit, and with published
    /// results where there are any.
    #[arg(long)]
    verify: bool,
    /// Where the coefficients are kept.
    #[arg(long, value_enum, default_value = "arrays")]
    coefficients: Storage,
    /// How shared memory is touched.
    #[arg(long, value_enum, default_value = "ahead")]
    touch: Touch,
    /// One line of JSON in place of text.
    #[arg(long)]
    json: bool,
    /// Shows a progress bar.
    #[arg(long)]
    progress: bool,
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

    /// Runs the serial program with these options.
    fn serial_run(&self, progress: bool) -> Result<Outcome, NoMemory> {
        let shape = self.size.shape();
        let coefficients = self.coefficients(shape, &(0..shape.planes))?;
        Ok(serial::solve(
            shape,
            self.iterations,
            &coefficients,
            Progress::new(progress, self.iterations.into()),
        ))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.serial { run_serial(&options) } else { run_parallel(&options) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("himeno: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_serial(options: &Options) -> Result<(), Box<dyn Error>> {
    let outcome = options.serial_run(options.progress)?;
    report::print(options, 1, &outcome, None);
    if options.verify { Ok(report::verify(options, &outcome, None)?) } else { Ok(()) }
}

fn run_parallel(options: &Options) -> Result<(), Box<dyn Error>> {
    let job = oikaze::join()?;
    let solution = parallel::solve(&job, options)?;
    let table = nodes_table(&job)?; // before the field is read for its fingerprint, which is no part of the work
    let mut verified = Ok(());
    if job.rank() == 0 {
        let outcome = solution.outcome(options.verify || options.json)?;
        report::print(options, job.size(), &outcome, Some(&table));
        if options.verify {
            verified = report::verify(options, &outcome, Some(&options.serial_run(false)?));
        }
    }
    job.leave()?;
    Ok(verified?)
}
