//! State of a job that bindings need.

use crate::Job;

impl Job {
    /// Returns `true` if survivors go on after the death of a node
    /// ([`JobBuilder::keep_going`](crate::job::JobBuilder::keep_going)). Otherwise a program that
    /// fails ends the job for all nodes ([`Job::abort`]), as [`run`](crate::run) does.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.node.keeps_going()
    }
}
