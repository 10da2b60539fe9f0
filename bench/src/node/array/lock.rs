//! Lock that is passed between nodes, with one element that each holder writes.

use std::time::Instant;

use clap::Args;
use oikaze::Job;

use crate::error::Error;
use crate::node::output::{failed, tell};

/// Number of the lock.
const LOCK: u64 = 1;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of times that each node writes.
    #[arg(long)]
    iterations: u64,
}

/// Prints `us`, the mean time from one node's write to that of the next node. A node that takes the
/// lock before its turn gives it back without a write.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let (nodes, rank) = (u64::from(job.size()), u64::from(job.rank()));
    let turns = settings.iterations * nodes;
    let turn = job.array::<u64>("turn", 1).map_err(failed)?;
    job.barrier().map_err(failed)?;
    let begun = Instant::now();
    let mut mine = rank;
    while mine < turns {
        let held = job.lock(LOCK).map_err(failed)?;
        if turn.read(0..1).map_err(failed)?[0] == mine {
            turn.write(0..1).map_err(failed)?[0] += 1;
            mine += nodes;
        }
        held.release().map_err(failed)?;
    }
    job.barrier().map_err(failed)?;
    let us = begun.elapsed().as_secs_f64() * 1e6 / turns as f64;
    let written = turn.read(0..1).map_err(failed)?[0];
    if written != turns {
        return Err(Error::new(format!("{written} of {turns} writes are there (a defect)")));
    }
    if rank == 0 {
        tell(&[("us", us)]);
    }
    Ok(())
}
