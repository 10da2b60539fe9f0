//! Ids by which any node of the job can name a region. An id can be kept in a table and sent in a
//! message.

use super::LocalRegion;
use crate::error::Result;
use crate::job::handle::Job;
use crate::memory::remote::region::RemoteRegion;
use arrayvec::ArrayVec;
use oikaze_protocol::Rank;
use oikaze_protocol::bytes::{ByteReader, ByteWriter, Invalid};
use oikaze_protocol::rma::Published;
use oikaze_protocol::rma::Rights;
use std::sync::{Arc, LazyLock};

/// Name in errors of regions that were not looked up by a name.
pub(crate) static NAMELESS: LazyLock<Arc<str>> = LazyLock::new(|| "(by number)".into());

/// Id by which any node of the job can name a region. The holder of the id may do what the region
/// grants (MEM-1.1). A receiver of the id in a message turns it back into a region by
/// [`Job::remote`].
///
/// ```
/// use oikaze::memory::remote::RemoteId;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let mine = job.expose(Region::shared(4096)?, Rights::READ)?; // no name, only an id
/// let next = job.peer((job.rank() + 1) % job.size())?;
/// next.send(Class::Ordered, 0, &mine.remote_id().to_bytes()).wait()?;
/// let id = RemoteId::from_bytes(job.receive(None)?.bytes()).expect("an id");
/// assert_eq!(job.remote(id)?.len(), 4096);
/// # job.barrier()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct RemoteId {
    /// Key of the region; random.
    pub key: u64,
    /// Length in bytes when this id was made. The region may have grown since.
    pub len: u64,
    /// Rank of the node that owns the region.
    pub node: Rank,
    /// Rights that the region granted when this id was made.
    pub rights: Rights,
}

impl RemoteId {
    /// Number of bytes that [`RemoteId::to_bytes`] returns.
    pub const BYTES: usize = 24;

    /// Returns the id as bytes for a message or a file, the same on every machine.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = ArrayVec::new();
        bytes.put_u64(self.key).put_u64(self.len).put_u32(self.node);
        bytes.put_u8(self.rights.0).put(&[0; 3]);
        bytes.into_inner().unwrap_or_default()
    }

    /// Makes an id from the bytes that [`RemoteId::to_bytes`] returned. Returns `None` for any
    /// other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read(&mut ByteReader(bytes)).ok()
    }

    fn read(bytes: &mut ByteReader<'_>) -> std::result::Result<Self, Invalid> {
        let (key, len, node) = (bytes.u64()?, bytes.u64()?, bytes.u32()?);
        let rights = Rights(bytes.u8()?);
        bytes.zeros::<3>()?;
        bytes.end()?;
        if Rights::ALL.contains(rights) {
            Ok(Self { key, len, node, rights })
        } else {
            Err(Invalid)
        }
    }
}

impl LocalRegion {
    /// Returns the id by which other nodes can name this region.
    #[must_use]
    pub fn remote_id(&self) -> RemoteId {
        let (node, len) = (self.inner.node.rank(), self.len() as u64);
        RemoteId { key: self.key(), len, node, rights: self.rights() }
    }
}

impl RemoteRegion {
    /// Returns the id by which any node can name this region.
    #[must_use]
    pub fn remote_id(&self) -> RemoteId {
        let Published { key, len, rights } = self.published();
        RemoteId { key, len, node: self.peer().rank(), rights }
    }
}

impl Job {
    /// Returns the region whose id another node has sent to this one.
    ///
    /// # Errors
    /// The job has no such node. (A missing region is reported when it is used.)
    pub fn remote(&self, id: RemoteId) -> Result<RemoteRegion> {
        let RemoteId { key, len, node, rights } = id;
        Ok(RemoteRegion::new(self.peer(node)?, &NAMELESS, Published { key, len, rights }))
    }
}
