//! A region of a peer: what it is; what can be done with it stands beside this file.

use super::Peer;
use crate::engine::{Request, Value};
use crate::operation::{Verb, What};
use oikaze_os::neighbour::Mapped;
use oikaze_protocol::rma::{Published, Rights};
use std::sync::Arc;
use std::time::Duration;

/// How long a neighbour may take to hand its memory over; without it, the region is reached by messages.
const MAP_TIME: Duration = Duration::from_secs(1);

/// A region of a peer, found by name.
#[derive(Clone)]
pub struct RemoteRegion {
    pub(super) peer: Peer,
    pub(super) name: Arc<str>,
    pub(super) published: Published,
    /// Its memory, if its owner is a neighbour and it may be reached by itself.
    pub(super) mapped: Option<Arc<Mapped>>,
}

impl RemoteRegion {
    pub(crate) fn new(peer: Peer, name: &str, published: Published) -> Self {
        Self { peer, name: name.into(), published, mapped: None }
    }

    /// The same, reached without its owner, if that is a neighbour and grants the same on every page (MEM-18). Regions that were looked up
    /// by name are so already.
    #[must_use]
    pub fn mapped(self) -> Self {
        let node = &self.peer.node;
        if !node.has_neighbours() {
            return self;
        }
        let request = Request::Map { at: self.peer.rank, key: self.published.key };
        let outcome = node.outcome(&"mapping a neighbour's region", &node.submit(request, None), Some(MAP_TIME));
        let mapped = if let Ok(Value::Mapped(mapped)) = outcome { Some(mapped) } else { None };
        Self { mapped, ..self }
    }

    pub(crate) fn published(&self) -> Published {
        self.published
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.published.len
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.published.len == 0
    }

    /// What its owner grants.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.published.rights
    }

    /// Whose it is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn what(&self, verb: Verb, offset: u64, len: u64) -> What {
        What { verb, len, peer: self.peer.rank, at: Some((Arc::clone(&self.name), offset)) }
    }
}
