//! Rounds of a bench: how many, what is measured again, and where the records go.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::surroundings::{BUSY, Conditions, Surroundings};
use crate::error::Error;
use crate::lab::Place;
use crate::record::{Record, write_lines};

/// Amount of measurement and its output, the same for every bench.
#[derive(Args)]
pub struct Rounds {
    /// Fewer sizes, smaller volumes: minutes instead of half an hour.
    #[arg(long)]
    pub quick: bool,
    /// Alternating rounds; the median is reported.
    #[arg(long = "rounds", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub count: u32,
    /// Writes the JSON lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Rounds {
    /// Writes the records of a bench, whose surroundings were these before it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, records: &[Record], before: Surroundings) -> Result<(), Error> {
        write_lines(records, &Conditions::since(before, self.quick), self.json.as_deref())
    }

    /// Runs all rounds in one place, and tells the user of each. `round` gets its number.
    pub fn run(&self, place: Place, mut round: impl FnMut(u32)) {
        let begun = Instant::now();
        for number in 1..=self.count {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{place}, round {number} of {} ({seconds:.0} s)", self.count);
            round(number);
        }
    }
}

/// Measures once, and once more if that fails.
///
/// # Errors
/// It has failed twice.
pub fn once_more<T>(what: &str, measure: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    measure().or_else(|why| {
        eprintln!("warning: {what} has failed and is tried once more: {why}");
        measure()
    })
}

/// Returns the state of the machine. Warns if other processes run, because the systems need both
/// cores for themselves.
pub fn warn_if_busy() -> Surroundings {
    let before = Surroundings::now();
    if let Some(load) = before.load.filter(|&load| load > BUSY) {
        eprintln!("warning: the machine is busy (load {load}); the figures will be worth little");
    }
    before
}
