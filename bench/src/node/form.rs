//! Application of paper 002 and its receiver: sends in a row, and an answer behind them.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::message::Class;

use super::pair::{Pair, finish, median_us};
use super::{failed, tell};
use crate::error::{Error, Tried};

/// Settings of an application.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a send.
    #[arg(long)]
    pub size: usize,
    /// Sends before an answer.
    #[arg(long)]
    pub sends: u32,
    /// Number of measurements.
    #[arg(long)]
    pub turns: u32,
    /// Send without end, as the second application does.
    #[arg(long)]
    pub endless: bool,
}

/// Tag of the message that has an answer.
const LAST: u64 = 1;

/// Prints `turn`, the median time of all sends and the answer in ms. The endless application says
/// `ready` once it sends, and is ended by the bench.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, settings.size)?;
    if job.rank() != 0 {
        return answer(&pair, settings);
    }
    if settings.endless {
        return send_without_end(&pair, settings);
    }
    let mut times = Vec::new();
    for turn in 0..=settings.turns {
        let begun = Instant::now();
        let sent: Vec<_> = (1..=settings.sends)
            .map(|n| {
                let tag = if n == settings.sends { LAST } else { 0 };
                pair.peer.send_from(Class::Ordered, tag, pair.source.clone())
            })
            .collect();
        pair.receive()?;
        if turn > 0 {
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        sent.iter().try_for_each(finish)?;
    }
    job.barrier().map_err(failed)?;
    tell(&[("turn", median_us(&times) / 1e3)]);
    Ok(())
}

fn send_without_end(pair: &Pair<'_>, settings: &Settings) -> Result<(), Error> {
    let mut under_way = VecDeque::new();
    let mut said = false;
    loop {
        if under_way.len() >= settings.sends as usize {
            under_way.pop_front().map_or(Ok(()), |first| finish(&first))?;
            if !said {
                let mut out = std::io::stdout();
                writeln!(out, "ready").and_then(|()| out.flush()).tried("telling the bench")?;
                said = true;
            }
        }
        under_way.push_back(pair.peer.send_from(Class::Ordered, 0, pair.source.clone()));
    }
}

fn answer(pair: &Pair<'_>, settings: &Settings) -> Result<(), Error> {
    if settings.endless {
        loop {
            pair.job.receive(Some(pair.peer.rank())).map_err(failed)?;
        }
    }
    for _ in 0..=settings.turns {
        loop {
            let message = pair.job.receive(Some(pair.peer.rank())).map_err(failed)?;
            if message.tag() == LAST {
                break;
            }
        }
        let _settles_by_itself = pair.send(0);
    }
    pair.job.barrier().map_err(failed)
}
