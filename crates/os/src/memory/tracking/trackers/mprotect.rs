//! The tracker that works everywhere: `mprotect` and SIGSEGV.
//!
//! It is slower than userfaultfd. Each run of pages with another protection is a separate kernel
//! mapping (`vm.max_map_count`).

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use oikaze_protocol::coherence::Access;
use oikaze_protocol::limits::PAGE;
use rustix::mm::MprotectFlags;

use super::page_word::{Level, PageWord, READABLE, UNMAPPED, WRITABLE, level_of};
use super::segv::{self, Note, ViewData};
use super::tracker::{FaultAt, Tracker, TrackerKind, View};
use crate::memory::tracking::error::SharedError;
use crate::processes::signals::{locked, locked_without_signals};

/// Number of notes read by one system call.
const NOTES: usize = 64;

/// Tracker by page protection. Faults come through a pipe. Its writing end blocks (a touching
/// thread sleeps anyway), its reading end does not.
#[derive(Debug)]
pub struct Mprotect {
    notes: io::PipeReader,
    touchers: io::PipeWriter,
}

/// Words of a view's pages, known to the signal handler while the view exists.
#[derive(Debug)]
struct PageWords {
    base: usize,
    pages: Box<[PageWord]>,
    /// Held while pages change.
    changing: Mutex<()>,
}

impl Drop for PageWords {
    fn drop(&mut self) {
        segv::forget(self.base);
    }
}

impl Mprotect {
    /// Makes a tracker without views.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> Result<Mprotect, SharedError> {
        let failed = |e| {
            SharedError::new(
                "opening a pipe for page faults",
                e,
                "Raise the limit on open files (ulimit -n).",
            )
        };
        let (notes, touchers) = io::pipe().map_err(failed)?;
        rustix::io::ioctl_fionbio(&notes, true).map_err(|e| failed(e.into()))?;
        Ok(Mprotect { notes, touchers })
    }

    /// Sets each page to the level that `target` returns for its present one, in runs of pages with
    /// equal levels.
    fn change(
        view: &View,
        pages: Range<u64>,
        target: impl Fn(Level) -> Level,
    ) -> Result<(), SharedError> {
        view.span(&pages)?;
        let words = view.kept::<PageWords>().ok_or_else(|| {
            SharedError::invalid(
                format!("changing pages of array {}", view.array()),
                "its view is not attached",
                "This is a bug in the runtime; please report it.",
            )
        })?;
        let _one = locked(|| words.changing.lock().unwrap_or_else(PoisonError::into_inner));
        // If pages trap that did not trap before, the signal handler must still be ours (COH-8.6).
        if words
            .pages
            .get(pages.start as usize..pages.end as usize)
            .unwrap_or_default()
            .iter()
            .any(|word| target(word.level()) < word.level())
        {
            segv::ensure().map_err(no_handler)?;
        }
        let words = words.pages.get(pages.start as usize..pages.end as usize).unwrap_or_default();
        let mut start = view.base() + pages.start as usize * PAGE;
        for run in words.chunk_by(|a, b| a.level() == b.level()) {
            let len = run.len() * PAGE;
            let old = run.first().map_or(UNMAPPED, PageWord::level);
            let new = target(old);
            // The word never promises more than the mapping. Otherwise a touching thread would
            // retry without end.
            if new > old {
                protect(start, len, new)?;
                mark(run, new);
            } else if new < old {
                mark(run, new);
                protect(start, len, new)?;
            }
            start += len;
        }
        Ok(())
    }
}

fn no_handler(e: io::Error) -> SharedError {
    SharedError::new(
        "installing a SIGSEGV handler",
        e,
        "Allow sigaction and sigprocmask in the sandbox.",
    )
}

/// Records the new level and wakes waiters.
fn mark(run: &[PageWord], level: Level) {
    for word in run {
        if word.change(level) {
            word.wake();
        }
    }
}

