//! Transfers one at a time, as paper 001 measured them, and few at a time (double buffering). Also
//! the time of a registration (paper 003).

use std::collections::VecDeque;
use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::memory::Region;

use super::pair::{Pair, finish, machine_time, median_us};
use super::{failed, tell};
use crate::error::Error;

/// Settings of transfers.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a transfer.
    #[arg(long)]
    size: usize,
    /// Number of transfers.
    #[arg(long)]
    transfers: u32,
    /// Maximum number of transfers that are under way.
    #[arg(long, default_value_t = 1)]
    window: usize,
}

/// Prints `each`, the mean time of a transfer until its completion, and `one_way`, the mean time
/// from before the call until the receiver sees the last word, both in µs.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, settings.size)?;
    let one_way = one_way(&pair, settings)?;
    if job.rank() != 0 {
        return pair.receive().map(drop);
    }
    let mut under_way = VecDeque::with_capacity(settings.window);
    let begun = Instant::now();
    for _ in 0..settings.transfers {
        if under_way.len() == settings.window.max(1) {
            under_way.pop_front().map_or(Ok(()), |first| finish(&first))?;
        }
        under_way.push_back(pair.there.put(pair.lands(), &pair.source));
    }
    under_way.drain(..).try_for_each(|operation| finish(&operation))?;
    let each = begun.elapsed().as_secs_f64() * 1e6 / f64::from(settings.transfers);
    finish(&pair.send(0))?;
    tell(&[("each", each), ("one_way", one_way)]);
    Ok(())
}

/// Returns the mean time of one way in µs, by the clock that both nodes share.
fn one_way(pair: &Pair<'_>, settings: &Settings) -> Result<f64, Error> {
    let mut sum = 0;
    for flag in 1..=u64::from(settings.transfers) {
        if pair.job.rank() == 0 {
            let begun = machine_time();
            let operation = pair.put(flag)?;
            let seen = pair.receive()?;
            finish(&operation)?;
            sum += seen.saturating_sub(begun);
        } else {
            pair.see(|word| word == flag)?;
            let _settles_by_itself = pair.send(machine_time());
        }
    }
    Ok(sum as f64 / f64::from(settings.transfers) / 1e3)
}

/// Settings of registrations.
#[derive(Args)]
pub struct Registration {
    /// Bytes of an area.
    #[arg(long)]
    size: usize,
    /// Number of registrations.
    #[arg(long)]
    times: u32,
}

/// Prints `register`, the median time of a registration in µs. Each one ends before the next one.
pub fn register(job: &Job, settings: &Registration) -> Result<(), Error> {
    if job.rank() == 0 {
        let mut times = Vec::new();
        for _ in 0..settings.times {
            let region = Region::zeroed(settings.size);
            let region = region.map_err(failed)?;
            let begun = Instant::now();
            let local = job.register(region).map_err(failed)?;
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            drop(local);
        }
        tell(&[("register", median_us(&times))]);
    }
    job.barrier().map_err(failed)
}
