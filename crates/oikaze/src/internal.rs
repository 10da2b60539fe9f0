//! Parts for this project's own programs and tests. They may change at any time.

pub use crate::job::join::{join_as, join_as_without};
pub use crate::testing::{Seat, SeatStore, cluster_of};

use crate::job::handle::Job;

/// Returns how many requests wait for a lock in the memory of this machine, if it is there.
pub fn lock_waiters(job: &Job, lock: u64) -> Option<usize> {
    job.node.coherence.calls.lock_view(lock, job.node.as_ref()).map(|view| view.waiting)
}
