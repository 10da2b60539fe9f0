//! Detects touches of shared pages: one trait, one conformance suite, several backends.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;

use crate::memory::mapping::Mapping;
use crate::memory::tracking::error::SharedError;
use crate::processes::origin::OriginBound;

/// Mechanism that a tracker uses.
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
    /// Returns `true` if a system call that touches an invalid page waits for it, and `false` if
    /// the call fails with `EFAULT`.
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

/// Fault of a thread of this process, which touched a page in a way that its mapping does not
/// permit, and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultAt {
    /// Number of the array.
    pub array: ArrayId,
    /// Number of the page in the array.
    pub page: u64,
    /// Access that the thread tried, if the processor distinguishes loads from stores (userfaultfd
    /// and x86-64 do). `None` means a load, or a store to an unmapped page, which is reported as a
    /// store once the page is mapped read-only.
    pub access: Option<Access>,
}

/// One array's tracked mapping. Only [`super::SharedMemory`] makes one and lends it to a tracker.
#[derive(Debug)]
pub struct View {
    array: ArrayId,
    /// Data that the tracker keeps while the view can be touched. Dropped before the mapping.
    attachment: OriginBound<OnceLock<Box<dyn Any + Send + Sync>>>,
    /// A child of fork does not inherit the mapping, and may have others at the same addresses.
    mapping: OriginBound<Mapping>,
}

impl View {
    pub(crate) fn new(array: ArrayId, mapping: Mapping) -> View {
        View {
            array,
            attachment: OriginBound::new(OnceLock::new()),
            mapping: OriginBound::new(mapping),
        }
    }

    /// Stores data for as long as the view lives. Returns `false` if data is stored already.
    pub(super) fn keep(&self, attachment: impl Any + Send + Sync) -> bool {
        self.attachment.set(Box::new(attachment)).is_ok()
    }

    /// Returns the stored data, if it is a `T`.
    pub(super) fn kept<T: Any>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref()
    }

    /// Returns the number of the array.
    #[must_use]
    pub fn array(&self) -> ArrayId {
        self.array
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn base(&self) -> usize {
        self.mapping.base().as_ptr() as usize
    }

    /// Returns the length in bytes, in whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Always returns `false`, because a view has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        (self.len() / PAGE) as u64
    }

    /// Returns the address and length of a run of pages, if it lies inside.
    pub(crate) fn span(&self, pages: &Range<u64>) -> Result<(usize, usize), SharedError> {
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

/// Detects touches of pages, and resumes the touching thread when the page is ready.
///
/// Rules that every backend keeps (the conformance suite checks them):
///
/// - After [`attach`](Tracker::attach) all pages are unmapped.
/// - A thread that touches a page beyond its mapping sleeps, and [`faults`](Tracker::faults)
///   returns at least one [`FaultAt`] for that page. Several threads on one page may cause one
///   event or several.
/// - *Every change of a page's mapping wakes all threads that sleep on it.* They try again, and a
///   thread that still may not access the page sleeps again and causes a new event. So a thread
///   that changes pages need not remember who waits, and an event may be out of date when it is
///   read.
/// - An event for a page whose mapping already permits the access is answered with `install` of
///   that page as it is: the kernel may drop a mapping by itself (swap).
/// - After `set_access(.., Read)` returned, every later store traps, in any thread. The alias then
///   shows all that was stored before.
///
/// Calls for one page must not overlap (the engine's turn serialises them). `faults` may run
/// concurrently with everything.
pub trait Tracker: Send + Sync + fmt::Debug {
    /// Returns the mechanism.
    fn kind(&self) -> TrackerKind;

    /// Starts to track a view. All its pages become unmapped.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn attach(&self, view: &View) -> Result<(), SharedError>;

    /// Stops tracking a view. All its pages become writable and untracked, and all threads that
    /// wait in it go on.
    fn detach(&self, view: &View);

    /// Maps pages whose bytes exist in the memfd, or gives mapped ones this access. Wakes their
    /// waiters.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn install(&self, view: &View, pages: Range<u64>, access: Access) -> Result<(), SharedError>;

    /// Changes the access of those pages that are mapped. Wakes their waiters if anything changed.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn set_access(&self, view: &View, pages: Range<u64>, access: Access)
    -> Result<(), SharedError>;

    /// Unmaps pages. Their bytes stay in the memfd. Wakes their waiters, which fault again.
    ///
    /// # Errors
    /// The system call that failed and what to do.
    fn invalidate(&self, view: &View, pages: Range<u64>) -> Result<(), SharedError>;

    /// Makes sure that the following touches of these pages by a thread of the program are detected
    /// where needed.
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

    /// Returns a descriptor that is readable when [`faults`](Tracker::faults) has something.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends all waiting faults to `into`, without waiting for one, and returns their number.
    ///
    /// # Errors
    /// Reading the descriptor failed.
    fn faults(&self, into: &mut Vec<FaultAt>) -> io::Result<usize>;
}
