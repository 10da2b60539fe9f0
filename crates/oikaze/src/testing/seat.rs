//! Places in a job whose nodes are threads of one process.

use oikaze_launch::{Bootstrap, JobError, Secret, Settings};
use oikaze_runtime::node::lock;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Store of a job whose nodes are threads of one process.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct SeatStore {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
    aborted: Mutex<Option<String>>,
}

impl SeatStore {
    fn values(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the job for this reason. A later reason takes its place, as a launcher's does.
    pub fn end(&self, why: &str) {
        *lock(&self.aborted) = Some(why.to_owned());
    }
}

/// Place of one node in such a job.
#[doc(hidden)]
#[derive(Debug)]
pub struct Seat {
    /// Rank of the node.
    pub rank: u32,
    /// Number of nodes.
    pub size: u32,
    /// Secret of the job.
    pub secret: Secret,
    /// Settings of the job.
    pub settings: Settings,
    /// Store in which the nodes meet.
    pub store: Arc<SeatStore>,
}

impl Bootstrap for Seat {
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
    fn is_one_process(&self) -> bool {
        true
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
        self.store.values().insert(key.to_owned(), value.to_vec());
        self.store.changed.notify_all();
        Ok(())
    }
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, JobError> {
        let begun = Instant::now();
        let mut values = self.store.values();
        loop {
            if let Some(value) = values.get(key) {
                return Ok(value.clone());
            }
            if let Some(why) = self.aborted() {
                return Err(JobError::Aborted { why });
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let (what, missing) =
                    (format!("publication of {key:?}"), "nobody published it".to_owned());
                return Err(JobError::TimedOut { what, limit: timeout, missing });
            }
            let woken = self.store.changed.wait_timeout(values, left);
            values = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    fn fence(&self, _: &str, _: Duration) -> Result<(), JobError> {
        Ok(())
    }
    fn abort(&self, why: &str) {
        lock(&self.store.aborted).get_or_insert_with(|| why.to_owned());
        // Taken in turn, so that a thread which is about to wait is woken.
        drop(self.store.values());
        self.store.changed.notify_all();
    }
    fn aborted(&self) -> Option<String> {
        lock(&self.store.aborted).clone()
    }
}
