//! A region of a peer: what it is; what can be done with it stands beside this file.

use super::Peer;
use crate::operation::What;
use oikaze_protocol::rma::{Published, Rights};
use std::sync::Arc;

/// A region of a peer, found by name.
#[derive(Clone)]
pub struct RemoteRegion {
    pub(super) peer: Peer,
    pub(super) name: Arc<str>,
    pub(super) published: Published,
}

impl RemoteRegion {
    pub(crate) fn new(peer: Peer, name: &str, published: Published) -> Self {
        Self { peer, name: name.into(), published }
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

    pub(super) fn what(&self, verb: &'static str, offset: u64, len: u64) -> What {
        What { verb, len, peer: self.peer.rank, at: Some((Arc::clone(&self.name), offset)) }
    }
}
