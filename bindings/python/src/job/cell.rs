//! State that all objects of a job share.

use crate::interpreter::buffer::{Loan, Memory};
use crate::interpreter::error::{invalid, left};
use crate::interpreter::finalization::detached;
use crate::operation::Running;
use oikaze::memory::{LocalRegion, RegionSlice};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The job, shared by all objects that were made from it.
pub struct JobCell {
    /// `None` once this process has left.
    pub(super) job: Mutex<Option<Arc<oikaze::Job>>>,
    pub(super) rank: u32,
    pub(super) size: u32,
    /// Operations whose Python objects are gone, with memory that they still use.
    pub(super) running: Mutex<Vec<Running>>,
    /// Registered regions of this node by their first address: end, and region.
    pub(super) regions: Mutex<BTreeMap<usize, (usize, LocalRegion)>>,
}

/// Locks what threads share, also after one has panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JobCell {
    /// Returns the job, unless this process has left it.
    pub fn get(&self, py: Python<'_>) -> PyResult<Arc<oikaze::Job>> {
        lock(&self.job).clone().ok_or_else(|| left(py))
    }

    /// Returns the time limit of waits that are given none.
    pub fn time_limit(&self) -> Option<Duration> {
        lock(&self.job).as_ref().and_then(|job| job.time_limit())
    }

    /// Keeps an operation and its memory until the operation has ended.
    pub fn keep_running(&self, running: Running) {
        lock(&self.running).push(running);
    }

    /// Releases memory of operations that have ended. Called when memory is lent again, so that the
    /// list stays short.
    pub fn release_ended(&self) {
        let ended: Vec<Running> = {
            let mut running = lock(&self.running);
            running.extract_if(.., |one| !one.is_running()).collect()
        };
        // Dropped without the lock: that may run destructors of the program, which may lend memory.
        drop(ended);
    }

    /// Notes a region, so that operations on views of it need no registration of their own.
    pub fn add_region(&self, region: &LocalRegion) {
        if let Some(range) = region.addresses().filter(|range| !range.is_empty()) {
            let replaced = lock(&self.regions).insert(range.start, (range.end, region.clone()));
            // Dropped without the lock: that may take the engine.
            drop(replaced);
        }
    }

    /// Forgets the region at this address.
    pub fn remove_region(&self, start: usize) {
        // Dropped without the lock: that may take the engine.
        let removed = lock(&self.regions).remove(&start);
        drop(removed);
    }

    /// Returns the slice of a registered region that these addresses are.
    pub fn slice_at(&self, start: usize, len: usize) -> Option<RegionSlice> {
        let regions = lock(&self.regions);
        let (first, (end, region)) = regions.range(..=start).next_back()?;
        let offset = start - first;
        (start.checked_add(len)? <= *end).then(|| region.slice(offset..offset + len).ok()).flatten()
    }

    /// Returns memory as source or destination of an operation, and what keeps it.
    pub fn lend(
        &self,
        py: Python<'_>,
        job: &oikaze::Job,
        memory: Memory,
        writable: bool,
    ) -> PyResult<(RegionSlice, Option<Loan>)> {
        if let Some(slice) = self.slice_at(memory.address(), memory.span()) {
            return Ok((slice, None));
        }
        self.release_ended();
        let loan = Loan::new(py, job, memory, writable)?;
        let Some(registered) = loan.registered() else {
            return Err(invalid(py, "lending memory", "it is not registered", "try again"));
        };
        Ok((registered.all(), Some(loan)))
    }

    pub(super) fn take(&self) -> Option<Arc<oikaze::Job>> {
        lock(&self.job).take()
    }
}

impl Drop for JobCell {
    fn drop(&mut self) {
        // A dropped job waits for the other nodes, and the interpreter's lock is not needed for it.
        if let Some(job) = self.take() {
            Python::try_attach(|py| detached(py, || drop(job)));
        }
    }
}
