//! Additions of all nodes of one machine at each other's memory, one at a time, where nodes may be
//! more than cores.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::memory::{Region, Rights};

use super::pair::PATIENCE;
use super::{failed, tell};
use crate::error::Error;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of additions of each node.
    #[arg(long)]
    turns: u32,
    /// Use memory that the other nodes have not mapped, so that its node must do the addition.
    #[arg(long)]
    private: bool,
}

/// Prints `each`, the mean time of an addition in µs, while all nodes add at their next one.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let region = if settings.private { Region::zeroed(64) } else { Region::shared(64) };
    let region = region.map_err(failed)?;
    let inbox = job.publish("crowd", region, Rights::ALL).map_err(failed)?;
    let next = job.peer((job.rank() + 1) % job.size()).map_err(failed)?;
    let there = next.region("crowd").map_err(failed)?;
    for _ in 0..settings.turns / 10 {
        there.fetch_add(0, 1).wait_for(PATIENCE).map_err(failed)?;
    }
    job.barrier().map_err(failed)?;
    let begun = Instant::now();
    for _ in 0..settings.turns {
        there.fetch_add(0, 1).wait_for(PATIENCE).map_err(failed)?;
    }
    let each = begun.elapsed().as_secs_f64() * 1e6 / f64::from(settings.turns);
    job.barrier().map_err(failed)?;
    let added = inbox.load_u64(0).map_err(failed)?;
    if added != u64::from(settings.turns + settings.turns / 10) {
        return Err(Error::new("an addition was lost"));
    }
    if job.rank() == 0 {
        tell(&[("each", each)]);
    }
    Ok(())
}
