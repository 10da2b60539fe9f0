//! The tracker over userfaultfd: minor faults and synchronous write-protect on shmem.
//!
//! `UFFDIO_CONTINUE` maps a page that the page cache holds, write-protected or not, and
//! `MADV_DONTNEED` unmaps it. A touch of an unmapped page is a minor fault, or a missing fault
//! where the memfd has a hole. The tracker treats both alike.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{PoisonError, RwLock};

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;
use rustix::mm::Advice;

use super::tracker::{FaultAt, Tracker, TrackerKind, View};
use super::uffd_sys::{self, Continued, feature};
use crate::memory::tracking::error::SharedError;
use crate::processes::signals::locked_without_signals;

/// Number of events read by one system call.
const EVENTS: usize = 32;

/// A userfaultfd for all arrays of this node.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: OwnedFd,
    kind: TrackerKind,
    /// First address → (length, array).
    views: RwLock<BTreeMap<usize, (usize, ArrayId)>>,
}

impl Userfaultfd {
    /// Opens a tracker of faults of user code and of system calls. Needs CAP_SYS_PTRACE,
    /// `vm.unprivileged_userfaultfd=1`, or `/dev/userfaultfd`.
    ///
    /// # Errors
    /// Not permitted, or the kernel lacks a feature.
    pub fn full() -> Result<Userfaultfd, SharedError> {
        Userfaultfd::open(uffd_sys::open_full, TrackerKind::UserfaultfdFull)
    }

    /// Opens a tracker of faults of user code only, which needs no privilege.
    ///
    /// # Errors
    /// Forbidden (seccomp), or the kernel lacks a feature.
    pub fn user_mode_only() -> Result<Userfaultfd, SharedError> {
        Userfaultfd::open(uffd_sys::open_user_mode, TrackerKind::UserfaultfdUserMode)
    }

    fn open(
        open: fn() -> io::Result<OwnedFd>,
        kind: TrackerKind,
    ) -> Result<Userfaultfd, SharedError> {
        let fd = open().map_err(|e| {
            let remedy = match e.raw_os_error() {
                Some(libc::ENOSYS) => "This kernel was built without userfaultfd, or the container's seccomp profile hides it.",
                Some(libc::EPERM) if kind == TrackerKind::UserfaultfdFull => {
                    "Grant CAP_SYS_PTRACE, set vm.unprivileged_userfaultfd=1, or give access to /dev/userfaultfd (docs/KERNELS.md)."
                }
                Some(libc::EPERM) => "Allow userfaultfd in the container's seccomp profile (docs/KERNELS.md).",
                Some(libc::EINVAL) => "User-mode-only userfaultfd needs Linux 5.11.",
                _ => "Raise the limit on open files (ulimit -n).",
            };
            SharedError::new(format!("opening {kind}"), e, remedy)
        })?;
        uffd_sys::handshake(&fd, feature::TRACKER).map_err(|e| {
            SharedError::new(
                format!("asking {kind} for minor faults and write-protect on shared memory"),
                e,
                "They need Linux 5.14 and 5.19, and mapping write-protected needs 6.4.",
            )
        })?;
        Ok(Userfaultfd { fd, kind, views: RwLock::default() })
    }

    /// Wakes waiting threads. A page that is not ready faults again.
    fn wake(&self, start: usize, len: usize) -> Result<(), SharedError> {
        uffd_sys::wake(&self.fd, start, len).map_err(|e| failed("UFFDIO_WAKE", start, len, e))
    }

    fn protect(&self, start: usize, len: usize, access: Access) -> Result<(), SharedError> {
        uffd_sys::write_protect(&self.fd, start, len, access == Access::Read)
            .map_err(|e| failed("UFFDIO_WRITEPROTECT", start, len, e))
    }
}

fn failed(call: &str, start: usize, len: usize, e: io::Error) -> SharedError {
    let remedy = match e.raw_os_error() {
        Some(libc::ENOMEM) => {
            "The machine or container is out of memory: use more nodes or smaller arrays."
        }
        Some(libc::EINVAL) => "The kernel may be too old: set OIKAZE_WITHOUT=uffd to use mprotect.",
        _ => "Set OIKAZE_WITHOUT=uffd to use mprotect, and please report this.",
    };
    SharedError::new(format!("{call} of {len} bytes at {start:#x}"), e, remedy)
}

/// A feature of userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UffdFeature {
    /// Name of the feature.
    pub name: &'static str,
    /// First Linux version that has the feature.
    pub since: &'static str,
    /// Set if the tracker needs the feature.
    pub needed: bool,
    /// Set if this kernel has the feature.
    pub there: bool,
}

