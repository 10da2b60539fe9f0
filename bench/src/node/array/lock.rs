//! Lock that is passed between nodes, with data that each holder writes.

use std::time::Instant;

use clap::Args;
use oikaze::Job;
use oikaze::prelude::{Collectives, Sum};
use oikaze::shared::builder::Homes;

use crate::error::Error;
use crate::node::output::{failed, tell};
use crate::record::median;

/// Number of the lock.
const LOCK: u64 = 1;

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Number of writes by all nodes, with each home.
    #[arg(long)]
    iterations: u64,
    /// Bytes of data that each holder reads and writes. The first element is the number of writes.
    #[arg(long, default_value_t = size_of::<u64>())]
    bytes: usize,
}

/// Number of a node's writes in one block of the measurement.
const BLOCK: u64 = 16;

/// Prints `us`, the time of a hand-over: from one node's write to that of the next holder, which is
/// another node. Every holder writes, and asks again at once, so all other nodes are in the queue
/// before it. A node that gets the lock twice in a row gives it back without a write, and `repeats`
/// counts that. Each node in turn is home of the data. The time is the median of blocks of writes
/// of rank 0 with one home, and the mean of all homes.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let len = settings.bytes / size_of::<u64>();
    let (mut us, mut repeats) = (0.0, 0_u64);
    for home in 0..job.size() {
        let homes = Homes::Explicit(vec![home; settings.bytes.div_ceil(4096)]);
        let data = job.array_with_homes::<u64>("data", len, homes).map_err(failed)?;
        job.barrier().map_err(failed)?;
        let (mut last, mut writes, mut blocks) = (None, 0, Vec::new());
        let mut begun = (Instant::now(), 0);
        loop {
            let held = job.lock(LOCK).map_err(failed)?;
            let found = data.read(0..len).map_err(failed)?[0];
            let is_repeated = last == Some(found);
            if found < settings.iterations && !is_repeated {
                data.write(0..len).map_err(failed)?.iter_mut().for_each(|word| *word += 1);
                (last, writes) = (Some(found + 1), writes + 1);
            }
            held.release().map_err(failed)?;
            if found == settings.iterations {
                break;
            }
            repeats += u64::from(is_repeated);
            if !is_repeated && writes % BLOCK == 0 {
                blocks.push(begun.0.elapsed().as_secs_f64() / (found - begun.1) as f64);
                begun = (Instant::now(), found);
            }
        }
        job.barrier().map_err(failed)?;
        us += median(&blocks).unwrap_or(f64::NAN) * 1e6 / f64::from(job.size());
        let wrong = |word: &&u64| **word != settings.iterations;
        if let Some(number) = data.read(0..len).map_err(failed)?.iter().find(wrong) {
            let writes = settings.iterations;
            return Err(Error::new(format!("{number} of {writes} writes are there (a defect)")));
        }
        data.free().map_err(failed)?;
    }
    let repeats = job.all_reduce(repeats, Sum).map_err(failed)?;
    if job.rank() == 0 {
        tell(&[("us", us), ("repeats", repeats as f64)]);
    }
    Ok(())
}
