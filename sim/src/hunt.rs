//! Runs many seeds on several threads. Each run has one thread for itself.

use crate::oracle::Ends;
use crate::plan::Scenario;
use crate::run::{Outcome, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};

/// Seeds to run, and how to run them.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// First seed to run.
    pub from: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of threads.
    pub jobs: usize,
    /// Scenario of all runs; `None` leaves it to each seed.
    pub scenario: Option<Scenario>,
    /// Set if the hunt ends at the first failure.
    pub stop_at_first: bool,
}

/// Results of all runs of a hunt.
#[derive(Debug, Default)]
pub struct Hunted {
    /// Number of seeds that were run.
    pub runs: u64,
    /// Number of datagrams sent in all runs.
    pub datagrams: u64,
    /// Outcomes of the operations that were in flight when nodes died.
    pub ends: Ends,
    /// Number of confirmed additions of 1 in all runs.
    pub counted: u64,
    /// Number of registrations that ended in all runs.
    pub registrations: u64,
    /// Virtual time of all runs, in nanoseconds.
    pub time: u64,
    /// Failed runs, in order of their seeds.
    pub failures: Vec<Outcome>,
}

/// Runs seeds, and calls `report` after each.
pub fn hunt(hunt: &Hunt, report: impl Fn(&Hunted) + Sync) -> Hunted {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let hunted = Mutex::new(Hunted::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= hunt.seeds {
                return;
            }
            let seed = hunt.from + at;
            let outcome =
                run(seed, hunt.scenario.unwrap_or_else(|| Scenario::of_seed(seed)), false);
            let mut hunted = lock(&hunted);
            hunted.runs += 1;
            match &outcome.result {
                Ok(summary) => {
                    hunted.datagrams += summary.datagrams;
                    hunted.ends.add(&summary.ends);
                    hunted.counted += summary.counted;
                    hunted.registrations += summary.registrations;
                    hunted.time += summary.time;
                }
                Err(_) => {
                    stop.fetch_or(hunt.stop_at_first, Ordering::Relaxed);
                    hunted.failures.push(outcome);
                }
            }
            report(&hunted);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..hunt.jobs.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let mut hunted = hunted.into_inner().unwrap_or_else(PoisonError::into_inner);
    hunted.failures.sort_by_key(|outcome| outcome.seed);
    hunted
}

fn lock(hunted: &Mutex<Hunted>) -> MutexGuard<'_, Hunted> {
    hunted.lock().unwrap_or_else(PoisonError::into_inner)
}
