//! Regions whose bytes are a file's, and whose pages may be on the disk alone (MEM-1.10).

use super::super::mapping::Mapping;
use super::super::{AccessError, MemoryError, PageSize, residence, swap};
use super::sigbus::NamedMapping;
use super::{Backing, Region, RegionKind, Side};
use oikaze_protocol::rma::Rights;
use rustix::fd::BorrowedFd;

impl Region {
    /// `len` bytes of a file from `offset` (whole pages) on, as other mappings of it see them. Its
    /// pages need not be in memory: an operation that meets absent ones waits until a thread has
    /// fetched them, and nobody else does. If the file is truncated, operations on what is gone
    /// fail; the program's own access to that ends it (SIGBUS) with a message (MEM-1.15), as for
    /// any mapping, and so does a truncation in the very moment in which bytes are copied or summed
    /// up here: shrink no file that is in use.
    ///
    /// # Errors
    /// [`MemoryError`]: an offset inside a page; a file that cannot be mapped so.
    pub fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Region, MemoryError> {
        if !offset.is_multiple_of(rustix::param::page_size() as u64) {
            return Err(MemoryError::FileOffset(offset));
        }
        let memory = Mapping::of_part_of_file(file, offset, len, writable)?;
        let at = memory.base();
        // Without the handler a SIGBUS ends the process all the same, in silence.
        let named = NamedMapping::new(file, offset, at, len).ok();
        let told = residence::is_told(file);
        Ok(Region::new(
            at,
            at,
            len,
            PageSize::Small,
            Backing::File { _named: named, _memory: memory, writable, told },
        ))
    }

    /// May pages of it be absent, so that whoever touches them waits for a disk? Those of a file,
    /// what was lent, which may be one's, and any where the machine swaps; but a shared array's.
    #[must_use]
    pub fn may_be_absent(&self) -> bool {
        match self.inner.backing {
            Backing::File { .. } | Backing::Staged { .. } => true,
            Backing::Borrowed { .. } => swap::can_fetch(),
            Backing::Private { .. } | Backing::Shared { .. } => swap::is_on(),
            Backing::Alias { .. } => false,
        }
    }

    /// Are the pages of this range in memory? Those that were a moment ago are taken to be, unless
    /// they are a file's.
    #[must_use]
    pub fn is_present(&self, offset: u64, len: u64) -> bool {
        if len == 0 || !self.may_be_absent() || self.check_bounds(offset, len).is_err() {
            return true;
        }
        let (at, len) = (self.at(Side::Runtime, offset), len as usize);
        match &self.inner.backing {
            Backing::Staged { disk, .. } => disk.is_present(offset, len as u64),
            Backing::File { told, .. } if *told => residence::is_present(at, len),
            Backing::File { .. } => swap::is_mapped(at, len),
            Backing::Private { .. } => swap::is_present(at, len, |pages| {
                residence::is_present(at, len) || !swap::is_swapped(pages)
            }),
            // As good as present is what never was anywhere.
            Backing::Shared { alias, backed, .. } => swap::is_present(at, len, |pages| {
                let start = alias.base().as_ptr().addr();
                let is_hole = |file| !swap::has_data(file, pages.start - start..pages.end - start);
                residence::is_present(at, len) || backed.file().is_some_and(is_hole)
            }),
            // Nobody knows what is behind it: what was never touched is fetched once. Nor what
            // follows there when the loan is over.
            Backing::Borrowed { gate, .. } => gate
                .visit()
                .is_none_or(|_stays| swap::is_present(at, len, |_| swap::is_mapped(at, len))),
            Backing::Alias { .. } => true,
        }
    }

    /// Have the pages of this range in memory, for what is to be done there: to read a file, its
    /// holes need no room. Waits for the disk, if they may be there.
    ///
    /// # Errors
    /// Out of bounds; [`AccessError::Lost`]: they cannot be had.
    pub fn make_present(&self, offset: u64, len: u64, right: Rights) -> Result<(), AccessError> {
        self.check_bounds(offset, len)?;
        if !self.may_be_absent() || len == 0 {
            return Ok(());
        }
        if let Some(disk) = self.disk() {
            disk.bring_all(offset, len);
            return Ok(());
        }
        if self.kind() != RegionKind::File && self.is_present(offset, len) {
            return Ok(());
        }
        let writing = self.writable() && right != Rights::READ;
        residence::populate(self.at(Side::Runtime, offset), len as usize, writing)
            .map_err(|_| AccessError::Lost { offset, len })
    }
}
