//! Settings of a job that its program gives when it joins.

use crate::{Job, Result};

/// Fate of the other nodes when a node dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// The job has failed. The launcher ends the other nodes if they do not end by themselves.
    #[default]
    Fail,
    /// Survivors go on with what needs no dead node, as under `oikaze run --keep-going`.
    /// [`Job::lost`] names the dead. Waits and operations that need a dead node fail; so do all
    /// collectives, and locks and pages that the death has touched.
    Continue,
}

/// Joins a job with settings of its own; see [`Job::builder`].
#[derive(Clone, Debug, Default)]
pub struct JobBuilder {
    on_death: OnDeath,
}

impl JobBuilder {
    /// Sets what happens to the other nodes when a node dies. `OIKAZE_KEEP_GOING` and `oikaze run
    /// --keep-going` set [`OnDeath::Continue`] for all programs.
    #[must_use]
    pub fn on_death(mut self, on_death: OnDeath) -> Self {
        self.on_death = on_death;
        self
    }

    /// Joins the job, as [`join`](crate::join) does.
    ///
    /// # Errors
    /// As [`join`](crate::join).
    pub fn join(self) -> Result<Job> {
        let job = crate::join()?;
        if self.on_death == OnDeath::Continue {
            job.bootstrap.keep_going();
            job.node.keep_going();
        }
        Ok(job)
    }
}

impl Job {
    /// Settings for joining.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::OnDeath;
    /// let job = oikaze::Job::builder().on_death(OnDeath::Continue).join()?;
    /// assert!(job.lost().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder() -> JobBuilder {
        JobBuilder::default()
    }
}
