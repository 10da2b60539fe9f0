//! Tracks fences for threads outside the engine. A thread can tell whether a fence may hold back an
//! operation that the thread could perform itself (MEM-18.2).

use crate::Engine;
use crate::ops::fence::Order;
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of fences of one node that were requested, and that have ended.
#[derive(Debug, Default)]
pub struct Fences {
    asked: AtomicU64,
    over: AtomicU64,
}

impl Fences {
    /// Called just before a fence is requested from the engine ([`crate::Request::Fence`]).
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns `true` if all operations begun before any fence have ended. A thread that sees
    /// `true` is ordered after those operations.
    #[inline]
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.over.load(Ordering::Acquire)
    }
}

impl Order {
    /// Called whenever the last fence may have ended.
    pub fn tell_if_over(&self) {
        if !self.holds_back() {
            self.known.over.store(self.asked, Ordering::Release);
        }
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Returns the thread-side view of this node's fences.
    #[must_use]
    pub fn fences(&self) -> Arc<Fences> {
        Arc::clone(&self.order.known)
    }
}
