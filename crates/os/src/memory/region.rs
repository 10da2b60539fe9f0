//! Regions: memory that peers may reach and that sends may gather from.

pub(super) mod access;
mod file;
mod file_pages;
mod gate;
mod grow;
mod sigbus;
mod staged;
pub(super) mod weak;

pub use file_pages::{FilePages, NotTaken, PagesLock};
pub use staged::Disk;

use super::error::MemoryError;
use super::huge::{self, PageSize};
use super::mapping::{Mapping, whole_pages};
use super::placement::mover::WatchingMover;
use super::{memfd, room};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use file_pages::Backed;
use gate::Gate;
use oikaze_protocol::rma::Rights;
use rustix::fd::{AsFd, BorrowedFd};
use sigbus::NamedMapping;
use std::sync::Arc;

/// Kind of memory that holds a region's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// A memory file of ours, mapped twice: the program's view and the runtime's alias.
    Shared,
    /// Anonymous memory of ours.
    Private,
    /// The program's memory, lent until a scope ends.
    Borrowed,
    /// A file of the program's, whose pages may be only on disk.
    File,
    /// The runtime's alias of memory that another object owns (shared arrays).
    Alias,
}

/// Side that touches the bytes: the program (through the view, which may be tracked) or the runtime
/// (through the alias, which never traps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Program,
    Runtime,
}

/// Reference-counted memory. Clones are the same memory, which is freed when the last clone and the
/// last [`super::Gather`] are dropped.
///
/// All methods copy, and check their bounds. Single words are changed atomically
/// ([`Region::word`]). See [the module](super) about races.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    view: NonNull<u8>,
    alias: NonNull<u8>,
    /// Length in bytes. Only grows ([`Region::grow`]), and never past `capacity`.
    len: AtomicUsize,
    /// Bytes of address space from the region's start.
    capacity: usize,
    pages: PageSize,
    /// Shape of the FIFO that the owner made here ([`super::fifo`]), or 0 if there is none.
    fifo: AtomicU64,
    backing: Backing,
}

/// An object that keeps memory mapped.
pub(crate) trait Owner: core::fmt::Debug + Send + Sync {}
impl<T: core::fmt::Debug + Send + Sync> Owner for T {}

/// Memory behind a region. `reports_pages` of a `File` is set if the kernel reports which of its
/// pages are in memory ([`crate::memory::paging::reports_pages`]).
#[derive(Debug)]
enum Backing {
    Shared { view: Mapping, alias: Mapping, backed: Backed },
    Private { memory: Mapping, watched: WatchingMover },
    Borrowed { gate: Gate, writable: bool },
    File { _named: Option<NamedMapping>, _memory: Mapping, writable: bool, reports_pages: bool },
    Staged { _memory: Mapping, disk: Disk },
    Alias { _owner: Arc<dyn Owner> },
}

