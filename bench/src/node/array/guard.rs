//! Time to begin and end a guard of one element, while no other node has one.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use oikaze::Job;

use crate::error::Error;
use crate::node::output::{failed, tell};

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of guards of each kind.
    #[arg(long)]
    iterations: u64,
}

/// Prints `us`, the mean time of a guard, over guards that read and guards that write, in turn.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let array = job.array::<u64>("guarded", 1).map_err(failed)?;
    job.barrier().map_err(failed)?;
    if job.rank() == 0 {
        let begun = Instant::now();
        for number in 0..settings.iterations {
            black_box(array.read(0..1).map_err(failed)?[0]);
            array.write(0..1).map_err(failed)?[0] = number;
        }
        let us = begun.elapsed().as_secs_f64() * 1e6;
        tell(&[("us", us / (2 * settings.iterations) as f64)]);
    }
    job.barrier().map_err(failed)
}
