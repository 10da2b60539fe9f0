//! Runs a job of several nodes in one process, each on its own thread, over loopback.

#[allow(dead_code)]
pub mod both_ways;

use both_ways::of_pages;
use oikaze::Job;
use oikaze::internal::{Seat, SeatStore, join_as, join_as_without};
use oikaze::job::Feature;
use oikaze_launch::{Secret, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends threads that run until this value is dropped, also when a test fails.
#[allow(dead_code)]
pub struct Until<'a>(pub &'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns `settings` for a job over the network. Nodes with injected faults share no memory, and
/// this sequence injects none.
#[allow(dead_code)]
pub fn over_the_network(settings: &Settings) -> Settings {
    let fault = settings.fault.clone().or_else(|| Some("seed=1".to_owned()));
    Settings { fault, ..settings.clone() }
}

/// Runs `program` on `size` nodes at once, each on its own thread. Runs it over the network, and
/// then through shared memory unless `settings` has faults for the network. Returns the results of
/// the last run, by rank.
#[allow(dead_code)]
pub fn cluster<T: Send>(
    size: u32,
    settings: &Settings,
    program: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    if settings.fault.is_none() {
        cluster_once(size, &over_the_network(settings), &program);
    }
    cluster_once(size, settings, program)
}

/// Runs `program` as [`cluster`] does, with arrays whose pages each node keeps for itself, also
/// through shared memory (COH-16.1). For tests of what happens to pages.
#[allow(dead_code)]
pub fn cluster_of_pages<T: Send>(
    size: u32,
    settings: &Settings,
    program: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    if settings.fault.is_none() {
        cluster_once(size, &over_the_network(settings), &program);
    }
    cluster_without(size, settings, |_| of_pages(), program)
}

/// Runs `program` as [`cluster`] does, and once more through shared memory with arrays whose pages
/// each node keeps for itself, because the last node does without the other way (COH-16.1). For
/// tests of what a program may rely on.
#[allow(dead_code)]
pub fn cluster_in_both_ways<T: Send>(
    size: u32,
    settings: &Settings,
    program: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    let results = cluster(size, settings, &program);
    if settings.fault.is_none() {
        let of_last = |rank| if rank + 1 == size { of_pages() } else { Vec::new() };
        cluster_without(size, settings, of_last, program);
    }
    results
}

/// Runs `program` on two nodes as [`cluster`] does. When all that it holds has ended, both come to
/// a barrier.
#[allow(dead_code)]
pub fn pair(program: impl Fn(&Job) + Sync) {
    cluster(2, &Settings::default(), |job| {
        program(&job);
        job.barrier().unwrap();
    });
}

/// Runs `program` on `size` nodes at once, each on its own thread. Returns the results, by rank.
#[allow(dead_code)]
pub fn cluster_once<T: Send>(
    size: u32,
    settings: &Settings,
    program: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    cluster_without(size, settings, |_| Vec::new(), program)
}

/// Runs `program` as [`cluster_once`] does. `without` returns the features that a rank does
/// without.
#[allow(dead_code)]
fn cluster_without<T: Send>(
    size: u32,
    settings: &Settings,
    without: impl Fn(u32) -> Vec<Feature>,
    program: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    let secret = Secret::random().unwrap();
    let of = |_| (size, settings.clone(), secret.clone());
    meet_without(size, of, without, |_, job| program(job.unwrap()))
}

/// Runs nodes as [`cluster`] does, with the size, settings and secret that each rank has. `program`
/// gets the result of joining, and a function that ends the job for a reason, as a launcher does.
#[allow(dead_code)]
pub fn meet<T: Send>(
    size: u32,
    of: impl Fn(u32) -> (u32, Settings, Secret),
    program: impl Fn(&dyn Fn(&str), oikaze::Result<Job>) -> T + Sync,
) -> Vec<T> {
    meet_without(size, of, |_| Vec::new(), program)
}

/// Runs nodes as [`meet`] does, without the features that `without` returns for a rank. If there
/// are any, the environment switches off none.
fn meet_without<T: Send>(
    size: u32,
    of: impl Fn(u32) -> (u32, Settings, Secret),
    without: impl Fn(u32) -> Vec<Feature>,
    program: impl Fn(&dyn Fn(&str), oikaze::Result<Job>) -> T + Sync,
) -> Vec<T> {
    let store = Arc::new(SeatStore::default());
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..size)
            .map(|rank| {
                let (size, settings, secret) = of(rank);
                let seat = Seat { rank, size, secret, settings, store: Arc::clone(&store) };
                let (program, store) = (&program, &store);
                let end = |why: &str| store.end(why);
                let without = without(rank);
                let join = move || match without.is_empty() {
                    true => join_as(Box::new(seat)),
                    false => join_as_without(Box::new(seat), without),
                };
                scope.spawn(move || program(&end, join()))
            })
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    })
}
