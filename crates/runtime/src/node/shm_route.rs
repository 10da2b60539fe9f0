//! State of messages that went directly into a local peer's ring. It remains after the calls that
//! sent them, also when the node is gone.

use super::parts::Node;
use oikaze_engine::ShmChannel;
use oikaze_protocol::Rank;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Route to one local peer, with one time limit.
pub struct ShmRoute {
    node: Weak<Node>,
    peer: Rank,
    channel: Arc<ShmChannel>,
    limit: Option<Duration>,
}

impl ShmRoute {
    /// Returns the node that sent the messages, if this process still has it.
    #[inline]
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// Returns the peer that got the messages.
    #[inline]
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Returns the rings.
    #[inline]
    pub fn channel(&self) -> &ShmChannel {
        &self.channel
    }

    /// Returns the rings, for the caller to keep.
    #[inline]
    pub fn shared_channel(&self) -> Arc<ShmChannel> {
        Arc::clone(&self.channel)
    }

    /// Returns the default time limit of waits.
    #[inline]
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

impl Node {
    /// Returns the route to this peer, if the peer is local.
    pub fn shm_route_to(
        self: &Arc<Self>,
        peer: Rank,
        limit: Option<Duration>,
    ) -> Option<Arc<ShmRoute>> {
        let channel = self.fast.channels.shared(peer)?;
        Some(Arc::new(ShmRoute { node: Arc::downgrade(self), peer, channel, limit }))
    }
}
