//! Mistakes that a user can make, and the error that each gives: what was tried, why it failed,
//! what to do. The error comes at once, never as a hang.

mod arrays;
mod jobs;
mod remote;
#[path = "../support/mod.rs"]
mod support;

use oikaze::{Class, Error, Homes, Job, Operation, ReduceOp, Region, Result, Rights};
use oikaze_launch::{Checksum, Secret, Settings};
use std::time::{Duration, Instant};
use support::{cluster, cluster_once, meet};

/// A wait that is meant to succeed, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A wait that is meant to fail.
const SHORT: Option<Duration> = Some(Duration::from_millis(200));

/// The failure of something that must fail, in words; all of these must be among them.
#[track_caller]
fn failure<T>(outcome: Result<T>, words: &[&str]) -> String {
    let text = outcome.err().expect("it must fail").to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    println!("{text}");
    text
}

/// Every node of a job of two runs `program`, and must fail with these words.
#[track_caller]
fn all_fail(words: &[&str], program: impl Fn(&Job) -> Result<()> + Sync) {
    for outcome in cluster(2, &Settings::default(), |job| program(&job)) {
        failure(outcome, words);
    }
}
