//! Locks between nodes.

use crate::engine::Request;
use crate::node::{Node, WaitSubject};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// A lock that is held; given back when dropped. What was written under it is visible to its next
/// holder.
#[must_use = "the lock is given back at once"]
pub struct LockGuard {
    node: Arc<Node>,
    lock: u64,
    limit: Option<Duration>,
    held: bool,
}

impl LockGuard {
    pub(crate) fn acquire(node: &Arc<Node>, lock: u64, limit: Option<Duration>) -> Result<Self> {
        node.look_at_handlers_soon();
        node.check_no_guard_of_this_thread(|| format!("lock {lock}"))?;
        let completion = node.submit(Request::Lock(lock), None);
        let subject = || WaitSubject::Lock(lock);
        let outcome =
            node.outcome_of(&subject, &format_args!("lock {lock}"), || completion.outcome(), limit);
        if let Err(error @ Error::Timeout { .. }) = outcome {
            let error = node.explain_timeout(error, &subject());
            // Nobody waits any longer: should it be granted later, it is given back at once. It may
            // have been granted just now, though, and then it is held. One or the other comes with
            // the next turn.
            node.tell(Request::Cancel { completion: Arc::clone(&completion) });
            if !matches!(node.wait(None, || completion.outcome()), Some(Ok(_))) {
                return Err(error);
            }
        } else {
            outcome?;
        }
        node.took_lock(lock);
        Ok(Self { node: Arc::clone(node), lock, limit, held: true })
    }

    /// Give the lock back and learn whether that worked.
    ///
    /// # Errors
    /// A node that is needed for it is lost, or the time limit passed.
    pub fn release(mut self) -> Result<()> {
        self.held = false;
        self.node.gave_lock_back(self.lock);
        let completion = self.node.submit(Request::Unlock(self.lock), None);
        self.node.outcome(&format_args!("unlock {}", self.lock), &completion, self.limit).map(drop)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.held && !self.node.is_forked() {
            self.node.gave_lock_back(self.lock);
            // An error here means that the job is lost; its next synchronisation says so.
            let completion = self.node.submit(Request::Unlock(self.lock), None);
            let _ =
                self.node.outcome(&format_args!("unlock {}", self.lock), &completion, self.limit);
        }
    }
}