/// Asks the kernel for its userfaultfd features. (The kernel does not list the one that pages can
/// be mapped write-protected, 6.4.)
///
/// # Errors
/// userfaultfd cannot be opened at all.
pub fn userfaultfd_features() -> io::Result<Vec<UffdFeature>> {
    let fd = uffd_sys::open_user_mode().or_else(|e| uffd_sys::open_full().map_err(|_| e))?;
    let there = uffd_sys::handshake(&fd, 0)?;
    let known = [
        ("userfaultfd minor faults on shmem", "5.14", feature::MINOR_SHMEM),
        ("userfaultfd write-protect on shmem", "5.19", feature::WP_SHMEM),
        ("userfaultfd POISON", "6.6", feature::POISON),
        ("userfaultfd WP_ASYNC", "6.7", feature::WP_ASYNC),
        ("userfaultfd MOVE", "6.8", feature::MOVE),
    ];
    let feature = |(name, since, bit)| UffdFeature {
        name,
        since,
        needed: feature::TRACKER & bit != 0,
        there: there & bit != 0,
    };
    Ok(known.map(feature).to_vec())
}

impl Tracker for Userfaultfd {
    fn kind(&self) -> TrackerKind {
        self.kind
    }

    fn attach(&self, view: &View) -> Result<(), SharedError> {
        let (start, len) = (view.base(), view.len());
        uffd_sys::register(&self.fd, start, len)
            .map_err(|e| failed("UFFDIO_REGISTER", start, len, e))?;
        let mut views =
            locked_without_signals(|| self.views.write().unwrap_or_else(PoisonError::into_inner));
        views.insert(start, (len, view.array()));
        Ok(())
    }

    fn detach(&self, view: &View) {
        locked_without_signals(|| self.views.write().unwrap_or_else(PoisonError::into_inner))
            .remove(&view.base());
        // The view is unmapped next, which also unregisters it, so a failure here is harmless.
        let _ = uffd_sys::unregister(&self.fd, view.base(), view.len());
    }

    fn install(&self, view: &View, pages: Range<u64>, access: Access) -> Result<(), SharedError> {
        let (mut start, mut len) = view.span(&pages)?;
        while len > 0 {
            let done = match uffd_sys::map_continue(&self.fd, start, len, access == Access::Read) {
                Ok(Continued::All) => len,
                Ok(Continued::Part(done)) => done.min(len),
                Ok(Continued::Mapped) => {
                    // The page is mapped already, so only its protection may change. Protecting
                    // does not wake threads, so wake them explicitly.
                    self.protect(start, PAGE, access)?;
                    self.wake(start, PAGE)?;
                    PAGE
                }
                Err(e) => return Err(failed("UFFDIO_CONTINUE", start, len, e)),
            };
            start += done;
            len -= done;
        }
        Ok(())
    }

    fn set_access(
        &self,
        view: &View,
        pages: Range<u64>,
        access: Access,
    ) -> Result<(), SharedError> {
        match view.span(&pages)? {
            (_, 0) => Ok(()),
            (start, len) => self.protect(start, len, access),
        }
    }

    fn invalidate(&self, view: &View, pages: Range<u64>) -> Result<(), SharedError> {
        let (start, len) = view.span(&pages)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: inside the view, a live shared file mapping: its pages are unmapped, their bytes
        // stay in the page cache, and the next touch traps because the range is registered.
        unsafe { rustix::mm::madvise(start as *mut _, len, Advice::LinuxDontNeed) }
            .map_err(|e| failed("madvise(MADV_DONTNEED)", start, len, e.into()))?;
        // A thread that waits to write to a page mapped read-only must fault again, as on an
        // unmapped page.
        self.wake(start, len)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn faults(&self, into: &mut Vec<FaultAt>) -> io::Result<usize> {
        let before = into.len();
        loop {
            let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
            let got = uffd_sys::read_faults::<EVENTS>(&self.fd, |fault| {
                // The kernel rounds addresses down to pages unless asked not to. An unknown address
                // belongs to a view that was just detached.
                if let Some((base, (len, array))) = views.range(..=fault.address).next_back()
                    && fault.address - base < *len
                {
                    let page = ((fault.address - base) / PAGE) as u64;
                    let access = if fault.write { Access::Write } else { Access::Read };
                    into.push(FaultAt { array: *array, page, access: Some(access) });
                }
            })?;
            if got < EVENTS {
                return Ok(into.len() - before);
            }
        }
    }
}
