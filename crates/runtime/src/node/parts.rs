//! A node and its parts, each with state of its own.

pub(super) mod access;
pub(super) mod clock;
pub(super) mod departures;
pub(super) mod engine;
pub(super) mod engine_thread;
pub(super) mod fast_path;
pub(super) mod requests;
pub(super) mod threads;

use crate::error::{Error, Result};
use crate::node::coherence::CoherenceCalls;
use crate::node::collectives::registry::Registry;
use crate::node::driver::lock::CombiningLock;
use crate::node::driver::task::Tasks;
use crate::node::mail::queues::MailQueues;
use crate::node::waits::Waits;
use crate::observe::Publisher;
use access::Access;
use clock::NodeClock;
use departures::Departures;
use engine::RealEngine;
use fast_path::FastPath;
use oikaze_engine::Failure;
use oikaze_launch::Bootstrap;
use oikaze_os::origin::{Origin, OriginBound};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use requests::Requests;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use threads::Threads;

/// A node, shared by all its threads.
pub struct Node {
    /// The process that joined.
    pub(in crate::node) origin: Origin,
    pub(in crate::node) clock: NodeClock,
    /// Source of the reason why another node ended, for a node that a launcher started.
    pub bootstrap: Arc<dyn Bootstrap>,
    pub engine: OriginBound<CombiningLock<RealEngine>>,
    pub requests: Requests,
    pub threads: Threads,
    pub tasks: Tasks,
    pub fast: FastPath,
    pub mail: MailQueues,
    pub coherence: CoherenceCalls,
    pub collectives: Arc<Registry>,
    pub departures: Departures,
    pub waits: Arc<Waits>,
    pub publisher: Publisher,
    pub closing: AtomicBool,
}

impl Node {
    /// Returns the rank of this node.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }

    /// Returns this node, or `None` in a child of fork of the process that joined.
    #[inline]
    pub fn enter(&self) -> Option<&Node> {
        self.origin.is_here().then_some(self)
    }

    /// Returns the access of the calling thread.
    #[inline]
    pub(in crate::node) fn access(&self) -> Access {
        match self.enter() {
            Some(_) => self.threads.engine_thread.access(self.number()),
            None => Access::Refused,
        }
    }

    /// Returns the failure of every operation in a child of fork.
    #[cold]
    pub fn forked(&self) -> Failure {
        Failure::Forked { rank: self.bootstrap.rank() }
    }

    /// Fails in a child of fork; `what` is the operation.
    #[inline]
    pub fn check_process(&self, what: impl FnOnce() -> String) -> Result<()> {
        self.enter().map(drop).ok_or_else(|| Error::failed(what(), self.forked()))
    }

    /// Returns the nanoseconds since the node's start.
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns a number that tells this node from the other nodes of this process.
    #[inline]
    pub(in crate::node) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
