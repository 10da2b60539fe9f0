//! Barriers, locks and notifications.

use crate::call::run;
use crate::job::{limit, oik_job};
use crate::objects::{find, handled, keep, take};
use crate::pointers::place;
use crate::status::oik_status;
use oikaze::shared::LockGuard;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// Waits until all nodes have come here. Afterwards each node sees what the others wrote to shared
/// arrays before. All nodes call it equally often. Thread-safe, but one barrier at a time.
///
/// Errors: `OIK_INVALID` if a guard is alive; `OIK_MISMATCH` if another node calls another
/// collective; `OIK_PEER_LOST`; `OIK_TIMEOUT`.
#[unsafe(no_mangle)]
pub extern "C" fn oik_barrier(job: *mut oik_job) -> oik_status {
    run(|| Ok(find(job)?.job.barrier()?))
}

/// Waits as `oik_barrier` does, with this time limit in seconds. Thread-safe, but one barrier at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn oik_barrier_for(job: *mut oik_job, seconds: f64) -> oik_status {
    run(|| Ok(find(job)?.job.barrier_for(limit(seconds)?)?))
}

/// A lock that this node holds.
pub struct oik_lock;

/// A held lock, until a thread gives it back.
pub struct KeptLock(Mutex<Option<LockGuard>>);

handled! { oik_lock: KeptLock, "lock"; }

/// Takes the lock of this number, one of the job's 2^64. Waits within the job's time limit.
/// Afterwards this node sees what its last holders wrote to shared arrays. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_lock_take(
    job: *mut oik_job,
    number: u64,
    lock: Option<&mut MaybeUninit<*mut oik_lock>>,
) -> oik_status {
    run(|| {
        let out = place(lock, "lock")?;
        let guard = find(job)?.job.lock(number)?;
        keep(out, KeptLock(Mutex::new(Some(guard)))).map(drop)
    })
}

/// Takes a lock as `oik_lock_take` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_lock_take_for(
    job: *mut oik_job,
    number: u64,
    seconds: f64,
    lock: Option<&mut MaybeUninit<*mut oik_lock>>,
) -> oik_status {
    run(|| {
        let out = place(lock, "lock")?;
        let guard = find(job)?.job.lock_for(number, limit(seconds)?)?;
        keep(out, KeptLock(Mutex::new(Some(guard)))).map(drop)
    })
}

/// Gives a lock back, so that the next holder sees what this node wrote. Thread-safe: any thread
/// may give it back.
#[unsafe(no_mangle)]
pub extern "C" fn oik_unlock(lock: *mut oik_lock) -> oik_status {
    run(|| {
        let kept = take(lock)?;
        let guard = kept.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(guard.map_or(Ok(()), LockGuard::release)?)
    })
}

/// Tells the node `to` that this node has come here. `to` sees what this node wrote to shared
/// arrays before, once it has waited for the notification. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_notify(job: *mut oik_job, to: u32) -> oik_status {
    run(|| Ok(find(job)?.job.notify(to)?))
}

/// Waits within the job's time limit for a notification of the node `from`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_wait_notify(job: *mut oik_job, from: u32) -> oik_status {
    run(|| Ok(find(job)?.job.wait_notify(from)?))
}

/// Waits as `oik_wait_notify` does, with this time limit in seconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn oik_wait_notify_for(job: *mut oik_job, from: u32, seconds: f64) -> oik_status {
    run(|| Ok(find(job)?.job.wait_notify_for(from, limit(seconds)?)?))
}
