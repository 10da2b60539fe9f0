//! A region of a peer. The other files of this folder have the operations on it.

use crate::job::peer::Peer;
use oikaze_engine::{OperationKind, OperationLabel};
use oikaze_engine::{Request, Value};
use oikaze_os::shm::Mapped;
use oikaze_protocol::limits::GRANTS;
use oikaze_protocol::rma::{Published, Rights};
use std::sync::Arc;
use std::time::Duration;

/// Time within which a local peer has to hand its memory over. Without that memory, the region is
/// reached by messages.
const MAP_TIME: Duration = Duration::from_secs(1);

/// A region of a peer, found by name.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
/// let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
/// there.put_copy(0, b"from afar")?.wait()?; // now in the peer's memory, and visible there
/// let target = job.register(Region::zeroed(9)?)?;
/// there.get(0, target.all()).wait()?;
/// # job.barrier()?;
/// # drop(inbox);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RemoteRegion {
    pub(super) peer: Peer,
    pub(super) name: Arc<str>,
    pub(super) published: Published,
    /// The region's memory, if its owner is a local peer and the memory may be reached without the
    /// owner.
    pub(super) mapped: Option<Arc<Mapped>>,
}

impl RemoteRegion {
    pub(crate) fn new(peer: Peer, name: &str, published: Published) -> Self {
        Self { peer, name: name.into(), published, mapped: None }
    }

    /// Maps the region, so that operations reach it without its owner. This needs a local peer as
    /// owner, and the same rights on every page (MEM-18). Regions that were looked up by name are
    /// already mapped.
    #[must_use]
    #[track_caller]
    pub fn mapped(self) -> Self {
        let node = &self.peer.node;
        if !node.has_local_peers() {
            return self;
        }
        let request = Request::Map { at: self.peer.rank, key: self.published.key };
        let outcome = node.outcome(
            &"mapping a local peer's region",
            &node.submit(request, None),
            Some(MAP_TIME),
        );
        let mapped = if let Ok(Value::Mapped(mapped)) = outcome { Some(mapped) } else { None };
        let region = Self { mapped, ..self };
        if region.peer.node.fast.has_local_peer(region.peer.rank) && !region.is_mapped() {
            region
                .peer
                .node
                .publisher
                .paths()
                .unmapped(|| region.why_not_mapped().unwrap_or_default());
        }
        region
    }

    /// Returns `true` if operations reach the memory directly, by loads and stores of this process.
    /// Otherwise each operation is a message to the owner, which takes 20 to 200 times as long for
    /// small ones. [`RemoteRegion::why_not_mapped`] gives the reason.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| !mapped.is_over())
    }

    /// Explains why the region is not mapped, and how it would be. Returns `None` if the region is
    /// mapped.
    #[must_use]
    pub fn why_not_mapped(&self) -> Option<String> {
        let (rank, node) = (self.peer.rank, &self.peer.node);
        let mappable = [Rights::READ, Rights::WRITE, Rights::ATOMIC];
        let why = if self.is_mapped() {
            return None;
        } else if !node.fast.has_local_peer(rank) {
            "this node shares no memory with its owner: the owner is this node itself, on another machine or of another user, or \
             OIKAZE_WITHOUT=shm is set"
                .to_owned()
        } else if self.mapped.is_some() {
            "its owner has taken it back or changed its rights, or has ended: look the region up again".to_owned()
        } else if !mappable.into_iter().any(|right| self.rights().contains(right)) {
            format!("it grants {}: read, write or atomic is needed", self.rights())
        } else {
            format!(
                "its owner cannot hand it over: make it by Region::shared, with the same rights on all pages, and at most {GRANTS} \
                 such regions for each local peer"
            )
        };
        Some(format!("region \"{}\" of node {rank} is not mapped: {why}", self.name))
    }

    pub(crate) fn published(&self) -> Published {
        self.published
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.published.len
    }

    /// Returns `true` if the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.published.len == 0
    }

    /// Returns the rights that the owner grants.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.published.rights
    }

    /// Returns the peer that owns the region.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn what(&self, verb: OperationKind, offset: u64, len: u64) -> OperationLabel {
        OperationLabel {
            verb,
            len,
            peer: self.peer.rank,
            at: Some((Arc::clone(&self.name), offset)),
        }
    }
}
