//! Mistakes of a user, and their errors. Each error says what was tried, why it failed and what to
//! do. It comes at once, never as a hang.

mod arrays;
mod jobs;
mod remote;
#[path = "../support/mod.rs"]
mod support;

use oikaze::atomic::Combine;
use oikaze::collective::operator::Sum;
use oikaze::completion::Operation;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze::shared::SharedArray;
use oikaze::shared::builder::{Distribution, Homes};
use oikaze::{Error, Job, Result};
use oikaze_launch::{Seal, Secret, Settings};
use std::time::{Duration, Instant};
use support::{cluster, cluster_in_both_ways, cluster_once, meet};

/// Time limit of a wait that should succeed, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit of a wait that should fail.
const SHORT: Duration = Duration::from_millis(200);

/// Returns the text of an outcome that must be an error with all of these words.
#[track_caller]
fn failure<T>(outcome: Result<T>, words: &[&str]) -> String {
    let text = outcome.err().expect("it must fail").to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    println!("{text}");
    text
}

/// Runs `program` on both nodes of a job of two, and checks that each fails with these words.
#[track_caller]
fn all_fail(words: &[&str], program: impl Fn(&Job) -> Result<()> + Sync) {
    for outcome in cluster(2, &Settings::default(), |job| program(&job)) {
        failure(outcome, words);
    }
}

/// Checks as [`all_fail`] does, in both ways of arrays.
#[track_caller]
fn all_fail_in_both_ways(words: &[&str], program: impl Fn(&Job) -> Result<()> + Sync) {
    cluster_in_both_ways(2, &Settings::default(), |job| {
        failure(program(&job), words);
    });
}
