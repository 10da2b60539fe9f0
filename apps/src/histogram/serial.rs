//! Serial program without nodes and shared memory. It is the oracle of the parallel program.

use std::time::Instant;

use oikaze_apps::{Fingerprint, Progress};
use oikaze_kernels::histogram::fullest;

use crate::Outcome;
use crate::keys::Keys;

/// Counts on one processor.
#[must_use]
pub fn solve(keys: Keys, iterations: u32, mut progress: Progress) -> Outcome {
    let (mut counts, mut total) = (vec![0; keys.bins], vec![0; keys.bins]);
    let mut peaks = Fingerprint::new();
    let started = Instant::now();
    for round in 0..iterations {
        counts.fill(0);
        keys.count(round, 0..keys.count, &mut counts);
        for (total, count) in total.iter_mut().zip(&counts) {
            *total += count;
        }
        peaks.u64s(&fullest(&total));
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.finish();
    let mut hash = Fingerprint::new();
    hash.u64s(&total);
    Outcome { hash: hash.value(), peaks: peaks.value(), seconds }
}
