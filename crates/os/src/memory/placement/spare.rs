//! The place through which pages go while two ranges are exchanged. Between exchanges it is empty.

use super::super::mapping::Mapping;
use super::super::shared::uffd_sys;
use core::ptr::NonNull;
use rustix::fd::OwnedFd;
use rustix::mm::{Advice, madvise};
use std::io;

/// Bytes that change place at a time: so few that what the kernel keeps of their pages is still in
/// the cache when they move again.
pub(super) const CHUNK: usize = 2 << 20;

/// Address space for one chunk, at any place within a unit, the size of a huge page: such a page
/// moves as one only between places that are congruent, and small ones interrupt the other
/// processors once for each page table that they are in, before or after.
#[derive(Debug)]
pub(super) struct Spare {
    mapping: Mapping,
    unit: usize,
}

impl Spare {
    /// For chunks of up to [`CHUNK`] bytes, or one unit if that is more.
    pub fn new(fd: &OwnedFd, unit: usize) -> io::Result<Spare> {
        let len = CHUNK.max(unit) + unit;
        let mapping = Mapping::anonymous_aligned(len, unit).map_err(io::Error::other)?;
        // A child of fork would make pages shared that are on their way.
        // SAFETY: a live mapping of ours; the advice changes none of its bytes.
        unsafe { madvise(mapping.base().as_ptr().cast(), mapping.len(), Advice::LinuxDontFork) }?;
        uffd_sys::register_for_moves(fd, mapping.base().addr().get(), mapping.len())?;
        Ok(Spare { mapping, unit })
    }

    /// The place for pages from `from`.
    pub fn place_for(&self, from: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: less than a unit, and the mapping is longer.
        unsafe { self.mapping.base().add(from.addr().get() % self.unit) }
    }

    /// Drop what was left behind.
    pub fn clear(&self) {
        // SAFETY: our own mapping, of which nobody knows; what is in it has been copied to where it
        // belongs.
        let _ = unsafe {
            madvise(self.mapping.base().as_ptr().cast(), self.mapping.len(), Advice::LinuxDontNeed)
        };
    }
}
