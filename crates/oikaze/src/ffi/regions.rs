//! Regions of this node by number, and operations on regions by numbers.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::memory::region::remote_id::{NAMELESS, RemoteId};
use crate::memory::region::{Inner, LocalRegion};
use oikaze_engine::{OperationKind, OperationLabel, Request};
use oikaze_os::memory::RegionId;
use oikaze_os::memory::{Holder, MemoryError};
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::{Body, Segment};
use std::sync::Arc;

impl LocalRegion {
    /// Returns the region's number on this node, for operations by numbers
    /// ([`Job::transfer`](crate::Job::transfer)).
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.inner.registered.id
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
