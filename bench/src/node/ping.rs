//! Ping-pong of puts as paper 003 measured its five cases: the time of all turns, divided.

use std::time::{Duration, Instant};

use clap::Args;
use oikaze::Job;

use super::pair::{PATIENCE, Pair, finish};
use super::{failed, tell};
use crate::error::Error;

/// Offset of the word by which a second message tells the end of the first.
const TOLD: u64 = 0;
/// Offset of the source of that word.
const TELLS: u64 = 64;
/// Interval at which a sender looks for the end of its transfer, in case 5.
const INTERVAL: Duration = Duration::from_micros(10);

/// Settings of the ping-pong.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a transfer.
    #[arg(long)]
    size: usize,
    /// Number of turns.
    #[arg(long)]
    turns: u32,
    /// Tell the end of each transfer by a second message, which the sender sends when it has seen
    /// the end.
    #[arg(long)]
    second_message: bool,
}

/// Prints `one_way`, the mean time of one way in µs.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, settings.size)?;
    let warm_up = settings.turns / 10;
    let mut begun = Instant::now();
    for turn in 0..settings.turns + warm_up {
        if turn == warm_up {
            begun = Instant::now();
        }
        let flag = u64::from(turn) + 1;
        if job.rank() == 0 {
            send(&pair, settings, flag)?;
            receive(&pair, settings, flag)?;
        } else {
            receive(&pair, settings, flag)?;
            send(&pair, settings, flag)?;
        }
    }
    let one_way = begun.elapsed().as_secs_f64() * 1e6 / f64::from(settings.turns) / 2.0;
    job.barrier().map_err(failed)?;
    if job.rank() == 0 {
        tell(&[("one_way", one_way)]);
    }
    Ok(())
}

fn send(pair: &Pair<'_>, settings: &Settings, flag: u64) -> Result<(), Error> {
    let operation = pair.put(flag)?;
    if !settings.second_message {
        return Ok(()); // the answer shows that it has arrived
    }
    let mut begun = Instant::now();
    while !operation.is_done() {
        // The sender looks now and then; meanwhile it computes, as the paper's sender did.
        if begun.elapsed() >= INTERVAL {
            let _not_yet = operation.wait_for(Duration::ZERO);
            begun = Instant::now();
        }
        std::hint::spin_loop();
    }
    finish(&operation)?;
    pair.local.store_u64(TELLS, flag).map_err(failed)?;
    let word = pair.local.slice(TELLS as usize..TELLS as usize + 8).map_err(failed)?;
    let _settles_by_itself = pair.there.put(TOLD, word);
    Ok(())
}

fn receive(pair: &Pair<'_>, settings: &Settings, flag: u64) -> Result<(), Error> {
    if settings.second_message {
        let from = pair.peer.rank();
        let told = pair.local.wait_until_by_for(from, TOLD, PATIENCE, |word| word == flag);
        return told.map(drop).map_err(failed);
    }
    pair.see(|word| word == flag).map(drop)
}
