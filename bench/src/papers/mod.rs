//! The papers' figures, measured again on today's machine, and drawn beside what the papers found.

mod paper_004;
mod plot;

use std::path::PathBuf;

use clap::Args;

use crate::error::{Error, Tried};

/// How the papers' figures are measured.
#[derive(Args)]
pub struct Run {
    /// Fewer sizes, less volume.
    #[arg(long)]
    quick: bool,
    /// Alternating rounds; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
    /// Where the results go, as JSON and SVG.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/papers")]
    out: PathBuf,
    /// Writes the JSON lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs all of them.
///
/// # Errors
/// No root; something could not be run or written.
pub fn bench(run: &Run) -> Result<(), Error> {
    std::fs::create_dir_all(&run.out).tried(format!("making {}", run.out.display()))?;
    paper_004::throughput(run)
}
