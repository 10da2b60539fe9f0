//! Access to a region's bytes: by copy, or held in place for a while.

use super::{Backing, Region, Side};
use crate::memory::error::AccessError;
use crate::memory::gather::Gather;
use core::ptr::NonNull;

impl Region {
    /// Copies bytes out.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, or the lending scope has ended.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.read_from(Side::Program, offset, into)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, lent for reading, or the lending scope has ended.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.write_from(Side::Program, offset, bytes)
    }

    /// Sets bytes to one value.
    ///
    /// # Errors
    /// As [`Region::write`].
    pub fn fill(&self, offset: u64, len: u64, value: u8) -> Result<(), AccessError> {
        self.check_writable()?;
        // SAFETY: `reach` vouches for `len` bytes at `at` for the length of the call.
        self.reach(Side::Program, offset, len, |at| unsafe {
            at.as_ptr().write_bytes(value, len as usize)
        })
    }

    /// Copies bytes to another region, or to other bytes of this one.
    ///
    /// # Errors
    /// As [`Region::write`], of either region.
    #[doc(hidden)]
    pub fn copy_to(
        &self,
        offset: u64,
        into: &Region,
        at: u64,
        len: u64,
    ) -> Result<(), AccessError> {
        into.check_writable()?;
        self.reach(Side::Program, offset, len, |from| {
            into.reach(Side::Program, at, len, |to| {
                // SAFETY: `reach` vouches for both, which may overlap.
                unsafe { core::ptr::copy(from.as_ptr(), to.as_ptr(), len as usize) }
            })
        })?
    }

    pub(in crate::memory) fn read_from(
        &self,
        side: Side,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), AccessError> {
        self.reach(side, offset, into.len() as u64, |at| {
            // SAFETY: `reach` vouches for the source; the destination is an exclusive slice. They
            // do not overlap: no reference into a region exists outside this crate, except to lent
            // memory, whose owner has lent it to us.
            unsafe { core::ptr::copy_nonoverlapping(at.as_ptr(), into.as_mut_ptr(), into.len()) }
        })
    }

    #[inline]
    pub(in crate::memory) fn write_from(
        &self,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        self.check_writable()?;
        self.reach(side, offset, bytes.len() as u64, |at| {
            // The bytes were received directly into place, so there is nothing to copy.
            if !core::ptr::eq(bytes.as_ptr(), at.as_ptr()) {
                // SAFETY: as in `read_from`, the other way round; a source that was received into a
                // region may overlap.
                unsafe { core::ptr::copy(bytes.as_ptr(), at.as_ptr(), bytes.len()) }
            }
        })
    }

    #[inline]
    pub(in crate::memory) fn check_writable(&self) -> Result<(), AccessError> {
        if self.writable() { Ok(()) } else { Err(AccessError::ReadOnly) }
    }

    /// Checks that the range is inside the region, without overflow.
    #[inline]
    pub(crate) fn check_bounds(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        let size = self.len() as u64;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(AccessError::OutOfBounds { offset, len, size }),
        }
    }

    /// Calls `touch` with a pointer to `len` bytes at `offset`. The bytes stay valid (and, if lent,
    /// lent) until `touch` returns.
    #[inline]
    pub(in crate::memory) fn reach<R>(
        &self,
        side: Side,
        offset: u64,
        len: u64,
        touch: impl FnOnce(NonNull<u8>) -> R,
    ) -> Result<R, AccessError> {
        self.check_bounds(offset, len)?;
        let _stay = match &self.inner.backing {
            Backing::Borrowed { gate, .. } => Some(gate.visit().ok_or(AccessError::Closed)?),
            _ => None,
        };
        Ok(touch(self.at(side, offset)))
    }

    /// Returns the address of a checked offset.
    #[inline]
    pub(in crate::memory) fn at(&self, side: Side, offset: u64) -> NonNull<u8> {
        let base = match side {
            Side::Program => self.inner.view,
            Side::Runtime => self.inner.alias,
        };
        // SAFETY: callers have checked the offset against the length of the one allocation that
        // `base` begins.
        unsafe { base.add(offset as usize) }
    }

    /// Holds bytes at `offset` in place for as long as the [`Hold`] lives. The address is in the
    /// alias.
    pub(in crate::memory) fn hold(
        &self,
        offset: u64,
        len: u64,
    ) -> Result<(NonNull<u8>, Hold), AccessError> {
        self.check_bounds(offset, len)?;
        if let Backing::Borrowed { gate, .. } = &self.inner.backing
            && !gate.enter()
        {
            return Err(AccessError::Closed);
        }
        Ok((self.at(Side::Runtime, offset), Hold { region: self.clone() }))
    }

    /// Returns bytes to be copied elsewhere, held in place until the [`Gather`] is dropped.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, or the lending scope has ended.
    #[doc(hidden)]
    pub fn lend(&self, offset: u64, len: u64) -> Result<Gather, AccessError> {
        let (at, hold) = self.hold(offset, len)?;
        Ok(Gather::new(at, len as usize, hold))
    }

    /// Returns the address range of the program's view, or `None` if the lending scope has ended.
    #[must_use]
    #[doc(hidden)]
    pub fn addresses(&self) -> Option<core::ops::Range<usize>> {
        let start = self.inner.view.as_ptr().addr();
        (!self.is_closed()).then(|| start..start + self.len())
    }

    /// Calls `look` with the bytes in place, as the source of a copy. A concurrent change leaves
    /// some mixture in the copy. The bytes are read through the program's own mapping. Data that
    /// the program has just stored is still in the store buffer, from which the processor does not
    /// forward it to a load at another address of the same memory.
    ///
    /// For this crate alone: any clone of the region can change the bytes under the slice, so
    /// `look` must hand it to a copy and do nothing else with it (MEM-1.14).
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, or the lending scope has ended.
    #[inline]
    pub(crate) fn with_bytes<R>(
        &self,
        offset: u64,
        len: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        self.reach(Side::Program, offset, len, |at| {
            // SAFETY: `reach` vouches for `len` bytes at `at` for the length of the call; bytes
            // have no invalid values. As with [`Gather::with_bytes`], a writer races with `look` as
            // with the kernel's copy.
            look(unsafe { core::slice::from_raw_parts(at.as_ptr(), len as usize) })
        })
    }
}

/// Holds a region's bytes in place. The end of a loan waits for it.
#[derive(Debug)]
pub(in crate::memory) struct Hold {
    region: Region,
}

impl Hold {
    pub(in crate::memory) fn may_be_read_late(&self) -> bool {
        self.region.may_be_read_late()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Backing::Borrowed { gate, .. } = &self.region.inner.backing {
            gate.leave();
        }
    }
}
