//! What is to be known of messages that went straight into a neighbour's ring, after the calls that sent them; also when the node is gone.

use super::{Node, lock};
use crate::engine::Passage;
use oikaze_os::hazard::Host;
use oikaze_protocol::Rank;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// To one neighbour, with one time limit.
pub(crate) struct Way {
    node: Weak<Node>,
    peer: Rank,
    passage: Arc<Passage>,
    limit: Option<Duration>,
}

impl Way {
    /// Whose they are, if this process still has it.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// To whom they went.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// The rings.
    #[inline]
    pub fn passage(&self) -> &Passage {
        &self.passage
    }

    /// The same, to keep.
    pub fn shared_passage(&self) -> Arc<Passage> {
        Arc::clone(&self.passage)
    }

    /// How long they are waited for if nothing else is said.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

/// To each neighbour the one that was asked for last: of most there is one time limit.
#[derive(Default)]
pub(super) struct Ways(Mutex<Vec<Arc<Host<Way>>>>);

impl Node {
    /// The way to this neighbour. None if it is none; or if this process has too many of them.
    pub fn way_to(self: &Arc<Self>, peer: Rank, limit: Option<Duration>) -> Option<Arc<Host<Way>>> {
        let passage = self.passages.shared(peer)?;
        let mut ways = lock(&self.ways.0);
        if let Some(at) = ways.iter().position(|way| way.peer == peer) {
            if ways.get(at)?.limit == limit {
                return ways.get(at).cloned();
            }
            ways.swap_remove(at);
        }
        let way = Arc::new(Host::new(Way { node: Arc::downgrade(self), peer, passage, limit })?);
        ways.push(Arc::clone(&way));
        Some(way)
    }
}
