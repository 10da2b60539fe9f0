//! State of a job that bindings need, and calls of it whose forms are values there.

use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::shared::LockGuard;
use oikaze_engine::Request;
use oikaze_protocol::coherence::LockMode;
use std::time::Duration;

impl Job {
    /// Returns `true` if survivors go on after the death of a node
    /// ([`JobBuilder::keep_going`](crate::job::JobBuilder::keep_going)). Otherwise a program that
    /// fails ends the job for all nodes ([`Job::abort`]), as [`run`](crate::run) does.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.node.departures.keeps_going()
    }

    /// Comes to a barrier or reduction of all nodes in place of this node's own call, whose
    /// arguments a binding refuses for the reason `why`. The collective fails on all nodes, which
    /// name the reason. Otherwise this node would be one collective behind the others. Returns the
    /// error.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let error = job.refuse_collective("barrier_reduce", "an object of type set");
    /// assert!(error.to_string().contains("an object of type set"));
    /// job.barrier()?; // the job goes on
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn refuse_collective(&self, what: &str, why: &str) -> Error {
        self.refuse_by(Request::Cannot(format!("{what}: {why}")), what, why)
    }

    /// Comes to the declaration of an array as [`Job::refuse_collective`] comes to a barrier.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let error = job.refuse_array("make an array", "dtype object");
    /// assert!(error.to_string().contains("dtype object"));
    /// assert_eq!(job.array::<u8>("array", 7)?.len(), 7); // the job goes on
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn refuse_array(&self, what: &str, why: &str) -> Error {
        self.refuse_by(Request::CannotDeclare(format!("{what}: {why}")), what, why)
    }

    /// Acquires a lock in this mode, alone or for reading. The call waits within `limit`, or within
    /// the job's time limit without one. In a mode that tries, the call returns `None` at the end
    /// of `limit`, and does not wait without one. In the other modes, it never returns `None`.
    ///
    /// ```
    /// use oikaze::ffi::LockMode;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mode = LockMode { reads: true, tries: true };
    /// let held = job.lock_in_mode(5, mode, None)?.expect("nobody has it");
    /// held.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::lock`], and in a mode that tries as [`Job::try_lock`].
    #[track_caller]
    pub fn lock_in_mode(
        &self,
        lock: u64,
        mode: LockMode,
        limit: Option<Duration>,
    ) -> Result<Option<LockGuard>> {
        // A try that has a time waits for that time.
        let (asked, limit) = match limit.filter(|limit| !(mode.tries && limit.is_zero())) {
            None => (mode, self.limit),
            Some(limit) => (LockMode { tries: false, ..mode }, Some(limit)),
        };
        // Not in a closure, which would be the caller that waits are explained by.
        match LockGuard::acquire(&self.node, (lock, asked), limit, self.limit) {
            Err(error) if mode.tries && !asked.tries && error.is_timeout() => Ok(None),
            held => held,
        }
    }

    fn refuse_by(&self, refusal: Request, what: &str, why: &str) -> Error {
        // It fails on all nodes, and this one names its own reason.
        let _ = self.node.coherence.collective(&self.node, &what, refusal, self.limit);
        Error::invalid(what, why)
    }
}
