//! Bytes of a region to be filled by an iovec.

use super::region::access::Hold;
use super::region::{Region, RegionKind};
use core::ptr::NonNull;
use oikaze_protocol::rma::Rights;

/// Checked, writable bytes of a region, which stay in place for as long as the `Scatter` lives. A
/// link may receive payloads directly into these bytes.
///
/// Keep a `Scatter` only briefly, as a [`Gather`](super::Gather). A scope that lent the memory
/// waits until the `Scatter` is dropped.
#[derive(Debug)]
pub struct Scatter {
    at: NonNull<u8>,
    len: usize,
    _hold: Hold,
}

impl Region {
    /// Returns bytes to be received into directly ([`RegionTable::scatter`]).
    ///
    /// [`RegionTable::scatter`]: crate::memory::RegionTable::scatter
    #[must_use]
    pub fn scatter(&self, offset: u64, len: u64) -> Option<Scatter> {
        self.scatter_into(offset, len, false)
    }

    pub(super) fn scatter_pages(&self, offset: u64, len: u64) -> Option<Scatter> {
        self.scatter_into(offset, len, true)
    }

    fn scatter_into(&self, offset: u64, len: u64, is_array: bool) -> Option<Scatter> {
        let is_fit = (self.kind() == RegionKind::Alias) == is_array;
        if !is_fit || !self.rights().contains(Rights::WRITE) {
            return None;
        }
        let (at, hold) = self.hold(offset, len).ok()?;
        Some(Scatter::new(at, usize::try_from(len).ok()?, hold))
    }
}

// SAFETY: the bytes stay valid while the hold lives, on any thread; they are reached by raw copies
// (see the module about races).
unsafe impl Send for Scatter {}

impl Scatter {
    /// Wraps `len` bytes at `at`, valid and writable while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Scatter {
        Scatter { at, len, _hold: hold }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of `len` bytes from `start` on, for an iovec. Returns `None` if the
    /// range is not inside the `Scatter`. The address must not be used after the `Scatter` is
    /// dropped.
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps.
        inside.then(|| unsafe { self.at.as_ptr().add(start) })
    }

    /// Returns the current bytes of a range, or `None` if the range is not inside the `Scatter`. A
    /// program must not write to the range while a put is in flight (MEM-3.3). The program would
    /// race with the reader of these bytes, and the seal of the received data would not verify.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps; bytes have no invalid values.
        inside.then(|| unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(start), len) })
    }

    /// Copies bytes into a range, as the kernel would. Used by links without a kernel, such as
    /// those of tests. Does nothing if the range is not inside the `Scatter`.
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some(at) = self.place(start, bytes.len()) {
            // SAFETY: `place` has checked that these bytes are ours to write; concurrent readers
            // are under the rule of `crate::memory` about races.
            unsafe { core::ptr::copy(bytes.as_ptr(), at, bytes.len()) }
        }
    }
}
