//! Ids of regions as plain numbers, and operations by such ids. An id can be kept in a table, sent
//! in a message, and passed through C.

use super::{Inner, LocalRegion};
use crate::operation::Operation;
use crate::{Error, Job, RegionId, RemoteRegion, Result};
use oikaze_engine::Request;
use oikaze_engine::{OperationKind, OperationLabel};
use oikaze_os::memory::{Holder, MemoryError};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Published, Rights};
use oikaze_protocol::wind::{Body, Segment};
use std::sync::{Arc, LazyLock};

/// Name in errors of regions that were not looked up by a name.
pub(crate) static NAMELESS: LazyLock<Arc<str>> = LazyLock::new(|| "(by number)".into());

/// Id by which any node of the job can name a region. The holder of the id may do what the region
/// grants (MEM-1.1). A receiver of the id in a message turns it back into a region by
/// [`Job::remote`].
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
        let mut bytes = [0; Self::BYTES];
        let parts = [
            &self.key.to_le_bytes()[..],
            &self.len.to_le_bytes(),
            &self.node.to_le_bytes(),
            &[self.rights.0],
        ];
        for (byte, part) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *byte = *part;
        }
        bytes
    }

    /// Makes an id from the bytes that [`RemoteId::to_bytes`] returned. Returns `None` for any
    /// other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (node, rest) = rest.split_first_chunk()?;
        let [rights, 0, 0, 0] = *rest else { return None };
        if rights & !Rights::ALL.0 != 0 {
            return None;
        }
        let (key, len, node) =
            (u64::from_le_bytes(*key), u64::from_le_bytes(*len), Rank::from_le_bytes(*node));
        Some(Self { key, len, node, rights: Rights(rights) })
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
    /// Returns the registered region of this number (MEM-1.5). The region stays registered for as
    /// long as the returned handle, or another one, lives.
    ///
    /// # Errors
    /// The region is no longer registered.
    pub fn region(&self, id: RegionId) -> Result<LocalRegion> {
        self.node.check_process(|| format!("region number {:#x}", id.to_bits()))?;
        let holder = self
            .node
            .with_engine(|engine| engine.memory().resolve(id).and_then(|(_, _, holder)| holder));
        let inner = holder.and_then(|holder| holder.downcast::<Inner>().ok());
        let gone = || {
            Error::invalid(
                format!("region number {:#x}", id.to_bits()),
                MemoryError::NotRegistered.to_string(),
            )
        };
        Ok(LocalRegion { inner: inner.ok_or_else(gone)? })
    }

    /// Returns the region whose id another node has sent to this one.
    ///
    /// # Errors
    /// The job has no such node. (A missing region is reported when it is used.)
    pub fn remote(&self, id: RemoteId) -> Result<RemoteRegion> {
        let RemoteId { key, len, node, rights } = id;
        Ok(RemoteRegion::new(self.peer(node)?, &NAMELESS, Published { key, len, rights }))
    }

    /// Writes `len` bytes of a region of this node to a region of another one, both named by ids.
    /// The operation is complete when the bytes are in that node's memory and visible there.
    ///
    /// # Errors
    /// The source is no longer registered, or shorter; the job has no such node.
    pub fn transfer(
        &self,
        source: RegionId,
        source_offset: u64,
        destination: RemoteId,
        destination_offset: u64,
        len: u64,
    ) -> Result<Operation<()>> {
        let what = self.by_number(OperationKind::Put, destination, destination_offset, len);
        let (segment, keep) = self.resolve(&what, source, source_offset, len, Rights::READ)?;
        let RemoteId { key, node, .. } = destination;
        let request = Request::Put {
            to: node,
            key,
            offset: destination_offset,
            body: Body::Segment(segment),
            signal: None,
        };
        Ok(self.peer(node)?.begin(request, keep, what))
    }

    /// Reads `len` bytes of a region of another node into a region of this one, both named by ids.
    ///
    /// # Errors
    /// The destination is no longer registered, or shorter; the job has no such node.
    pub fn fetch(
        &self,
        source: RemoteId,
        source_offset: u64,
        destination: RegionId,
        destination_offset: u64,
        len: u64,
    ) -> Result<Operation<()>> {
        let what = self.by_number(OperationKind::Get, source, source_offset, len);
        let (into, keep) =
            self.resolve(&what, destination, destination_offset, len, Rights::WRITE)?;
        let request =
            Request::Get { from: source.node, key: source.key, offset: source_offset, into };
        Ok(self.peer(source.node)?.begin(request, keep, what))
    }

    fn by_number(
        &self,
        verb: OperationKind,
        there: RemoteId,
        offset: u64,
        len: u64,
    ) -> OperationLabel {
        OperationLabel { verb, len, peer: there.node, at: Some((Arc::clone(&NAMELESS), offset)) }
    }

    /// Finds the bytes of this node's region that an operation uses, and the handle that keeps them
    /// meanwhile (MEM-1.5).
    fn resolve(
        &self,
        what: &OperationLabel,
        id: RegionId,
        offset: u64,
        len: u64,
        right: Rights,
    ) -> Result<(Segment, Option<Holder>)> {
        self.node.check_process(|| what.to_string())?;
        let found = self.node.with_engine(|engine| {
            let (slot, region, holder) = engine.memory().resolve(id)?;
            Some((
                slot,
                region.len() as u64,
                holder,
                region.may_be_absent().then(|| region.clone()),
            ))
        });
        let Some((region, size, holder, absent)) = found else {
            return Err(Error::invalid(what.to_string(), MemoryError::NotRegistered.to_string()));
        };
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let why = format!(
                "{len} bytes at offset {offset} lie outside this node's own region of {size} bytes"
            );
            return Err(Error::invalid(what.to_string(), why));
        }
        if let Some(absent) = absent {
            // A thread must not enter a turn with memory still to be faulted in (MEM-1.12). If this
            // attempt fails, the operation fails when it begins.
            let _ = absent.make_present(offset, len, right);
        }
        Ok((Segment { region, offset, len }, holder))
    }
}
