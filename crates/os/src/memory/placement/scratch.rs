//! Spare address space that pages pass through while two ranges are exchanged. Empty between
//! exchanges.

use super::super::mapping::Mapping;
use crate::memory::tracking::trackers::uffd_sys;
use core::ptr::NonNull;
use rustix::fd::OwnedFd;
use rustix::mm::{Advice, madvise};
use std::io;

/// Number of bytes moved at a time, small enough that the kernel's data about the pages is still in
/// the cache when they move again.
pub(super) const CHUNK: usize = 2 << 20;

/// Address space for one chunk, at any offset within a unit, the size of a huge page. A huge page
/// moves as one only between congruent addresses. Moving small pages interrupts the other
/// processors once for each page table that the pages are in, before or after.
#[derive(Debug)]
pub(super) struct Spare {
    mapping: Mapping,
    unit: usize,
}

impl Spare {
    /// Reserves space for chunks of up to [`CHUNK`] bytes, or one unit if that is more.
    pub fn new(fd: &OwnedFd, unit: usize) -> io::Result<Spare> {
        let len = CHUNK.max(unit) + unit;
        let mapping = Mapping::anonymous_aligned(len, unit).map_err(io::Error::other)?;
        // A child of fork would share the pages that are in transit.
        // SAFETY: a live mapping of ours; the advice changes none of its bytes.
        unsafe { madvise(mapping.base().as_ptr().cast(), mapping.len(), Advice::LinuxDontFork) }?;
        uffd_sys::register_for_moves(fd, mapping.base().addr().get(), mapping.len())?;
        Ok(Spare { mapping, unit })
    }

    /// Returns the spare place for pages from `from`.
    pub fn place_for(&self, from: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: less than a unit, and the mapping is longer.
        unsafe { self.mapping.base().add(from.addr().get() % self.unit) }
    }

    /// Frees leftover pages.
    pub fn clear(&self) {
        // SAFETY: our own mapping, which no other code knows; its content has been copied to where
        // it belongs.
        let _ = unsafe {
            madvise(self.mapping.base().as_ptr().cast(), self.mapping.len(), Advice::LinuxDontNeed)
        };
    }
}
