//! Announces a sleep on the link before it begins, and takes the announcement back once the thread
//! polls again.

use super::limits::{SLEEP_MAX, SLEEP_UNWATCHED_MAX};
use super::sleeper::WatchClaim;
use crate::node::parts::Node;
use crate::node::parts::engine::RealEngine;
use oikaze_os::net::Link;
use std::time::Duration;

impl WatchClaim {
    fn hold(&self, node: &Node) -> bool {
        let watch = |engine: &mut RealEngine| self.set(engine.link_mut().watch(true).is_ok());
        self.is_held() || node.with_engine(watch)
    }

    fn release(&self, node: &Node) {
        if self.is_held() {
            node.with_engine(|engine| {
                if self.take() {
                    // Taking the announcement back cannot fail.
                    let _ = engine.link_mut().watch(false);
                }
            });
        }
    }
}

/// Watch of one thread over the link; given back when dropped.
pub struct LinkWatch<'n> {
    node: &'n Node,
    claim: &'n WatchClaim,
    /// This thread has claimed the link for its next sleep.
    is_claimed: bool,
}

impl<'n> LinkWatch<'n> {
    pub fn new(node: &'n Node, claim: &'n WatchClaim) -> Self {
        Self { node, claim, is_claimed: false }
    }

    /// Announces a sleep: from here on the descriptor reports arrivals, earlier ones included.
    /// A link that cannot be watched must be polled again after [`SLEEP_UNWATCHED_MAX`].
    /// Returns how long the thread may sleep on the descriptor at most.
    pub fn hold(&mut self) -> Duration {
        self.is_claimed = self.claim.hold(self.node);
        if self.is_claimed { SLEEP_MAX } else { SLEEP_UNWATCHED_MAX }
    }

    /// Returns `true` if the driver has taken the claim since [`LinkWatch::hold`].
    pub fn was_taken(&self) -> bool {
        self.is_claimed && !self.claim.is_held()
    }

    /// Takes the announcement back, because no sleep is ahead.
    pub fn release(&mut self) {
        self.is_claimed = false;
        self.claim.release(self.node);
    }
}

impl Drop for LinkWatch<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Node {
    /// Takes the link from a helper that watches it, for a driver that polls. The helper itself
    /// gets a core some milliseconds later if the driver polls on the helper's core, and until then
    /// every datagram would take the slow path through the sockets.
    #[inline]
    pub(super) fn take_watch_of_helper(&self) {
        let driver = &self.threads.driver;
        if driver.helper_claim.is_held() {
            driver.helper_claim.release(self);
            driver.send_helper_away();
        }
    }
}
