//! The process's SIGSEGV handler. It finds the touched page, reports the fault, and sleeps until
//! the page is ready.
//!
//! The handler runs on a thread that may hold any lock, so it takes none and allocates nothing. It
//! walks a list whose entries are never freed, writes to a pipe and waits on a futex
//! (signal-safety(7): `write` is safe; `futex` is a bare system call). A fault elsewhere goes to
//! the handlers of the program ([`super::segv_chain`]).

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;

use super::page_word::PageWord;
use super::segv_chain;
use crate::processes::origin::Origin;
use crate::processes::signals::locked_without_signals;

/// A fault as sent through the pipe. It has 16 bytes, so that a write is whole or not at all
/// (pipe(7): `PIPE_BUF`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) array: ArrayId,
    pub(super) access: Option<Access>,
    pub(super) page: u64,
}

impl Note {
    pub(super) const LEN: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Note::LEN] {
        let access: u32 = match self.access {
            None => 0,
            Some(Access::Read) => 1,
            Some(Access::Write) => 2,
        };
        (u128::from(self.page) << 64 | u128::from(access) << 32 | u128::from(self.array))
            .to_ne_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; Note::LEN]) -> Note {
        let all = u128::from_ne_bytes(bytes);
        let access = match (all >> 32) as u32 {
            0 => None,
            1 => Some(Access::Read),
            _ => Some(Access::Write),
        };
        Note { array: all as u32, access, page: (all >> 64) as u64 }
    }
}

/// A watched view. Entries are reused and never freed, so that the handler may walk them at any
/// time.
#[derive(Debug)]
struct ViewEntry {
    /// Odd while the entry is being changed.
    version: AtomicU32,
    base: AtomicUsize,
    /// Length in bytes, or 0 if the entry is free.
    len: AtomicUsize,
    words: AtomicPtr<PageWord>,
    array: AtomicU32,
    pipe: AtomicI32,
    next: *const ViewEntry,
}

// SAFETY: `next` is written before the entry is published and never again; it leads to an entry
// that is never freed.
unsafe impl Sync for ViewEntry {}

static FIRST: AtomicPtr<ViewEntry> = AtomicPtr::new(ptr::null_mut());
static REGISTERING: Mutex<()> = Mutex::new(());
/// Process whose threads are watched.
static WATCHER: OnceLock<Origin> = OnceLock::new();

/// View data that the handler needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewData<'a> {
    pub(super) base: usize,
    pub(super) words: &'a [PageWord],
    pub(super) array: ArrayId,
    /// The blocking end that notes are written to.
    pub(super) pipe: RawFd,
}

/// Reports touches of this view from now on.
///
/// # Safety
/// `view.words` and `view.pipe` must stay valid until [`forget`] is called for this base, which
/// must not happen while a thread touches the view.
pub(super) unsafe fn watch(view: ViewData<'_>) -> io::Result<()> {
    let _one =
        locked_without_signals(|| REGISTERING.lock().unwrap_or_else(PoisonError::into_inner));
    WATCHER.get_or_init(Origin::here);
    ensure()?;
    let entry = entries().find(|e| e.len.load(Ordering::Relaxed) == 0).unwrap_or_else(|| {
        let entry: &'static ViewEntry = Box::leak(Box::new(ViewEntry {
            version: AtomicU32::new(0),
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            words: AtomicPtr::default(),
            array: AtomicU32::new(0),
            pipe: AtomicI32::new(-1),
            next: FIRST.load(Ordering::Relaxed),
        }));
        FIRST.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
        entry
    });
    entry.change(|e| {
        e.base.store(view.base, Ordering::Relaxed);
        e.words.store(view.words.as_ptr().cast_mut(), Ordering::Relaxed);
        e.array.store(view.array, Ordering::Relaxed);
        e.pipe.store(view.pipe, Ordering::Relaxed);
        e.len.store(view.words.len() * PAGE, Ordering::Relaxed);
    });
    Ok(())
}

