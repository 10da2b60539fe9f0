//! One piece of memory that peers may reach and that sends may gather from.

mod access;
mod file;
mod file_pages;
mod grow;
mod leave;
mod sigbus;
mod staged;
mod weak;

pub(super) use access::Hold;
pub use file_pages::{FilePages, NotTaken, PagesLock};
pub use staged::Disk;
pub use weak::WeakRegion;

use super::borrowed::Gate;
use super::huge::{self, PageSize};
use super::mapping::{Mapping, whole_pages};
use super::placement::Watched;
use super::{MemoryError, memfd, room};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use file_pages::Backed;
use oikaze_protocol::rma::Rights;
use rustix::fd::{AsFd, BorrowedFd};
use sigbus::NamedMapping;
use std::sync::Arc;

/// Where a region's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Our memory file, mapped twice: the program's view and the runtime's alias.
    Shared,
    /// Our anonymous memory.
    Private,
    /// The program's memory, lent until a scope ends.
    Borrowed,
    /// A file of the program's, whose pages may be on the disk alone.
    File,
    /// The runtime's alias of memory that is looked after elsewhere (shared arrays).
    Alias,
}

/// Who touches the bytes: the program (through the view, which may be tracked) or the runtime
/// (through the alias, which never traps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Program,
    Runtime,
}

/// Counted memory; clones are the same memory, which is given back when the last clone and the last
/// [`super::Gather`] is gone.
///
/// All methods copy, and check their bounds; single words are changed atomically
/// ([`Region::word`]). See [the module](super) about races.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    view: NonNull<u8>,
    alias: NonNull<u8>,
    /// Only grows ([`Region::grow`]), and never past `capacity`.
    len: AtomicUsize,
    /// Bytes of address space, from the beginning on.
    capacity: usize,
    pages: PageSize,
    /// The shape of the FIFO that its owner made here ([`super::fifo`]); 0: none.
    fifo: AtomicU64,
    backing: Backing,
}

/// Whoever keeps memory mapped.
pub(crate) trait Owner: core::fmt::Debug + Send + Sync {}
impl<T: core::fmt::Debug + Send + Sync> Owner for T {}

/// A file of which the kernel tells what is in memory is `told` ([`super::residence::is_told`]).
#[derive(Debug)]
enum Backing {
    Shared { view: Mapping, alias: Mapping, backed: Backed },
    Private { memory: Mapping, watched: Watched },
    Borrowed { gate: Gate, writable: bool },
    File { _named: Option<NamedMapping>, _memory: Mapping, writable: bool, told: bool },
    Staged { _memory: Mapping, disk: Disk },
    Alias { _owner: Arc<dyn Owner> },
}

// SAFETY: the pointers lead into memory that the backing keeps alive (or, if lent, whose end waits
// at the gate for every access); it is reached through raw copies and atomics only, from any
// thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Region {
    /// Zeroed memory in a file of its own, mapped twice. All of it is reserved now, in huge pages
    /// where the kernel grants them.
    ///
    /// # Errors
    /// [`MemoryError`]: not enough memory, a limit, a sandbox.
    pub fn shared(len: usize) -> Result<Region, MemoryError> {
        Region::shared_of(len, PageSize::Huge)
    }

    /// As [`Region::shared`], of pages of this size.
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

    /// Zeroed memory of this process alone, given pages as it is touched, huge ones where the
    /// kernel grants them.
    ///
    /// # Errors
    /// [`MemoryError`]: not enough memory, a limit.
    pub fn private(len: usize) -> Result<Region, MemoryError> {
        Region::private_of(len, PageSize::Huge)
    }

    /// As [`Region::private`], of pages of this size: small ones for memory that is touched here
    /// and there, or whose pages change place in small numbers.
    ///
    /// # Errors
    /// As [`Region::private`].
    pub fn private_of(len: usize, pages: PageSize) -> Result<Region, MemoryError> {
        let memory = huge::anonymous(len, pages)?;
        let (at, watched) = (memory.base(), Watched::default());
        Ok(Region::new(at, at, len, pages, Backing::Private { memory, watched }))
    }

    /// The usual kind: [`Region::private`].
    ///
    /// # Errors
    /// As [`Region::private`].
    pub fn zeroed(len: usize) -> Result<Region, MemoryError> {
        Region::private(len)
    }

    /// `len` bytes at `at`, which `owner` keeps mapped readable and writable and untracked: the
    /// alias of a shared array.
    ///
    /// # Safety
    /// The bytes stay mapped so for as long as `owner` lives, and no `&mut` reference into them
    /// exists meanwhile (`&` references and views through other mappings are under the rule of the
    /// [module](super)).
    pub(crate) unsafe fn from_alias(owner: Arc<dyn Owner>, at: NonNull<u8>, len: usize) -> Region {
        Region::new(at, at, len, PageSize::Small, Backing::Alias { _owner: owner })
    }

    /// Memory that stays valid until [`Region::close`] has returned.
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

    /// Which pages it was asked to have.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.inner.pages
    }

    /// The size of its huge pages, if it is to have such.
    pub(super) fn huge_pages(&self) -> Option<usize> {
        huge::suits(self.inner.capacity, self.inner.pages)
    }

    /// Private memory, whose pages may be moved, and whether it is watched for that.
    pub(super) fn private_memory(&self) -> Option<(&Mapping, &Watched)> {
        match &self.inner.backing {
            Backing::Private { memory, watched } => Some((memory, watched)),
            _ => None,
        }
    }

    /// Bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.inner.len.load(Ordering::Acquire)
    }

    /// No bytes at all? (Only lent memory can be empty.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where its bytes are.
    #[must_use]
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

    /// What the memory itself can grant: everything, or reading alone if it was lent for reading.
    #[must_use]
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

    /// Has the scope that lent the memory ended?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(&self.inner.backing, Backing::Borrowed { gate, .. } if gate.is_closed())
    }

    /// The file of a shared region, for a peer on this machine to map; none once pages of it may
    /// have changed place with a local peer's.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.inner.backing {
            Backing::Shared { backed, .. } => backed.file(),
            _ => None,
        }
    }

    /// Where the program's view begins, for C and NumPy. Peers may write behind it; null for memory
    /// that was lent.
    #[must_use]
    pub fn view_ptr(&self) -> *mut u8 {
        match self.inner.backing {
            Backing::Borrowed { .. } => core::ptr::null_mut(),
            _ => self.inner.view.as_ptr(),
        }
    }

    /// What its owner says of a FIFO here, in the bits of its shape; never what its memory says,
    /// which others may write.
    pub(super) fn fifo_bits(&self) -> &AtomicU64 {
        &self.inner.fifo
    }

    /// Does nobody else know of this memory? (Nobody can then begin to.)
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// End the loan: refuse new accesses, wait for those that are under way.
    pub(super) fn close(&self) {
        if let Backing::Borrowed { gate, .. } = &self.inner.backing {
            gate.close();
        }
    }
}
