//! Regions backed by a file, whose pages may be only on disk (MEM-1.10).

use super::super::mapping::Mapping;
use super::super::{AccessError, MemoryError, PageSize};
use super::sigbus::NamedMapping;
use super::{Backing, Region, RegionKind, Side};
use crate::memory::paging;
use crate::memory::paging::swap;
use oikaze_protocol::rma::Rights;
use rustix::fd::BorrowedFd;

impl Region {
    /// Maps `len` bytes of a file from `offset` (whole pages), shared with other mappings of the
    /// file. Pages need not be in memory: an operation that meets absent pages waits until a thread
    /// has fetched them, and other operations do not wait. If the file is truncated, operations on
    /// the lost bytes fail. The program's own access to them ends the process (SIGBUS) with a
    /// message (MEM-1.15), as with any mapping. A truncation while the runtime copies or sums these
    /// bytes also ends the process, so do not shrink a file that is in use.
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
        // Without the handler, a SIGBUS still ends the process, but without a message.
        let named = NamedMapping::new(file, offset, at, len).ok();
        let reports_pages = paging::reports_pages(file);
        Ok(Region::new(
            at,
            at,
            len,
            PageSize::Small,
            Backing::File { _named: named, _memory: memory, writable, reports_pages },
        ))
    }

    /// Returns `true` if pages of the region may be absent, so that a thread that touches them
    /// waits for a disk. Pages may be absent in files, in lent memory (which may be a mapped file),
    /// and in any memory if the machine swaps. Pages of shared arrays are never absent.
    #[must_use]
    #[doc(hidden)]
    pub fn may_be_absent(&self) -> bool {
        match self.inner.backing {
            Backing::File { .. } | Backing::Staged { .. } => true,
            Backing::Borrowed { .. } => swap::can_fetch(),
            Backing::Private { .. } | Backing::Shared { .. } => swap::is_on(),
            Backing::Alias { .. } => false,
        }
    }

    /// Returns `true` if the pages of this range are in memory. Except for a file's, pages that
    /// were recently present count as present.
    #[must_use]
    #[doc(hidden)]
    pub fn is_present(&self, offset: u64, len: u64) -> bool {
        if len == 0 || !self.may_be_absent() || self.check_bounds(offset, len).is_err() {
            return true;
        }
        let (at, len) = (self.at(Side::Runtime, offset), len as usize);
        match &self.inner.backing {
            Backing::Staged { disk, .. } => disk.is_present(offset, len as u64),
            Backing::File { reports_pages, .. } if *reports_pages => paging::is_present(at, len),
            Backing::File { .. } => swap::is_mapped(at, len),
            Backing::Private { .. } => swap::is_present(at, len, |pages| {
                paging::is_present(at, len) || !swap::is_swapped(pages)
            }),
            // Pages that were never touched count as present.
            Backing::Shared { alias, backed, .. } => swap::is_present(at, len, |pages| {
                let start = alias.base().as_ptr().addr();
                let is_hole = |file| !swap::has_data(file, pages.start - start..pages.end - start);
                paging::is_present(at, len) || backed.file().is_some_and(is_hole)
            }),
            // The memory behind a loan is unknown, so an untouched page is fetched once. After the
            // loan's end, nothing is asked about whatever is mapped there.
            Backing::Borrowed { gate, .. } => gate
                .visit()
                .is_none_or(|_stays| swap::is_present(at, len, |_| swap::is_mapped(at, len))),
            Backing::Alias { .. } => true,
        }
    }

    /// Brings the pages of this range into memory for the given access. Reading a file allocates
    /// nothing for its holes. Waits for the disk if necessary.
    ///
    /// # Errors
    /// Out of bounds; [`AccessError::Lost`]: the pages cannot be had.
    #[doc(hidden)]
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
        paging::populate(self.at(Side::Runtime, offset), len as usize, writing)
            .map_err(|_| AccessError::Lost { offset, len })
    }
}
