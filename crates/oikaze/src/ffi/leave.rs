//! Ends of a job that other threads may still use.

use crate::Job;
use crate::error::Result;

impl Job {
    /// Leaves the job as [`Job::leave`] does, for bindings whose other threads may still hold the
    /// job. Calls of these threads fail from then on. Later calls of this method do nothing.
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
