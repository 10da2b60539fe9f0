//! Barriers, locks and notifications.

use crate::abi::call::{CallError, functions};
use crate::abi::objects::{New, Released, handled};
use crate::abi::pointers::{Room, Text};
use crate::job::{Limit, oik_job};
use crate::status::oik_status;
use oikaze::Job;
use oikaze::ffi::LockMode;
use oikaze::shared::LockGuard;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

functions! {
    /// Waits until all nodes have come here. Afterwards each node sees what the others wrote to
    /// shared arrays before. All nodes call it equally often. Thread-safe, but one barrier at a
    /// time.
    ///
    /// Errors: `OIK_INVALID` if a guard is alive; `OIK_MISMATCH` if another node calls another
    /// collective; `OIK_PEER_LOST`; `OIK_TIMEOUT`.
    oik_barrier(job: *mut oik_job) = job.job.barrier()?;
    /// Waits as `oik_barrier` does, with this time limit in seconds. Thread-safe, but one barrier
    /// at a time. After `OIK_TIMEOUT`, the next barrier goes on to wait for the same one, if the
    /// program calls no other collective before. What the node has written since the first call
    /// becomes visible with the collective after that.
    oik_barrier_for(job: *mut oik_job, seconds: Limit) = job.job.barrier_for(seconds)?;
}

/// A lock that this node holds.
pub struct oik_lock;

/// A held lock, until a thread gives it back.
pub struct KeptLock(Mutex<Option<LockGuard>>);

handled! { oik_lock: KeptLock, "lock"; }

impl KeptLock {
    fn of(guard: LockGuard) -> Self {
        Self(Mutex::new(Some(guard)))
    }
}

/// Modes of `oik_lock_take` and `oik_read_lock_take`.
const ALONE: LockMode = LockMode { reads: false, tries: false };
const READING: LockMode = LockMode { reads: true, ..ALONE };

/// Returns the lock that a request in this mode gets within `limit`, or within that of the job.
fn taken(
    job: &Job,
    number: u64,
    mode: LockMode,
    limit: Option<Duration>,
) -> Result<KeptLock, CallError> {
    job.lock_in_mode(number, mode, limit)?.map(KeptLock::of).ok_or_else(|| {
        CallError::new(oik_status::OIK_NOT_READY, "the lock is taken; try it again later")
    })
}

functions! {
    /// Takes the lock of this number, one of the job's 2^64. Waits within the job's time limit.
    /// Afterwards this node sees what its last holders wrote to shared arrays. Thread-safe.
    oik_lock_take(job: *mut oik_job, number: u64) -> lock: New<oik_lock> =
        taken(&job.job, number, ALONE, None)?;
    /// Writes the number of the lock of a name, which is 2^63 or more and the same on all nodes and
    /// in all languages. Errors then call the lock so. Two names have the same lock with a
    /// probability of 2^-63. Thread-safe.
    oik_lock_number(job: *mut oik_job, name: Text) -> number: Room<u64> =
        job.job.lock_number(name);
    /// Takes a lock as `oik_lock_take` does, with this time limit in seconds. Thread-safe.
    oik_lock_take_for(job: *mut oik_job, number: u64, seconds: Limit) -> lock: New<oik_lock> =
        taken(&job.job, number, ALONE, Some(seconds))?;
    /// Takes a lock as `oik_lock_take` does, if no other thread or node has it. A lock that another
    /// node gave back a moment ago may still count as taken. Thread-safe.
    ///
    /// Errors: `OIK_NOT_READY` at once if the lock is taken.
    oik_lock_try(job: *mut oik_job, number: u64) -> lock: New<oik_lock> =
        taken(&job.job, number, LockMode { tries: true, ..ALONE }, None)?;
    /// Takes a lock for reading. Waits within the job's time limit. Any number of threads and nodes
    /// can have a lock for reading at once, while none has it by `oik_lock_take`. Afterwards this
    /// node sees what the last holders wrote to shared arrays. Writes under the lock are not
    /// prevented, and two holders that write the same elements race. `oik_unlock` gives the lock
    /// back. Thread-safe.
    oik_read_lock_take(job: *mut oik_job, number: u64) -> lock: New<oik_lock> =
        taken(&job.job, number, READING, None)?;
    /// Takes a lock as `oik_read_lock_take` does, with this time limit in seconds. Thread-safe.
    oik_read_lock_take_for(job: *mut oik_job, number: u64, seconds: Limit) -> lock: New<oik_lock> =
        taken(&job.job, number, READING, Some(seconds))?;
    /// Takes a lock as `oik_read_lock_take` does, if no other thread or node has it by
    /// `oik_lock_take` or waits for it. Thread-safe.
    ///
    /// Errors: `OIK_NOT_READY` at once if the lock is taken.
    oik_read_lock_try(job: *mut oik_job, number: u64) -> lock: New<oik_lock> =
        taken(&job.job, number, LockMode { tries: true, ..READING }, None)?;
    /// Gives a lock back, so that the next holder sees what this node wrote. Thread-safe: any
    /// thread may give it back.
    oik_unlock(lock: Released<oik_lock>) = {
        let guard = lock.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        guard.map_or(Ok(()), LockGuard::release)?
    };
    /// Tells the node `to` that this node has come here. `to` sees what this node wrote to shared
    /// arrays before, once it has waited for the notification. Thread-safe.
    oik_notify(job: *mut oik_job, to: u32) = job.job.notify(to)?;
    /// Waits within the job's time limit for a notification of the node `from`. Thread-safe.
    oik_wait_notify(job: *mut oik_job, from: u32) = job.job.wait_notify(from)?;
    /// Waits as `oik_wait_notify` does, with this time limit in seconds. Thread-safe.
    oik_wait_notify_for(job: *mut oik_job, from: u32, seconds: Limit) =
        job.job.wait_notify_for(from, seconds)?;
}
