//! Processor time of a job whose nodes only wait.

use std::time::{Duration, Instant};

use clap::Args;
use oikaze::Job;

use super::pair::{Pair, process_time};
use super::tell;
use crate::error::Error;

/// Time until a node that learns how to wait has settled.
const SETTLES: Duration = Duration::from_millis(300);

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Time to wait, in milliseconds.
    #[arg(long)]
    milliseconds: u64,
}

/// Prints `share`, the larger share of a core that one of the two nodes has used, in percent.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, 8)?;
    let wait = |time| job.receive_for(Some(pair.peer.rank()), time).is_ok();
    let disturbed = wait(SETTLES);
    let (before, begun) = (process_time(), Instant::now());
    let disturbed = wait(Duration::from_millis(settings.milliseconds)) || disturbed;
    let spent = (process_time() - before) as f64 / 1e9;
    let share = spent / begun.elapsed().as_secs_f64() * 100.0;
    if disturbed {
        return Err(Error::new("a message came to a node that was to be idle"));
    }
    job.barrier().map_err(super::failed)?;
    if job.rank() == 0 {
        let other = f64::from_bits(pair.receive()?);
        tell(&[("share", share.max(other))]);
        return Ok(());
    }
    super::pair::finish(&pair.send(share.to_bits()))
}
