//! Leaving a job that other threads may still use.

use crate::{Job, Result};

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
}
