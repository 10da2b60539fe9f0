//! State of messages that went directly into a local peer's ring. It remains after the calls that
//! sent them, also when the node is gone.

use super::{Node, lock};
use oikaze_engine::ShmChannel;
use oikaze_os::sync::Host;
use oikaze_protocol::Rank;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Way to one local peer, with one time limit.
pub(crate) struct Way {
    node: Weak<Node>,
    peer: Rank,
    channel: Arc<ShmChannel>,
    limit: Option<Duration>,
}

impl Way {
    /// Returns the node that sent the messages, if this process still has it.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// Returns the peer that got the messages.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Returns the rings.
    #[inline]
    pub fn channel(&self) -> &ShmChannel {
        &self.channel
    }

    /// Returns the rings, for the caller to keep.
    pub fn shared_channel(&self) -> Arc<ShmChannel> {
        Arc::clone(&self.channel)
    }

    /// Returns the default time limit of waits.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

/// Number of time limits for which the way to a local peer is kept. Most peers have one limit. A
/// thread that alternates between more limits has a way made each time.
const LIMITS_KEPT: usize = 4;

/// Ways that were asked for, the newest last.
#[derive(Default)]
pub(super) struct Ways(Mutex<Vec<Arc<Host<Way>>>>);

impl Ways {
    /// Returns the way to this peer with this limit. A new way replaces the oldest one to that
    /// peer, if there are many.
    fn to(
        &self,
        peer: Rank,
        limit: Option<Duration>,
        make: impl FnOnce() -> Way,
    ) -> Option<Arc<Host<Way>>> {
        let mut ways = lock(&self.0);
        if let Some(way) = ways.iter().find(|way| way.peer == peer && way.limit == limit) {
            return Some(Arc::clone(way));
        }
        let way = Arc::new(Host::new(make())?);
        if ways.iter().filter(|way| way.peer == peer).count() >= LIMITS_KEPT
            && let Some(oldest) = ways.iter().position(|way| way.peer == peer)
        {
            ways.remove(oldest);
        }
        ways.push(Arc::clone(&way));
        Some(way)
    }
}

impl Node {
    /// Returns the way to this local peer. Returns `None` if the peer is not local, or if this
    /// process has too many ways.
    pub fn way_to(self: &Arc<Self>, peer: Rank, limit: Option<Duration>) -> Option<Arc<Host<Way>>> {
        let channel = self.channels.shared(peer)?;
        self.ways.to(peer, limit, || Way { node: Arc::downgrade(self), peer, channel, limit })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use oikaze_os::shm::Pair;

    #[test]
    fn some_are_kept_for_each_peer() {
        let channel = Arc::new(ShmChannel::new(&Pair::both().unwrap().0));
        let (ways, made) = (Ways::default(), std::cell::Cell::new(0));
        let ask = |peer, limit| {
            let limit = Some(Duration::from_secs(limit));
            let make = || {
                made.set(made.get() + 1);
                Way { node: Weak::new(), peer, channel: Arc::clone(&channel), limit }
            };
            let way = ways.to(peer, limit, make).unwrap();
            assert_eq!((way.peer(), way.limit()), (peer, limit));
        };
        let kept = LIMITS_KEPT as u64;
        for _ in 0..3 {
            (0..kept).for_each(|limit| (1..3).for_each(|peer| ask(peer, limit)));
        }
        assert_eq!(made.get(), 2 * kept);
        // One more takes the place of the first, and of no other peer's.
        ask(1, kept);
        (1..=kept).for_each(|limit| ask(1, limit));
        (0..kept).for_each(|limit| ask(2, limit));
        assert_eq!((made.get(), lock(&ways.0).len()), (2 * kept + 1, 2 * LIMITS_KEPT));
    }
}
