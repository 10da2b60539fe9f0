//! Time to declare an array.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::prelude::{Collectives, Max};

use crate::error::Error;
use crate::node::output::{failed, tell};

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Bytes of the array.
    #[arg(long)]
    size: usize,
}

/// Prints `us`, the time until the last node has declared the array.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    job.barrier().map_err(failed)?;
    let begun = Instant::now();
    let array = job.array::<u8>("declared", settings.size).map_err(failed)?;
    let us = begun.elapsed().as_micros() as u64;
    let us = job.all_reduce(us, Max).map_err(failed)?;
    if job.rank() == 0 {
        tell(&[("us", us as f64)]);
    }
    array.free().map_err(failed)
}
