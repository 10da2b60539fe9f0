//! Locks between nodes.

use crate::error::Result;
use oikaze_runtime::node::{AcquiredLock, Node};
use std::sync::Arc;
use std::time::Duration;

/// Guard of a lock that this node holds. Dropping the guard gives the lock back. Writes under the
/// lock are visible to its next holder.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let total = job.array::<u64>("total", 1)?;
/// {
///     let _held = job.lock(5)?;
///     total.write(0..1)?[0] += 1; // sees the writes of earlier holders
/// }
/// job.barrier()?;
/// assert_eq!(total.read(0..1)?[0], u64::from(job.size()));
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is given back at once"]
pub struct LockGuard {
    node: Arc<Node>,
    /// `None` once it is given back.
    held: Option<AcquiredLock>,
    limit: Option<Duration>,
}

impl LockGuard {
    /// Acquires the lock within `limit`. The guard gives it back within `of_job`.
    #[track_caller]
    pub(crate) fn acquire(
        node: &Arc<Node>,
        lock: u64,
        limit: Option<Duration>,
        of_job: Option<Duration>,
    ) -> Result<Self> {
        let held = node.acquire_lock(lock, limit)?;
        Ok(Self { node: Arc::clone(node), held: Some(held), limit: of_job })
    }

    /// Gives the lock back, and waits for the result.
    ///
    /// # Errors
    /// A node that the lock needs is lost, or the time limit passed.
    #[track_caller]
    pub fn release(mut self) -> Result<()> {
        let held = self.held.take();
        held.map_or(Ok(()), |held| self.node.give_lock_back(held, self.limit))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && self.node.enter().is_some()
        {
            // An error here means that the job is lost, and the next synchronisation reports that.
            let _ = self.node.give_lock_back(held, self.limit);
        }
    }
}
