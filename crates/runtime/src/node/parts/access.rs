//! Access of threads to a node and its engine: the one place that tells a child of fork from the
//! process that joined, and the threads that run turns from those that leave them to another one.
//!
//! A child of fork is refused (MEM-24.1). It has the objects of its parent, but neither the
//! parent's threads nor its place in the job.

use crate::error::{Error, Result};
use oikaze_engine::Failure;
use oikaze_os::origin::Origin;
use oikaze_protocol::Rank;
use std::sync::OnceLock;

/// The first process in this line of forks that joined a job, and its rank there.
static JOINED: OnceLock<(Origin, Rank)> = OnceLock::new();

/// Access of the calling thread to a node's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The thread may run turns, as any other thread of this node.
    Turns,
    /// The thread is the engine's own, and only it runs turns.
    OwnTurns,
    /// The thread leaves turns to the engine's own thread, and makes requests.
    Requests,
    /// The thread is in a child of fork, and has no access.
    Refused,
}

impl Access {
    /// Returns `true` if the thread may run turns.
    #[inline]
    pub fn runs_turns(self) -> bool {
        matches!(self, Access::Turns | Access::OwnTurns)
    }
}

/// Fails in a child of fork of a process that has joined; `what` is the operation.
pub fn check_not_forked(what: impl FnOnce() -> String) -> Result<()> {
    match JOINED.get() {
        Some((origin, rank)) if !origin.is_here() => {
            Err(Error::failed(what(), Failure::Forked { rank: *rank }))
        }
        _ => Ok(()),
    }
}

/// Notes that this process joins, under this rank.
pub fn note_joined(rank: Rank) {
    JOINED.get_or_init(|| (Origin::here(), rank));
}