// SAFETY: the pointers lead into memory that the backing keeps alive. For lent memory, the end of
// the loan waits at the gate for every access. The memory is reached through raw copies and atomics
// only, from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Region {
    /// Returns zeroed memory in a file of its own, mapped twice. All of it is reserved now, in huge
    /// pages where the kernel grants them.
    ///
    /// # Errors
    /// [`MemoryError`]: not enough memory, a limit, a sandbox.
    pub fn shared(len: usize) -> Result<Region, MemoryError> {
        Region::shared_of(len, PageSize::Huge)
    }

    /// As [`Region::shared`], with pages of this size.
    ///
    /// # Errors
    /// As [`Region::shared`].
    pub fn shared_of(len: usize, pages: PageSize) -> Result<Region, MemoryError> {
        let _room = room::reserve(whole_pages(len)?)?;
        let file = memfd::sparse("oikaze-region", len)?;
        let map = || match huge::suits(len, pages) {
            Some(align) => Mapping::of_file_aligned(file.as_fd(), len, align),
            None => Mapping::of_file(file.as_fd(), len),
        };
        let alias = map()?;
        huge::fill(&file, &alias, pages)?;
        let view = map()?;
        let (at, at_alias, backed) = (view.base(), alias.base(), Backed::by(file, alias.len()));
        Ok(Region::new(at, at_alias, len, pages, Backing::Shared { view, alias, backed }))
    }

    /// Returns zeroed memory of this process alone. Pages are allocated at the first touch, huge
    /// ones where the kernel grants them.
    ///
    /// # Errors
    /// [`MemoryError`]: not enough memory, a limit.
    pub fn private(len: usize) -> Result<Region, MemoryError> {
        Region::private_of(len, PageSize::Huge)
    }

    /// As [`Region::private`], with pages of this size. Small pages suit memory that is touched
    /// sparsely, or whose pages are moved in small numbers.
    ///
    /// # Errors
    /// As [`Region::private`].
    pub fn private_of(len: usize, pages: PageSize) -> Result<Region, MemoryError> {
        let memory = huge::anonymous(len, pages)?;
        let (at, watched) = (memory.base(), WatchingMover::default());
        Ok(Region::new(at, at, len, pages, Backing::Private { memory, watched }))
    }

    /// Returns memory of the usual kind: [`Region::private`].
    ///
    /// # Errors
    /// As [`Region::private`].
    pub fn zeroed(len: usize) -> Result<Region, MemoryError> {
        Region::private(len)
    }

    /// Wraps `len` bytes at `at`, which `owner` keeps mapped readable, writable and untracked: the
    /// alias of a shared array.
    ///
    /// # Safety
    /// The bytes stay mapped so for as long as `owner` lives, and no `&mut` reference into them
    /// exists meanwhile (`&` references and views through other mappings are under the rule of the
    /// [module](super)).
    pub(crate) unsafe fn from_alias(owner: Arc<dyn Owner>, at: NonNull<u8>, len: usize) -> Region {
        Region::new(at, at, len, PageSize::Small, Backing::Alias { _owner: owner })
    }

    /// Wraps memory that stays valid until [`Region::close`] has returned.
    pub(super) fn borrowed(at: NonNull<u8>, len: usize, writable: bool) -> Region {
        Region::new(at, at, len, PageSize::Small, Backing::Borrowed { gate: Gate::new(), writable })
    }

    fn new(
        view: NonNull<u8>,
        alias: NonNull<u8>,
        len: usize,
        pages: PageSize,
        backing: Backing,
    ) -> Region {
        Region {
            inner: Arc::new(Inner {
                view,
                alias,
                len: AtomicUsize::new(len),
                capacity: len,
                pages,
                fifo: AtomicU64::new(0),
                backing,
            }),
        }
    }

    /// Returns the page size that was asked for.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.inner.pages
    }

    /// Returns the size of the region's huge pages in bytes, or `None` if the region has small
    /// pages only.
    pub(super) fn huge_pages(&self) -> Option<usize> {
        huge::suits(self.inner.capacity, self.inner.pages)
    }

    /// Returns the mapping of a private region, whose pages may be moved, and its watch state.
    pub(super) fn private_memory(&self) -> Option<(&Mapping, &WatchingMover)> {
        match &self.inner.backing {
            Backing::Private { memory, watched } => Some((memory, watched)),
            _ => None,
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.inner.len.load(Ordering::Acquire)
    }

    /// Returns `true` if the region has no bytes. (Only lent memory can be empty.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of memory that holds the bytes.
    #[must_use]
    #[doc(hidden)]
    pub fn kind(&self) -> RegionKind {
        match self.inner.backing {
            Backing::Shared { .. } => RegionKind::Shared,
            Backing::Private { .. } => RegionKind::Private,
            Backing::Borrowed { .. } => RegionKind::Borrowed,
            Backing::File { .. } | Backing::Staged { .. } => RegionKind::File,
            Backing::Alias { .. } => RegionKind::Alias,
        }
    }

    /// See [`Gather::may_be_read_late`](super::Gather::may_be_read_late).
    pub(super) fn may_be_read_late(&self) -> bool {
        !matches!(self.kind(), RegionKind::Borrowed | RegionKind::Alias)
    }

    /// Returns the rights that the memory itself can grant: all, or only reading if it was lent or
    /// mapped for reading.
    #[must_use]
    #[doc(hidden)]
    pub fn rights(&self) -> Rights {
        if self.writable() { Rights::ALL } else { Rights::READ }
    }

    #[inline]
    pub(super) fn writable(&self) -> bool {
        !matches!(
            self.inner.backing,
            Backing::Borrowed { writable: false, .. } | Backing::File { writable: false, .. }
        )
    }

    /// Returns `true` if the scope that lent the memory has ended.
    #[must_use]
    #[doc(hidden)]
    pub fn is_closed(&self) -> bool {
        matches!(&self.inner.backing, Backing::Borrowed { gate, .. } if gate.is_closed())
    }

    /// Returns the file of a shared region, for a peer on this machine to map. Returns `None` once
    /// pages may have been exchanged with a local peer.
    #[must_use]
    #[doc(hidden)]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.inner.backing {
            Backing::Shared { backed, .. } => backed.file(),
            _ => None,
        }
    }

    /// Returns the address of the program's view, for C and NumPy, or null for lent memory. Peers
    /// may write there at any time.
    #[must_use]
    #[doc(hidden)]
    pub fn view_ptr(&self) -> *mut u8 {
        match self.inner.backing {
            Backing::Borrowed { .. } => core::ptr::null_mut(),
            _ => self.inner.view.as_ptr(),
        }
    }

    /// Returns the owner's record of a FIFO here, as the bits of its shape. The region's own bytes
    /// are not used, because others may write them.
    pub(super) fn fifo_bits(&self) -> &AtomicU64 {
        &self.inner.fifo
    }

    /// Returns `true` if this is the only handle to the memory. (Then no other thread can make
    /// one.)
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// Ends the loan: refuses new accesses and waits for those under way.
    pub(super) fn close(&self) {
        if let Backing::Borrowed { gate, .. } = &self.inner.backing {
            gate.close();
        }
    }
}
