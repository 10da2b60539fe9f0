//! Serial program without nodes. It is the oracle of the parallel program.

use std::time::{Duration, Instant};

use oikaze_apps::{Fingerprint, Progress};

use crate::Outcome;
use crate::keys::{Keys, hash};

/// Sorts on one processor.
///
/// # Errors
/// There is not enough memory.
pub fn solve(keys: Keys, rounds: u32, mut progress: Progress) -> Result<Outcome, String> {
    let (mut hashes, mut time) = (Fingerprint::new(), Duration::ZERO);
    for round in 0..rounds {
        let mut all = keys.make(round, 0..keys.count)?;
        let started = Instant::now();
        all.sort_unstable();
        time += started.elapsed();
        hashes.u64s(&[hash(0, &all)]);
        progress.step();
    }
    progress.finish();
    let (hash, seconds) = (hashes.value(), time.as_secs_f64());
    Ok(Outcome { hash, largest_share: keys.count, seconds })
}
