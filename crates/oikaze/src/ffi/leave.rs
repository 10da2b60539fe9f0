//! Ends of a job that other threads may still use.

use crate::error::Result;
use crate::job::handle::Job;
use std::sync::atomic::Ordering;

impl Job {
    /// Leaves the job as [`Job::leave`] does, for bindings whose other threads may still hold the
    /// job. Calls of these threads fail from then on. Later calls of this method do nothing, unless
    /// the leave was interrupted ([`interruptible`](super::interruptible)): the node has not left
    /// then, and the next call goes on with the leave.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::ffi::ErrorClass;
    /// let job = std::sync::Arc::new(oikaze::join()?);
    /// job.leave_shared()?;
    /// assert_eq!(job.barrier().unwrap_err().class(), ErrorClass::Left);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::leave`].
    pub fn leave_shared(&self) -> Result<()> {
        self.leave_once()
    }

    /// Returns `true` once this node has left, or while it leaves.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// assert!(!job.has_left());
    /// job.leave_shared()?;
    /// assert!(job.has_left());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Ends the job for all nodes as [`Job::abort`] does, and returns, for bindings that end the
    /// process themselves. Other nodes know the reason then, or 300 ms have passed.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// job.end_with_reason("the input makes no sense");
    /// assert!(job.barrier().unwrap_err().to_string().contains("makes no sense"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_with_reason(&self, reason: &str) {
        self.end_for_all(reason);
    }
}
