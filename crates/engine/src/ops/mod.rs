//! Operations of this node: their state until they end, their order, their retries.

pub(crate) mod backoff;
pub(crate) mod fence;
pub(crate) mod gated;
pub(crate) mod in_flight;
pub(crate) mod outstanding;
pub(crate) mod retry;

use crate::client::fence_watch::Fences;
use crate::client::untaken::UnreportedFailures;
use crate::failure::Failure;
use fence::FenceQueue;
use gated::GatedQueue;
use in_flight::InFlight;
use oikaze_os::memory::Holder;
use oikaze_protocol::wind::Token;
use retry::RetryQueue;
use std::sync::Arc;

/// Operations of this node, from their admission to their end.
#[derive(Default)]
pub struct Ops {
    pub(crate) in_flight: InFlight,
    pub(crate) fences: FenceQueue,
    pub(crate) retry: RetryQueue,
    pub(crate) gated: GatedQueue,
    pub(crate) untaken: Arc<UnreportedFailures>,
    /// Token of this node's leave, until its one-sided operations have ended.
    pub(crate) leave: Option<Token>,
    /// Failure of every new operation once the engine has ended.
    pub(crate) ended: Option<Failure>,
}

impl Ops {
    /// Returns the number of operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns `true` if an operation in flight keeps this reference.
    #[must_use]
    pub fn is_kept(&self, holder: &Holder) -> bool {
        self.in_flight.keeping(holder).next().is_some()
    }

    /// Returns the failures that no caller has been told of.
    #[must_use]
    pub fn untaken(&self) -> &Arc<UnreportedFailures> {
        &self.untaken
    }

    /// Returns the thread-side view of this node's fences.
    #[must_use]
    pub fn fences(&self) -> &Arc<Fences> {
        self.fences.watch()
    }

    /// Ends every operation in flight, and every later one, with this failure.
    pub(crate) fn end(&mut self, failure: &Failure) {
        self.ended = Some(failure.clone());
        self.fences.end(failure);
        self.gated.clear();
        self.in_flight.settle_all(failure);
    }
}
