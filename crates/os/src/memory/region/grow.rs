//! Regions that grow into address space reserved when they were made.

use super::super::mapping::{Mapping, whole_pages};
use super::super::placement::mover::WatchingMover;
use super::super::{MemoryError, PageSize, memfd, room};
use super::file_pages::Backed;
use super::{Backing, Region};
use core::sync::atomic::Ordering;
use rustix::fd::AsFd;

impl Region {
    /// As [`Region::shared`], with small pages and address space to [grow](Region::grow) into.
    ///
    /// # Errors
    /// As [`Region::shared`].
    pub fn shared_with_capacity(len: usize, capacity: usize) -> Result<Region, MemoryError> {
        let (now, capacity) = (whole_pages(len)?, whole_pages(capacity.max(len))?);
        let _room = room::reserve(now)?;
        let file = memfd::sparse("oikaze-region", capacity)?;
        memfd::reserve(&file, 0, now)?;
        let view = Mapping::of_file(file.as_fd(), capacity)?;
        let alias = Mapping::of_file(file.as_fd(), capacity)?;
        let (at, at_alias) = (view.base(), alias.base());
        let region = Region::new(
            at,
            at_alias,
            capacity,
            PageSize::Small,
            Backing::Shared { view, alias, backed: Backed::by(file, capacity) },
        );
        Ok(region.of_length(len))
    }

    /// As [`Region::private`], with small pages and address space to [grow](Region::grow) into.
    ///
    /// # Errors
    /// As [`Region::private`].
    pub fn private_with_capacity(len: usize, capacity: usize) -> Result<Region, MemoryError> {
        whole_pages(len)?;
        let memory = Mapping::anonymous_unpromised(capacity.max(len))?;
        let (at, capacity, watched) = (memory.base(), memory.len(), WatchingMover::default());
        Ok(Region::new(at, at, capacity, PageSize::Small, Backing::Private { memory, watched })
            .of_length(len))
    }

    /// Grows the region to `len` bytes. The bytes keep their addresses, so pointers stay valid, and
    /// the region can grow only into the address space reserved when it was made. Added bytes are
    /// zero. The greater length of two concurrent calls wins.
    ///
    /// # Errors
    /// [`MemoryError`]: past the capacity, or shorter than it is; not enough memory.
    pub fn grow(&self, len: usize) -> Result<(), MemoryError> {
        let (now, capacity) = (self.len(), self.capacity());
        if len > capacity || len < now {
            return Err(MemoryError::Capacity { asked: len, len: now, capacity });
        }
        if let Some(backed) = self.backed() {
            let _room = room::reserve(len - now)?;
            memfd::reserve(backed.own(), 0, whole_pages(len)?)?;
        }
        // Release: a thread that sees the length finds the pages.
        self.inner.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// Returns the number of bytes that the region can [grow](Region::grow) to.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// Sets the initial length of a new region.
    fn of_length(self, len: usize) -> Region {
        self.inner.len.store(len, Ordering::Release);
        self
    }
}
