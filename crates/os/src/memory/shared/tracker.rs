//! How touches of shared pages are noticed: one trait, one conformance suite, several backends.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;

use super::error::SharedError;
use crate::memory::mapping::Mapping;
use crate::origin::OriginBound;

/// Which mechanism a tracker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackerKind {
    /// userfaultfd that also traps touches from inside system calls.
    UserfaultfdFull,
    /// userfaultfd for faults of user code only: a system call given an invalid page fails with
    /// `EFAULT`.
    UserfaultfdUserMode,
    /// `mprotect` and a `SIGSEGV` handler: a system call given an invalid page fails with `EFAULT`.
    Mprotect,
}

impl TrackerKind {
    /// Does a system call that touches an invalid page wait for it (true), or fail with `EFAULT`
    /// (false)?
    #[must_use]
    pub const fn traps_system_calls(self) -> bool {
        matches!(self, TrackerKind::UserfaultfdFull)
    }
}

impl fmt::Display for TrackerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrackerKind::UserfaultfdFull => "full userfaultfd",
            TrackerKind::UserfaultfdUserMode => "userfaultfd for user mode only",
            TrackerKind::Mprotect => "mprotect + SIGSEGV",
        })
    }
}

/// A thread of this process touched a page in a way its mapping does not permit, and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultAt {
    /// Which array.
    pub array: ArrayId,
    /// Which of its pages.
    pub page: u64,
    /// What the thread tried, if the processor tells loads from stores (userfaultfd and x86-64 do).
    /// `None`: a load, or a store to an unmapped page, which is reported as a store once the page
    /// is mapped read-only.
    pub access: Option<Access>,
}

/// One array's tracked mapping. Only [`super::SharedMemory`] makes one and lends it to a tracker.
#[derive(Debug)]
pub struct View {
    array: ArrayId,
    /// What the tracker keeps for as long as the view can be touched. Dropped before the mapping
    /// goes.
    attachment: OriginBound<OnceLock<Box<dyn Any + Send + Sync>>>,
    /// A child of fork does not inherit the mapping, and may have others at the same addresses.
    mapping: OriginBound<Mapping>,
}

impl View {
    pub(super) fn new(array: ArrayId, mapping: Mapping) -> View {
        View {
            array,
            attachment: OriginBound::new(OnceLock::new()),
            mapping: OriginBound::new(mapping),
        }
    }

    /// Keep this for as long as the view lives; false if something is kept already.
    pub(super) fn keep(&self, attachment: impl Any + Send + Sync) -> bool {
        self.attachment.set(Box::new(attachment)).is_ok()
    }

    /// What is kept, if it is a `T`.
    pub(super) fn kept<T: Any>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref()
    }

    /// The array it shows.
    #[must_use]
    pub fn array(&self) -> ArrayId {
        self.array
    }

    /// Address of its first byte.
    #[must_use]
    pub fn base(&self) -> usize {
        self.mapping.base().as_ptr() as usize
    }

    /// Length in bytes, whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: a view has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        (self.len() / PAGE) as u64
    }

    /// Address and length of a run of pages, if it lies inside.
    pub(super) fn span(&self, pages: &Range<u64>) -> Result<(usize, usize), SharedError> {
        if pages.start > pages.end || pages.end > self.pages() {
            return Err(SharedError::invalid(
                format!("pages {}..{} of array {}", pages.start, pages.end, self.array),
                format!("the array has {} pages", self.pages()),
                "This is a bug in the runtime; please report it.",
            ));
        }
        let (start, end) = (pages.start as usize * PAGE, pages.end as usize * PAGE);
        Ok((self.base() + start, end - start))
    }
}

/// Notices touches of pages and lets the touching thread go on when the page is ready.
///
/// Rules that every backend keeps (the conformance suite checks them):
///
/// - After [`attach`](Tracker::attach) all pages are unmapped.
/// - A thread that touches a page beyond its mapping sleeps, and at least one [`FaultAt`] for that
///   page comes out of [`faults`](Tracker::faults). Several threads on one page may give one event
///   or several.
/// - *Every change of a page's mapping wakes all threads that sleep on it.* They try again; one
///   that still may not sleeps again and gives a new event. So nobody who changes pages must
///   remember who waits, and an event may be out of date when it is read.
/// - An event for a page whose mapping already permits the access is answered with `install` of
///   that page as it is: the kernel may drop a mapping by itself (swap).
/// - After `set_access(.., Read)` returned, every later store traps, in whichever thread: what the
///   alias shows then is all that was stored before.
///
/// Calls for one page must not overlap (the engine's turn serialises them). `faults` may run beside
/// everything.
pub trait Tracker: Send + Sync + fmt::Debug {
    /// Which mechanism this is.
    fn kind(&self) -> TrackerKind;

    /// Start to track a view; all its pages become unmapped.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn attach(&self, view: &View) -> Result<(), SharedError>;

    /// Stop tracking a view: all its pages become writable and untracked, and all who wait in it go
    /// on.
    fn detach(&self, view: &View);

    /// Map pages whose bytes exist in the memfd, or give mapped ones this access. Wakes their
    /// waiters.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn install(&self, view: &View, pages: Range<u64>, access: Access) -> Result<(), SharedError>;

    /// Change the mapped ones among these pages. Wakes their waiters if anything changed.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn set_access(&self, view: &View, pages: Range<u64>, access: Access)
    -> Result<(), SharedError>;

    /// Unmap pages; their bytes stay in the memfd. Wakes their waiters (who fault again).
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn invalidate(&self, view: &View, pages: Range<u64>) -> Result<(), SharedError>;

    /// A thread of the program's is about to touch these pages: makes sure that the touch is
    /// noticed where it must be.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn expect_touches(
        &self,
        view: &View,
        pages: Range<u64>,
        access: Access,
    ) -> Result<(), SharedError> {
        let _ = (view, pages, access);
        Ok(())
    }

    /// Readable when [`faults`](Tracker::faults) has something.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Take all faults that are waiting, without waiting for one; how many were added to `into`.
    ///
    /// # Errors
    /// Reading the descriptor failed.
    fn faults(&self, into: &mut Vec<FaultAt>) -> io::Result<usize>;
}
