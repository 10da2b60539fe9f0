//! Parts for this project's own programs and tests. They may change at any time.

pub use crate::job::join::{join_as, join_as_without};
pub use crate::testing::{Seat, SeatStore, cluster_of};

use crate::job::handle::Job;
use oikaze_protocol::coherence::LockView;

/// Returns the state of a lock, if it is in the memory of this machine or this node manages it.
pub fn lock_view(job: &Job, lock: u64) -> Option<LockView> {
    job.node.lock_view(lock)
}
