//! Locks between nodes.

use crate::error::Result;
use oikaze_protocol::coherence::LockMode;
use oikaze_protocol::fnv::fnv1a;
use oikaze_runtime::node::{AcquiredLock, Node};
use std::sync::Arc;
use std::time::Duration;

/// First number of the locks that have names.
const NAMED_LOCKS: u64 = 1 << 63;

/// Returns the number of the lock of a name, the same on all nodes and in all languages (COH-7.13).
pub(crate) fn number_of(name: &str) -> u64 {
    // The number 2⁶⁴ − 1 has no room in the memory of a machine (COH-16.10).
    NAMED_LOCKS | (fnv1a(name.bytes()) >> 1).min(NAMED_LOCKS - 2)
}

/// Guard of a lock that this node holds, alone ([`Job::lock`]) or together with others that read
/// ([`Job::read_lock`]). Dropping the guard gives the lock back. Writes under the lock are visible
/// to its next holder.
///
/// [`Job::lock`]: crate::Job::lock
/// [`Job::read_lock`]: crate::Job::read_lock
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
    /// Acquires the lock in this mode within `limit`. The guard gives it back within `of_job`.
    /// Returns `None` if a request that tries finds the lock taken.
    #[track_caller]
    pub(crate) fn acquire(
        node: &Arc<Node>,
        (lock, mode): (u64, LockMode),
        limit: Option<Duration>,
        of_job: Option<Duration>,
    ) -> Result<Option<Self>> {
        let held = node.acquire_lock(lock, mode, limit)?;
        Ok(held.map(|held| Self { node: Arc::clone(node), held: Some(held), limit: of_job }))
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

#[cfg(test)]
mod tests {
    use super::{NAMED_LOCKS, number_of};

    /// COH-7.13: programs of other versions and languages find the same numbers.
    #[test]
    fn numbers_of_names_are_as_specified() {
        assert_eq!(number_of(""), 0xe5f9_4e72_4211_1192);
        assert_eq!(number_of("a"), 0xd7b1_ee26_4300_f646);
        assert!(["histogram", "b", "ü"].map(number_of).iter().all(|of| *of >= NAMED_LOCKS));
    }
}
