//! Bytes to a peer's region and back: put, put with signal, get.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::memory::region::RegionSlice;
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_engine::{Keep, Request};
use oikaze_protocol::rma::{Rights, Signal};
use oikaze_protocol::wind::Body;
use std::borrow::Borrow;

/// Maximum number of bytes that [`RemoteRegion::put_copy`] copies before the call returns.
pub const COPY_MAX: usize = 4096;

impl RemoteRegion {
    /// Writes a counted slice to `offset` of the region. The call returns at once. The operation is
    /// complete when the data is in the peer's memory and visible. (A borrowed slice, `&slice`, is
    /// counted only if the operation needs it after the call has returned.)
    #[inline]
    pub fn put(&self, offset: u64, from: impl Borrow<RegionSlice>) -> Operation<()> {
        self.put_slice(offset, from.borrow(), None)
    }

    /// Writes up to [`COPY_MAX`] bytes of any memory, copied before the call returns.
    ///
    /// # Errors
    /// `bytes` is longer than [`COPY_MAX`] bytes.
    pub fn put_copy(&self, offset: u64, bytes: &[u8]) -> Result<Operation<()>> {
        self.check_copy(offset, bytes.len())?;
        if let Some(done) = self.put_bytes_direct(offset, bytes) {
            return Ok(done);
        }
        Ok(self.put_body(offset, Body::copy_of(bytes), None, None))
    }

    /// Writes a counted slice to `offset`, and adds to a word of a region of the same peer once
    /// *all* of the slice is in place.
    pub fn put_signal(
        &self,
        offset: u64,
        from: impl Borrow<RegionSlice>,
        signal: &RemoteSignal,
    ) -> Operation<()> {
        self.put_slice(offset, from.borrow(), Some(signal.0))
    }

    /// Writes a counted slice to `offset`, as [`RemoteRegion::put`] does. Once *all* of the slice
    /// is in place, an entry with this tag appears in the peer's
    /// [`Arrivals`](crate::memory::arrivals::Arrivals).
    ///
    /// Entries of one sender may come in another order than their puts were begun, as the bytes of
    /// different puts may. [`Peer::fence`](crate::Peer::fence) orders them. A put with notice waits
    /// for receive credit while the peer does not take its entries.
    pub fn put_notify(
        &self,
        offset: u64,
        from: impl Borrow<RegionSlice>,
        tag: u64,
    ) -> Operation<()> {
        let from = from.borrow();
        let body = Body::Segment(from.segment(Rights::READ));
        self.put_notice(offset, body, tag, Some(from.clone().keep()))
    }

    /// Writes up to [`COPY_MAX`] bytes of any memory, copied before the call returns, with a notice
    /// as [`RemoteRegion::put_notify`].
    ///
    /// # Errors
    /// `bytes` is longer than [`COPY_MAX`] bytes.
    pub fn put_notify_copy(&self, offset: u64, bytes: &[u8], tag: u64) -> Result<Operation<()>> {
        self.check_copy(offset, bytes.len())?;
        Ok(self.put_notice(offset, Body::copy_of(bytes), tag, None))
    }

    /// Asks the owner to put, even if this node has mapped the region (MEM-25.3).
    fn put_notice(&self, offset: u64, body: Body, tag: u64, keep: Keep) -> Operation<()> {
        let len = body.len();
        let (to, key) = (self.peer.rank, self.published.key);
        let request = Request::PutNotice { to, key, offset, body, tag };
        self.peer.begin(request, keep, self.what(OperationKind::Put, offset, len))
    }

    fn check_copy(&self, offset: u64, len: usize) -> Result<()> {
        if len <= COPY_MAX {
            return Ok(());
        }
        Err(Error::invalid(
            self.what(OperationKind::Put, offset, len as u64).to_string(),
            format!(
                "put_copy takes up to {COPY_MAX} bytes; use a registered region (put) or a scope for more"
            ),
        ))
    }

    #[inline]
    fn put_slice(&self, offset: u64, from: &RegionSlice, signal: Option<Signal>) -> Operation<()> {
        if self.put_direct(offset, from, signal) {
            Operation::done(())
        } else {
            self.put_message(offset, from, signal)
        }
    }

    /// Requests the put of this node's engine. A function of its own, so that a direct put does not
    /// bear its cost.
    #[inline(never)]
    fn put_message(
        &self,
        offset: u64,
        from: &RegionSlice,
        signal: Option<Signal>,
    ) -> Operation<()> {
        self.put_body(
            offset,
            Body::Segment(from.segment(Rights::READ)),
            signal,
            Some(from.clone().keep()),
        )
    }

    /// Describes a signal for [`RemoteRegion::put_signal`]: `add` to the 64-bit word at `offset` of
    /// this region.
    #[must_use]
    pub fn signal(&self, offset: u64, add: u64) -> RemoteSignal {
        RemoteSignal(Signal { key: self.published.key, offset, add })
    }

    pub(crate) fn put_body(
        &self,
        offset: u64,
        body: Body,
        signal: Option<Signal>,
        keep: Keep,
    ) -> Operation<()> {
        let len = body.len();
        let request =
            Request::Put { to: self.peer.rank, key: self.published.key, offset, body, signal };
        self.peer.begin(request, keep, self.what(OperationKind::Put, offset, len))
    }

    /// Reads from `offset` of the region into a counted slice.
    pub fn get(&self, offset: u64, into: impl Borrow<RegionSlice>) -> Operation<()> {
        let into = into.borrow();
        if let Some(done) = self.get_direct(offset, into) {
            return done;
        }
        let segment = into.segment(Rights::WRITE);
        let request =
            Request::Get { from: self.peer.rank, key: self.published.key, offset, into: segment };
        self.peer.begin(
            request,
            Some(into.clone().keep()),
            self.what(OperationKind::Get, offset, segment.len),
        )
    }
}

/// A word at a peer that counts arrivals; see [`RemoteRegion::signal`].
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
/// let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
/// let page = job.register(Region::zeroed(1024)?)?;
/// // 1 is added to the word at offset 0 once all bytes are in place.
/// there.put_signal(1024, page.all(), &there.signal(0, 1)).wait()?;
/// inbox.wait_until(0, |count| count == 1)?; // the bytes of the previous node are here
/// # job.barrier()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RemoteSignal(pub(super) Signal);
