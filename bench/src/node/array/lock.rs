//! Lock that is passed between nodes, with data that each holder writes.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::shared::builder::Homes;

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
    /// Bytes of data that each holder reads and writes. The first element is the number of writes.
    #[arg(long, default_value_t = size_of::<u64>())]
    bytes: usize,
}

/// Prints `us`, the mean time from one node's write to that of the next node. A node that takes the
/// lock before its turn gives it back without a write. Each node in turn is home of the data.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let (nodes, rank) = (u64::from(job.size()), u64::from(job.rank()));
    let len = settings.bytes / size_of::<u64>();
    let turns = settings.iterations / nodes * nodes;
    let mut seconds = 0.0;
    for home in 0..job.size() {
        let homes = Homes::Explicit(vec![home; settings.bytes.div_ceil(4096)]);
        let data = job.array_with_homes::<u64>("data", len, homes).map_err(failed)?;
        job.barrier().map_err(failed)?;
        let begun = Instant::now();
        let mut mine = rank;
        while mine < turns {
            let held = job.lock(LOCK).map_err(failed)?;
            if data.read(0..len).map_err(failed)?[0] == mine {
                data.write(0..len).map_err(failed)?.iter_mut().for_each(|word| *word += 1);
                mine += nodes;
            }
            held.release().map_err(failed)?;
        }
        job.barrier().map_err(failed)?;
        seconds += begun.elapsed().as_secs_f64();
        if let Some(wrong) = data.read(0..len).map_err(failed)?.iter().find(|&&word| word != turns)
        {
            return Err(Error::new(format!("{wrong} of {turns} writes are there (a defect)")));
        }
        data.free().map_err(failed)?;
    }
    if rank == 0 {
        tell(&[("us", seconds * 1e6 / (turns * nodes) as f64)]);
    }
    Ok(())
}
