//! Runs a job of several nodes in one process, each on its own thread, over loopback.

use oikaze::Job;
use oikaze_launch::{Bootstrap, JobError, Secret, Settings};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Store {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
    aborted: Mutex<Option<String>>,
}

struct Place {
    rank: u32,
    size: u32,
    secret: Secret,
    settings: Settings,
    store: Arc<Store>,
}

impl Bootstrap for Place {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn local_rank(&self) -> u32 {
        self.rank
    }
    fn local_size(&self) -> u32 {
        self.size
    }
    fn secret(&self) -> &Secret {
        &self.secret
    }
    fn incarnation(&self) -> u64 {
        1
    }
    fn settings(&self) -> &Settings {
        &self.settings
    }
    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        self.store.values.lock().unwrap().insert(key.to_owned(), value.to_vec());
        self.store.changed.notify_all();
        Ok(())
    }
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        let deadline = Instant::now() + timeout;
        let mut values = self.store.values.lock().unwrap();
        loop {
            if let Some(value) = values.get(key) {
                return Ok(value.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (what, missing) = (key.to_owned(), "it".to_owned());
                return Err(JobError::TimedOut { what, limit: timeout, missing });
            }
            values = self.store.changed.wait_timeout(values, left).unwrap().0;
        }
    }
    fn fence(&self, _: &str, _: Duration) -> Result<(), JobError> {
        Ok(())
    }
    fn abort(&self, why: &str) {
        self.store.aborted.lock().unwrap().get_or_insert_with(|| why.to_owned());
    }
    fn aborted(&self) -> Option<String> {
        self.store.aborted.lock().unwrap().clone()
    }
}

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
    let store = Arc::new(Store::default());
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..size)
            .map(|rank| {
                let (size, settings, secret) = of(rank);
                let place = Place { rank, size, secret, settings, store: Arc::clone(&store) };
                let (program, store) = (&program, &store);
                let abort = |why: &str| *store.aborted.lock().unwrap() = Some(why.to_owned());
                scope.spawn(move || program(&abort, oikaze::join_as(Box::new(place))))
            })
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    })
}