/// Stops reporting touches of the view that begins at `base`.
pub(super) fn forget(base: usize) {
    let _one =
        locked_without_signals(|| REGISTERING.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(entry) = entries()
        .find(|e| e.len.load(Ordering::Relaxed) != 0 && e.base.load(Ordering::Relaxed) == base)
    {
        entry.change(|e| e.len.store(0, Ordering::Relaxed));
    }
}

impl ViewEntry {
    /// Changes fields so that the handler sees all changes or skips the entry (a sequence lock).
    /// Call under `REGISTERING`.
    fn change(&self, store: impl FnOnce(&ViewEntry)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        store(self);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the page's word, array, number and pipe, if the address is in this view. Skips an
    /// entry that is being changed, because a touched view is neither new nor going.
    fn find(&self, address: usize) -> Option<(*const PageWord, ArrayId, u64, RawFd)> {
        let version = self.version.load(Ordering::Acquire);
        let (base, len) = (self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        let (words, array) =
            (self.words.load(Ordering::Relaxed), self.array.load(Ordering::Relaxed));
        let pipe = self.pipe.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let offset = address.checked_sub(base).filter(|&o| o < len)?;
        let page = offset / PAGE;
        Some((words.wrapping_add(page).cast_const(), array, page as u64, pipe))
    }
}

fn entries() -> impl Iterator<Item = &'static ViewEntry> {
    // SAFETY: entries are leaked boxes: null or valid for ever.
    let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |entry| unsafe { entry.next.as_ref() })
}

/// Ensures that touches of tracked pages reach [`on_segv`] in this thread.
pub(super) fn ensure() -> io::Result<()> {
    segv_chain::ensure(libc::SIGSEGV, on_segv)
}

extern "C" fn on_segv(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: errno belongs to the interrupted code; it is put back below.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid siginfo. Only signals of the kernel (positive code) carry
    // an address.
    let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    match address.and_then(|a| entries().find_map(|e| e.find(a))) {
        // A child of fork has no mapping of the view and no thread that would serve the fault.
        Some(_) if !is_parent() => {
            print(FORKED);
            segv_chain::pass_on(signal, info, context);
        }
        Some((word, array, page, pipe)) => {
            // SAFETY: inside the words of a view that a thread is touching right now, so it has not
            // gone (`watch`).
            let word = unsafe { &*word };
            word.wait(tried(context), |access| write_note(pipe, Note { array, access, page }));
        }
        None => segv_chain::pass_on(signal, info, context),
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Message of a child of fork that touches a view of its parent's.
const FORKED: &str = "oikaze: a shared array was touched in a child of fork, which has no view of it; \
                      only the process that joined may use the job\n";

/// Returns `true` in the process that watches the views.
fn is_parent() -> bool {
    WATCHER.get().is_none_or(|origin| origin.is_here())
}

/// Writes to standard error without a lock.
fn print(text: &str) {
    // SAFETY: plain write of live bytes.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Returns the access that the thread tried, if the processor reports it.
#[cfg(target_arch = "x86_64")]
fn tried(context: *mut libc::c_void) -> Option<Access> {
    // Bit 1 of the page fault's error code: the access was a write (Intel SDM vol. 3, 4.7).
    // SAFETY: with SA_SIGINFO the third argument is the interrupted thread's ucontext.
    let code =
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    Some(if code & 2 == 0 { Access::Read } else { Access::Write })
}

/// Returns the access that the thread tried, if the processor reports it.
#[cfg(not(target_arch = "x86_64"))]
fn tried(_context: *mut libc::c_void) -> Option<Access> {
    None
}

fn write_note(pipe: RawFd, note: Note) {
    let bytes = note.to_bytes();
    // A full pipe blocks until the reader has caught up. Any other failure cannot be reported from
    // here.
    // SAFETY: plain write of a live buffer.
    while unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_the_pipe() {
        for access in [None, Some(Access::Read), Some(Access::Write)] {
            let note = Note { array: 0xdead_beef, access, page: u64::MAX - 3 };
            assert_eq!(Note::from_bytes(note.to_bytes()), note);
        }
    }
}
