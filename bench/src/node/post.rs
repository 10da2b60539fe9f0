//! Cost of a put for its caller: from call to return, and processor time (paper 001's 5 µs; paper
//! 000's T1).

use std::collections::VecDeque;
use std::time::Instant;

use clap::Args;
use oikaze::Job;

use super::pair::{Pair, finish, median_us, thread_time};
use super::tell;
use crate::error::Error;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a put.
    #[arg(long)]
    pub size: usize,
    /// Puts one at a time.
    #[arg(long)]
    pub singles: u32,
    /// Puts of a burst, whose processor time is taken together.
    #[arg(long)]
    pub burst: u32,
    /// Number of bursts.
    #[arg(long)]
    pub bursts: u32,
}

/// Prints `post`, the median time of a call in µs, and `processor`, the caller's processor time of
/// a put in a burst in µs.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, settings.size)?;
    if job.rank() != 0 {
        return pair.receive().map(drop);
    }
    let mut posts = Vec::new();
    let warm_up = settings.singles / 10;
    for turn in 0..settings.singles + warm_up {
        let begun = Instant::now();
        let operation = pair.there.put(pair.lands(), &pair.source);
        let taken = begun.elapsed().as_nanos();
        finish(&operation)?;
        if turn >= warm_up {
            posts.push(u64::try_from(taken).unwrap_or(u64::MAX));
        }
    }
    let mut processor = Vec::new();
    let mut under_way = VecDeque::new();
    for _ in 0..settings.bursts {
        let before = thread_time();
        for _ in 0..settings.burst {
            under_way.push_back(pair.there.put(pair.lands(), &pair.source));
        }
        processor.push((thread_time() - before) / u64::from(settings.burst.max(1)));
        under_way.drain(..).try_for_each(|operation| finish(&operation))?;
    }
    finish(&pair.send(0))?;
    tell(&[("post", median_us(&posts)), ("processor", median_us(&processor))]);
    Ok(())
}