fn protect(start: usize, len: usize, level: Level) -> Result<(), SharedError> {
    let flags = match level {
        UNMAPPED => MprotectFlags::empty(),
        READABLE => MprotectFlags::READ,
        _ => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: inside a view, a live mapping of ours; only how touches of it trap changes, and every
    // trap is handled (`segv`).
    unsafe { rustix::mm::mprotect(start as *mut _, len, flags) }.map_err(|e| {
        let e = io::Error::from(e);
        let remedy = if e.raw_os_error() == Some(libc::ENOMEM) {
            mappings_remedy()
        } else {
            "Please report this.".into()
        };
        SharedError::new(format!("mprotect of {len} bytes at {start:#x}"), e, remedy)
    })
}

/// Returns the remedy for ENOMEM from mprotect, which nearly always means too many mappings. States
/// how many there are and how many are permitted.
fn mappings_remedy() -> String {
    let here = std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    format!(
        "Each run of pages with its own protection is a mapping: this process has {here}, the limit is {}. \
         Raise it (sysctl -w vm.max_map_count=1048576), or allow userfaultfd, which needs none (docs/KERNELS.md).",
        limit.trim()
    )
}

impl Tracker for Mprotect {
    fn kind(&self) -> TrackerKind {
        TrackerKind::Mprotect
    }

    fn attach(&self, view: &View) -> Result<(), SharedError> {
        protect(view.base(), view.len(), UNMAPPED)?;
        let pages = (0..view.pages()).map(|_| PageWord::default()).collect();
        if !view.keep(PageWords { base: view.base(), pages, changing: Mutex::new(()) }) {
            return Err(SharedError::invalid(
                "tracking a view",
                "it is tracked already",
                "This is a bug in the runtime.",
            ));
        }
        let words = view.kept::<PageWords>().map_or(&[][..], |words| &words.pages);
        let watched = ViewData {
            base: view.base(),
            words,
            array: view.array(),
            pipe: self.touchers.as_raw_fd(),
        };
        // SAFETY: a thread that touches a view borrows its `SharedMemory`, which keeps the view and
        // with it the words (whose drop makes the handler forget them), and this tracker with its
        // pipe.
        unsafe { segv::watch(watched) }.map_err(no_handler)
    }

    fn detach(&self, view: &View) {
        // Sleeping threads go on, untracked. One call changes all pages, which joins mappings and
        // so cannot run out of them. The handler knows the view until it goes, for threads whose
        // fault was under way.
        if let Some(words) = view.kept::<PageWords>() {
            let _one = locked_without_signals(|| {
                words.changing.lock().unwrap_or_else(PoisonError::into_inner)
            });
            let _ = protect(view.base(), view.len(), WRITABLE);
            mark(&words.pages, WRITABLE);
        }
    }

    fn install(&self, view: &View, pages: Range<u64>, access: Access) -> Result<(), SharedError> {
        Mprotect::change(view, pages, |_| level_of(access))
    }

    fn set_access(
        &self,
        view: &View,
        pages: Range<u64>,
        access: Access,
    ) -> Result<(), SharedError> {
        Mprotect::change(
            view,
            pages,
            |old| if old == UNMAPPED { UNMAPPED } else { level_of(access) },
        )
    }

    fn invalidate(&self, view: &View, pages: Range<u64>) -> Result<(), SharedError> {
        Mprotect::change(view, pages, |_| UNMAPPED)
    }

    fn expect_touches(
        &self,
        view: &View,
        pages: Range<u64>,
        access: Access,
    ) -> Result<(), SharedError> {
        let words = view.kept::<PageWords>().map_or(&[][..], |words| &words.pages);
        let touched = words.get(pages.start as usize..pages.end as usize).unwrap_or_default();
        // Pages that permit the access do not trap: their guards cost no system call.
        if touched.iter().all(|word| word.level() >= level_of(access)) {
            return Ok(());
        }
        segv::ensure().map_err(no_handler)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.notes.as_fd()
    }

    fn faults(&self, into: &mut Vec<FaultAt>) -> io::Result<usize> {
        let before = into.len();
        let mut buffer = [0; NOTES * Note::LEN];
        loop {
            match (&self.notes).read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    let (notes, _) =
                        buffer.get(..len).unwrap_or_default().as_chunks::<{ Note::LEN }>();
                    into.extend(notes.iter().map(|&bytes| {
                        let Note { array, access, page } = Note::from_bytes(bytes);
                        FaultAt { array, page, access }
                    }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(into.len() - before)
    }
}
