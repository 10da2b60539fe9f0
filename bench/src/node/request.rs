//! Cost of a request from the application to the engine and back, without a network: a message of a
//! node to itself.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::message::Class;

use super::pair::{PATIENCE, finish, median_us, percentile_us};
use super::{failed, tell};
use crate::error::Error;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of requests.
    #[arg(long)]
    times: u32,
    /// Time between two requests in µs, in which an engine may fall asleep.
    #[arg(long, default_value_t = 0)]
    apart: u64,
}

/// Prints `request` and `p99`, the time from the call until the message is received, in µs.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let me = job.peer(job.rank()).map_err(failed)?;
    let mut times = Vec::new();
    for _ in 0..settings.times {
        super::wake::spin(std::time::Duration::from_micros(settings.apart));
        let begun = Instant::now();
        let sent = me.send(Class::Ordered, 0, &[0; 8]);
        job.receive_for(Some(job.rank()), PATIENCE).map_err(failed)?;
        times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        finish(&sent)?;
    }
    let median = median_us(&times);
    tell(&[("request", median), ("p99", percentile_us(&mut times, 99))]);
    Ok(())
}
