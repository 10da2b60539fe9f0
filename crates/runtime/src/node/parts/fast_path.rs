//! Fast path for messages of local peers, without a turn.
//!
//! Bench cases: `message_lat` and `message_rate` of 8 bytes (`bench shm`).

use crate::node::driver::limits::{
    SPIN_POLLS_BEFORE_DRIVING, STREAM_BACKOFF_MAX, STREAM_POLLS_MAX,
};
use oikaze_engine::{Fences, ShmChannels};
use oikaze_protocol::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pace at which messages come.
#[derive(Debug)]
pub(in crate::node) struct Pace {
    /// Polls of one thread before it becomes the driver.
    pub(in crate::node) looks: usize,
    /// Messages in a row that came soon. The count is a hint: threads may overwrite each other's
    /// counts.
    soon: AtomicUsize,
}

impl Pace {
    /// Makes the pace for this many local peers.
    pub fn new(local_peers: usize) -> Pace {
        Pace {
            looks: (SPIN_POLLS_BEFORE_DRIVING / local_peers.max(1)).max(1),
            soon: AtomicUsize::new(0),
        }
    }

    /// Returns the number of messages in a row that came soon.
    #[inline]
    pub(in crate::node) fn soon(&self) -> usize {
        self.soon.load(Ordering::Relaxed)
    }

    /// Notes that a message was found, after `looks` polls in vain.
    #[inline]
    pub(in crate::node) fn found_after(&self, looks: usize) {
        if looks >= STREAM_POLLS_MAX {
            return self.found_nothing();
        }
        let soon = self.soon();
        if soon < STREAM_BACKOFF_MAX {
            self.soon.store(soon + 1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(in crate::node) fn found_nothing(&self) {
        self.soon.store(0, Ordering::Relaxed);
    }
}

/// Fast path of a node: the rings to local peers, seen from outside, and the state of messages that
/// go into them without a turn.
pub struct FastPath {
    pub(in crate::node) channels: ShmChannels,
    pub(in crate::node) pace: Pace,
    pub(in crate::node) fences: Arc<Fences>,
}

impl FastPath {
    /// Makes the fast path to these local peers. `fences` hold operations back.
    pub fn new(channels: ShmChannels, fences: Arc<Fences>) -> FastPath {
        FastPath { pace: Pace::new(channels.count()), channels, fences }
    }

    /// Returns `true` if this node shares memory with that one, or did so when the job began.
    #[inline]
    pub fn has_local_peer(&self, rank: Rank) -> bool {
        self.channels.of(rank).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_soon_again_and_again_is_a_stream_and_an_exchange_is_none() {
        let pace = Pace::new(1);
        (0..1000).for_each(|_| pace.found_after(STREAM_POLLS_MAX));
        assert_eq!(pace.soon(), 0, "each was an answer");
        for n in 0..2 * STREAM_BACKOFF_MAX {
            assert_eq!(pace.soon(), n.min(STREAM_BACKOFF_MAX));
            pace.found_after(n % STREAM_POLLS_MAX);
        }
        pace.found_nothing();
        assert_eq!(pace.soon(), 0);
    }

    #[test]
    fn a_thread_looks_as_long_at_many_local_peers_as_at_one_but_at_least_once() {
        assert_eq!(
            [0, 1, 4, 1000].map(|local_peers| Pace::new(local_peers).looks),
            [
                SPIN_POLLS_BEFORE_DRIVING,
                SPIN_POLLS_BEFORE_DRIVING,
                SPIN_POLLS_BEFORE_DRIVING / 4,
                1
            ]
        );
    }
}
