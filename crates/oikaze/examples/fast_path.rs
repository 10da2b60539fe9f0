//! Measures what a message between two processes of one machine costs each: two nodes in one
//! process, driven by one thread in turn, so that nothing is waited for.
//!
//! `cargo run --release -p oikaze --example fast [CASE [ROUNDS]]` prints nanoseconds of each
//! side; under `valgrind --tool=callgrind --toggle-collect='fast_path::send_all*'` (or
//! `receive_all*`) one side's instructions are counted, which no other load on the machine changes.

#[path = "../tests/support/mod.rs"]
mod support;

use oikaze::{Class, Job, Peer};
use oikaze_launch::Settings;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const BURST: u64 = 64;

/// How messages are sent and received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// One, and one back.
    Single,
    /// Several one after another, and as many back.
    Burst,
    /// The same, sent and received together.
    Batch,
}

#[inline(never)]
fn send_all(job: &Job, to: &Peer, case: Case, count: u64) {
    let send = |tag| drop(to.send(Class::Ordered, tag, &[7; 8]));
    match case {
        Case::Single | Case::Burst => (0..count).for_each(send),
        Case::Batch => job.batch(|| (0..count).for_each(send)),
    }
}

#[inline(never)]
fn receive_all(job: &Job, case: Case, count: u64) -> oikaze::Result<u64> {
    if case == Case::Batch {
        return Ok(job.receive_batch(count as usize, Some(PATIENCE)).len() as u64);
    }
    for _ in 0..count {
        job.receive(None, Some(PATIENCE))?;
    }
    Ok(count)
}

fn measure(jobs: &[Job], case: Case, rounds: usize) -> oikaze::Result<[f64; 2]> {
    let peers = [jobs[0].peer(1)?, jobs[1].peer(0)?];
    let count = if case == Case::Single { 1 } else { BURST };
    let mut best = [f64::MAX; 2];
    for _ in 0..5 {
        let mut spent = [Duration::ZERO; 2];
        for _ in 0..rounds / 5 {
            for from in 0..2 {
                let begun = Instant::now();
                send_all(&jobs[from], &peers[from], case, count);
                let sent = Instant::now();
                assert_eq!(receive_all(&jobs[1 - from], case, count)?, count);
                spent = [spent[0] + (sent - begun), spent[1] + sent.elapsed()];
            }
        }
        let messages = (2 * count) as f64 * (rounds / 5) as f64;
        best = [0, 1].map(|side| best[side].min(spent[side].as_nanos() as f64 / messages));
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cases = [("single", Case::Single), ("burst", Case::Burst), ("batch", Case::Batch)];
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next();
    let rounds = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let jobs = support::cluster_once(2, &Settings::default(), |job| job);
    for (name, case) in
        cases.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name))
    {
        let rounds = if case == Case::Single { rounds } else { rounds / BURST as usize };
        let [sent, received] = measure(&jobs, case, rounds)?;
        println!("{name:7} send {sent:7.1} ns  receive {received:7.1} ns");
    }
    // Each waits for the other.
    std::thread::scope(|threads| {
        jobs.into_iter().for_each(|job| drop(threads.spawn(|| drop(job))))
    });
    Ok(())
}
