//! Runs a job of several nodes in one process, each on its own thread, over loopback.

use oikaze::Job;
use oikaze::internal::{Seat, SeatStore, join_as};
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
    let secret = Secret::random().unwrap();
    meet(size, |_| (size, settings.clone(), secret.clone()), |_, job| program(job.unwrap()))
}

/// Runs nodes as [`cluster`] does, with the size, settings and secret that each rank has. `program`
/// gets the result of joining, and a function that ends the job for a reason, as a launcher does.
#[allow(dead_code)]
pub fn meet<T: Send>(
    size: u32,
    of: impl Fn(u32) -> (u32, Settings, Secret),
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
                scope.spawn(move || program(&end, join_as(Box::new(seat))))
            })
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    })
}
