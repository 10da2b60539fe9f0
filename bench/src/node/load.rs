//! Latency and bandwidth for a while each, for measurements beside computing threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clap::Args;
use oikaze::Job;

use super::pair::{Pair, finish, percentile_us};
use super::{failed, tell};
use crate::error::Error;

/// Word that ends the ping-pong.
const STOP: u64 = u64::MAX;
/// Puts under way for bandwidth.
const WINDOW: usize = 16;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Duration of each half, in milliseconds.
    #[arg(long)]
    pub milliseconds: u64,
    /// Bytes of a put of the second half.
    #[arg(long)]
    pub bulk: usize,
}

/// Prints `p50` and `p99`, half a ping-pong of puts of 8 B in µs, and `bandwidth` of puts of `bulk`
/// bytes in GB/s.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let span = Duration::from_millis(settings.milliseconds);
    let mut times = {
        let pair = Pair::new(job, 8)?;
        let times = ping_pong(&pair, span)?;
        job.barrier().map_err(failed)?;
        times
    };
    let pair = Pair::named(job, "bulk", settings.bulk)?;
    let bandwidth = stream(&pair, span)?;
    if job.rank() == 0 {
        let (p50, p99) = (percentile_us(&mut times, 50), percentile_us(&mut times, 99));
        tell(&[("p50", p50), ("p99", p99), ("bandwidth", bandwidth)]);
    }
    Ok(())
}

fn ping_pong(pair: &Pair<'_>, span: Duration) -> Result<Vec<u64>, Error> {
    let mut times = Vec::new();
    let (mut flag, begun) = (0, Instant::now());
    if pair.job.rank() == 0 {
        while begun.elapsed() < span {
            flag += 1;
            let one = Instant::now();
            let _settles_by_itself = pair.put(flag)?;
            pair.see(|word| word == flag)?;
            times.push(u64::try_from(one.elapsed().as_nanos() / 2).unwrap_or(u64::MAX));
        }
        finish(&pair.put(STOP)?)?;
        return Ok(times);
    }
    loop {
        let seen = pair.see(|word| word != flag)?;
        if seen == STOP {
            return Ok(times);
        }
        flag = seen;
        let _settles_by_itself = pair.put(flag)?;
    }
}

/// Returns the bandwidth of puts, in GB/s.
fn stream(pair: &Pair<'_>, span: Duration) -> Result<f64, Error> {
    if pair.job.rank() != 0 {
        return pair.receive().map(|_| 0.0);
    }
    let mut under_way = VecDeque::new();
    let (mut bytes, begun) = (0_usize, Instant::now());
    while begun.elapsed() < span {
        if under_way.len() == WINDOW {
            under_way.pop_front().map_or(Ok(()), |first| finish(&first))?;
        }
        under_way.push_back(pair.there.put(pair.lands(), &pair.source));
        bytes += pair.size;
    }
    under_way.drain(..).try_for_each(|operation| finish(&operation))?;
    let seconds = begun.elapsed().as_secs_f64();
    finish(&pair.send(0))?;
    Ok(bytes as f64 / seconds / 1e9)
}
