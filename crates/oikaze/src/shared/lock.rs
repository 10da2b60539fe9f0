//! Locks between nodes.

use crate::error::Result;
use oikaze_engine::Request;
use oikaze_runtime::node::{Node, WaitSubject};
use std::fmt;
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
    lock: u64,
    limit: Option<Duration>,
    held: bool,
}

/// Name of a lock in texts, looked up only when it is displayed.
struct LockName<'n> {
    node: &'n Node,
    lock: u64,
}

impl fmt::Display for LockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node.waits.lock_text(self.lock))
    }
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
        node.coherence.handlers.check_if_due(|| node.now());
        node.coherence.check_no_guard_of_this_thread(node, || node.waits.lock_text(lock))?;
        node.waits.check_lock_is_not_mine(lock)?;
        let completion = node.submit(Request::Lock(lock), None);
        let subject = || WaitSubject::Lock { number: lock, text: node.waits.lock_text(lock) };
        let name = LockName { node, lock };
        let outcome = node.outcome_of(&subject, &name, || completion.outcome(), limit);
        if let Err(error) = outcome {
            if !error.is_timeout() {
                return Err(error);
            }
            let error = node.waits.explain_timeout(error, &subject());
            // No thread waits for the lock any longer, so a lock that is granted later is given
            // back at once. If the lock was granted just now, this thread holds it. The next turn
            // reports one or the other.
            node.tell(Request::Cancel { completion: Arc::clone(&completion) });
            if !matches!(node.wait(None, || completion.outcome()), Some(Ok(_))) {
                return Err(error);
            }
        }
        node.waits.took_lock(lock);
        node.coherence.segments.took_lock();
        Ok(Self { node: Arc::clone(node), lock, limit: of_job, held: true })
    }

    /// Gives the lock back, and waits for the result.
    ///
    /// # Errors
    /// A node that the lock needs is lost, or the time limit passed.
    #[track_caller]
    pub fn release(mut self) -> Result<()> {
        self.held = false;
        self.node.waits.gave_lock_back(self.lock);
        self.node.coherence.segments.gave_lock_back();
        let completion = self.node.submit(Request::Unlock(self.lock), None);
        let name = LockName { node: &self.node, lock: self.lock };
        self.node.outcome(&format_args!("giving back {name}"), &completion, self.limit).map(drop)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.held && self.node.enter().is_some() {
            self.node.waits.gave_lock_back(self.lock);
            self.node.coherence.segments.gave_lock_back();
            // An error here means that the job is lost, and the next synchronisation reports that.
            let completion = self.node.submit(Request::Unlock(self.lock), None);
            let name = LockName { node: &self.node, lock: self.lock };
            let what = format_args!("giving back {name}");
            let _ = self.node.outcome(&what, &completion, self.limit);
        }
    }
}
