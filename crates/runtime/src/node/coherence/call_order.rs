//! The place of this node's collectives of coherence among its collectives of data (COLL-3.9).

use crate::error::{Error, Result};
use crate::node::parts::Node;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of this node's collectives of coherence, and hints that their order may be wrong.
#[derive(Debug, Default)]
pub struct CallOrder {
    /// Number of barriers of the job that this node has called.
    barriers: AtomicU64,
    /// Number of barriers that ended without the engine.
    passed: AtomicU64,
    /// Number of calls, including those that this node only joins to make them fail.
    pub(super) called: AtomicU64,
    /// Number of calls that no thread waits for any more.
    pub(super) ended: AtomicU64,
    /// Count at which the latest one failed by calls that differ, or 0.
    pub(super) failed: AtomicU64,
    /// Set once a collective of data was called while another thread waited in one of coherence.
    is_concurrent: AtomicBool,
    /// Number of notices that have come before their collective of data was called here.
    notices: AtomicU64,
    /// Number of those notices after which none was left.
    settled_notices: AtomicU64,
}

impl CallOrder {
    /// Returns the number of collectives of coherence that this node has called.
    #[inline]
    pub fn coherence_calls(&self) -> u64 {
        self.called.load(Ordering::SeqCst)
    }

    /// Returns the count at which the latest collective of coherence failed by calls that differ,
    /// or 0.
    pub fn failed_coherence_call(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// Notes that a collective of data begins. A program whose threads call both kinds at the same
    /// time has no order that could be wrong.
    #[inline]
    pub fn note_data_call(&self) {
        if self.ended.load(Ordering::Relaxed) != self.called.load(Ordering::Relaxed) {
            self.is_concurrent.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that another rank waits in a collective of data that this node has not called.
    pub fn note_waiting_rank(&self) {
        self.notices.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many barriers ended without the engine.
    pub fn barriers_without_engine(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Notes that a barrier ended without the engine.
    #[inline]
    pub(super) fn note_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of a barrier that this node calls, from 1: a new one, or the latest one.
    #[inline]
    pub(super) fn barrier_number(&self, is_latest: bool) -> u64 {
        self.barriers.fetch_add(u64::from(!is_latest), Ordering::Relaxed) + u64::from(!is_latest)
    }
}

/// A collective of coherence that a thread of this node is in.
pub(super) struct CoherenceCall<'a> {
    pub node: &'a Node,
    pub what: &'a dyn fmt::Display,
    pub number: u64,
    /// Number of notices that this call has looked at.
    pub seen: Cell<u64>,
}

impl Drop for CoherenceCall<'_> {
    fn drop(&mut self) {
        self.node.coherence.order.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl CoherenceCall<'_> {
    /// Looks whether another rank waits in a collective of data that this node should have called
    /// before. Costs two loads while no rank waits for this one.
    #[inline]
    pub fn look_at_notices(&self) {
        let order = &self.node.coherence.order;
        let notices = order.notices.load(Ordering::Relaxed);
        if notices != self.seen.get() && notices != order.settled_notices.load(Ordering::Relaxed) {
            self.seen.set(notices);
            if !order.is_concurrent.load(Ordering::Relaxed)
                && self.node.collectives.accuse_order(self.node, &self.what.to_string())
            {
                order.settled_notices.store(notices, Ordering::Relaxed);
            }
        }
    }

    /// Notes how the call has ended.
    pub fn note<T>(&self, outcome: &Result<T>) {
        if outcome.as_ref().is_err_and(Error::is_mismatch) {
            self.node.coherence.order.failed.store(self.number, Ordering::SeqCst);
        }
    }
}
