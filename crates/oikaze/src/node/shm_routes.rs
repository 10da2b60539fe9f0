//! State of messages that went directly into a local peer's ring. It remains after the calls that
//! sent them, also when the node is gone.

use super::{Node, lock};
use oikaze_engine::ShmChannel;
use oikaze_os::sync::Host;
use oikaze_protocol::Rank;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Route to one local peer, with one time limit.
pub(crate) struct ShmRoute {
    node: Weak<Node>,
    peer: Rank,
    channel: Arc<ShmChannel>,
    limit: Option<Duration>,
}

impl ShmRoute {
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

/// Number of time limits for which the route to a local peer is kept. Most peers have one limit. A
/// thread that alternates between more limits has a route made each time.
const LIMITS_KEPT: usize = 4;

/// Routes that were asked for, the newest last.
#[derive(Default)]
pub(super) struct ShmRoutes(Mutex<Vec<Arc<Host<ShmRoute>>>>);

impl ShmRoutes {
    /// Returns the route to this peer with this limit. A new route replaces the oldest one to that
    /// peer, if there are many.
    fn to(
        &self,
        peer: Rank,
        limit: Option<Duration>,
        make: impl FnOnce() -> ShmRoute,
    ) -> Option<Arc<Host<ShmRoute>>> {
        let mut routes = lock(&self.0);
        if let Some(route) = routes.iter().find(|route| route.peer == peer && route.limit == limit)
        {
            return Some(Arc::clone(route));
        }
        let route = Arc::new(Host::new(make())?);
        if routes.iter().filter(|route| route.peer == peer).count() >= LIMITS_KEPT
            && let Some(oldest) = routes.iter().position(|route| route.peer == peer)
        {
            routes.remove(oldest);
        }
        routes.push(Arc::clone(&route));
        Some(route)
    }
}

impl Node {
    /// Returns the route to this local peer. Returns `None` if the peer is not local, or if this
    /// process has too many routes.
    pub fn shm_route_to(
        self: &Arc<Self>,
        peer: Rank,
        limit: Option<Duration>,
    ) -> Option<Arc<Host<ShmRoute>>> {
        let channel = self.channels.shared(peer)?;
        self.shm_routes.to(peer, limit, || ShmRoute {
            node: Arc::downgrade(self),
            peer,
            channel,
            limit,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use oikaze_os::shm::Pair;

    #[test]
    fn some_are_kept_for_each_peer() {
        let channel = Arc::new(ShmChannel::new(&Pair::both().unwrap().0));
        let (routes, made) = (ShmRoutes::default(), std::cell::Cell::new(0));
        let ask = |peer, limit| {
            let limit = Some(Duration::from_secs(limit));
            let make = || {
                made.set(made.get() + 1);
                ShmRoute { node: Weak::new(), peer, channel: Arc::clone(&channel), limit }
            };
            let route = routes.to(peer, limit, make).unwrap();
            assert_eq!((route.peer(), route.limit()), (peer, limit));
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
        assert_eq!((made.get(), lock(&routes.0).len()), (2 * kept + 1, 2 * LIMITS_KEPT));
    }
}
