//! What threads know of fences without asking the engine: whether one may hold back what they could
//! do by themselves (MEM-18.2).

use super::Engine;
use super::order::Order;
use oikaze_os::link::Link;
use oikaze_protocol::coherence::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fences of one node, asked for and over.
#[derive(Debug, Default)]
pub struct Fences {
    asked: AtomicU64,
    over: AtomicU64,
}

impl Fences {
    /// One is about to be asked of the engine ([`super::Request::Fence`]).
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Has all ended that was begun before any of them? Then who finds that so comes after it.
    #[inline]
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.over.load(Ordering::Acquire)
    }
}

impl Order {
    /// To be called whenever that may be so.
    pub fn tell_if_over(&self) {
        if !self.holds_back() {
            self.known.over.store(self.asked, Ordering::Release);
        }
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// What threads know of this node's.
    #[must_use]
    pub fn fences(&self) -> Arc<Fences> {
        Arc::clone(&self.order.known)
    }
}
