//! Refuses work in a child of fork (MEM-24.1). The child has the objects of its parent, but neither
//! the parent's threads nor its place in the job.

use super::Node;
use crate::{Error, Result};
use oikaze_engine::Failure;
use oikaze_os::origin::Origin;
use oikaze_protocol::Rank;
use std::sync::OnceLock;

/// The first process in this line of forks that joined a job, and its rank there.
static JOINED: OnceLock<(Origin, Rank)> = OnceLock::new();

impl Node {
    /// Returns the rank of this node.
    pub fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }

    /// Returns `true` in a child of fork of the process that joined.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// Returns the failure of every operation in a child of fork.
    #[cold]
    pub fn forked(&self) -> Failure {
        Failure::Forked { rank: self.bootstrap.rank() }
    }

    /// Fails in a child of fork; `what` is the operation.
    #[inline]
    pub fn check_process(&self, what: impl FnOnce() -> String) -> Result<()> {
        if self.is_forked() { Err(Error::failed(what(), self.forked())) } else { Ok(()) }
    }
}

/// Fails in a child of fork of a process that has joined; `what` is the operation.
pub(crate) fn check_not_forked(what: impl FnOnce() -> String) -> Result<()> {
    match JOINED.get() {
        Some((origin, rank)) if !origin.is_here() => {
            Err(Error::failed(what(), Failure::Forked { rank: *rank }))
        }
        _ => Ok(()),
    }
}

/// Notes that this process joins, under this rank.
pub(crate) fn note_joined(rank: Rank) {
    JOINED.get_or_init(|| (Origin::here(), rank));
}
