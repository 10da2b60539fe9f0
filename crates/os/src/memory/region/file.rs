//! Regions whose bytes are a file's, and whose pages may be on the disk alone (MEM-1.10).

use super::super::mapping::Mapping;
use super::super::{AccessError, MemoryError, PageSize, residence};
use super::{Backing, Region, Side};
use rustix::fd::BorrowedFd;

impl Region {
    /// `len` bytes of a file from `offset` (whole pages) on, as other mappings of it see them. Its pages need not be in memory: an operation that
    /// meets absent ones waits until a thread has fetched them, and nobody else does. If the file is truncated, operations on what is gone
    /// fail; the program's own access to that ends it (SIGBUS), as for any mapping, and so does a
    /// truncation in the very moment in which bytes are copied or summed up here: shrink no file that is in use.
    ///
    /// # Errors
    /// [`MemoryError`]: an offset inside a page; a file that cannot be mapped so.
    pub fn of_file(file: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> Result<Region, MemoryError> {
        if !offset.is_multiple_of(rustix::param::page_size() as u64) {
            return Err(MemoryError::FileOffset(offset));
        }
        let memory = Mapping::of_part_of_file(file, offset, len, writable)?;
        let at = memory.base();
        Ok(Region::new(at, at, len, PageSize::Small, Backing::File { _memory: memory, writable }))
    }

    /// May pages of it be absent, so that whoever touches them waits for a disk?
    #[must_use]
    pub fn may_be_absent(&self) -> bool {
        matches!(self.inner.backing, Backing::File { .. } | Backing::Staged { .. })
    }

    /// Are the pages of this range in memory? Of what is no file's, they are as good as that.
    #[must_use]
    pub fn is_present(&self, offset: u64, len: u64) -> bool {
        if !self.may_be_absent() || self.check_bounds(offset, len).is_err() {
            return true;
        }
        match self.disk() {
            Some(disk) => disk.is_present(offset, len),
            None => residence::is_present(self.at(Side::Runtime, offset), len as usize),
        }
    }

    /// Have the pages of this range in memory. Waits for the disk; nothing happens to what is no file's.
    ///
    /// # Errors
    /// Out of bounds; [`AccessError::Lost`]: they cannot be had.
    pub fn make_present(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        self.check_bounds(offset, len)?;
        if !self.may_be_absent() || len == 0 {
            return Ok(());
        }
        if let Some(disk) = self.disk() {
            disk.bring_all(offset, len);
            return Ok(());
        }
        residence::populate(self.at(Side::Runtime, offset), len as usize, self.writable())
            .map_err(|_| AccessError::Lost { offset, len })
    }
}
