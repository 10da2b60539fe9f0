//! Reports which file's region caused a SIGBUS, before the process ends (MEM-1.15).
//!
//! The handler runs on a thread that may hold any lock, so it takes none and allocates nothing. As
//! [`crate::memory::tracking`]'s handler for SIGSEGV, it walks a list whose entries are never
//! freed. Then it does what would have happened without the handler.

use crate::memory::tracking::trackers::segv_chain;
use crate::processes::signals::locked_without_signals;
use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::CString;
use std::io;
use std::sync::{Mutex, PoisonError};

/// An entry for a mapped file. `len` is 0 while the entry is free.
#[derive(Debug)]
struct MappedFile {
    base: AtomicUsize,
    len: AtomicUsize,
    /// Offset in the file of the first mapped byte.
    offset: AtomicU64,
    path: AtomicPtr<libc::c_char>,
    next: *const MappedFile,
}

// SAFETY: `next` is written before the entry is published and never again; it leads to an entry
// that is never freed.
unsafe impl Sync for MappedFile {}

static FIRST: AtomicPtr<MappedFile> = AtomicPtr::new(ptr::null_mut());
static REGISTERING: Mutex<()> = Mutex::new(());

/// Registers a file mapping with the handler until dropped.
#[derive(Debug)]
pub(super) struct NamedMapping {
    entry: &'static MappedFile,
    _path: CString,
}

impl NamedMapping {
    /// Registers the mapping. Installs the handler again if the program has installed another one
    /// over it.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        at: NonNull<u8>,
        len: usize,
    ) -> io::Result<NamedMapping> {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new())
            .unwrap_or_else(|_| c"(its name is not known)".to_owned());
        let _one =
            locked_without_signals(|| REGISTERING.lock().unwrap_or_else(PoisonError::into_inner));
        segv_chain::ensure(libc::SIGBUS, on_sigbus)?;
        let entry =
            entries().find(|entry| entry.len.load(Ordering::Relaxed) == 0).unwrap_or_else(|| {
                let entry: &'static MappedFile = Box::leak(Box::new(MappedFile {
                    base: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    offset: AtomicU64::new(0),
                    path: AtomicPtr::new(ptr::null_mut()),
                    next: FIRST.load(Ordering::Relaxed),
                }));
                FIRST.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
                entry
            });
        entry.base.store(at.as_ptr().addr(), Ordering::Relaxed);
        entry.offset.store(offset, Ordering::Relaxed);
        entry.path.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
        // Stored last: a handler that sees a length sees the rest.
        entry.len.store(len, Ordering::Release);
        Ok(NamedMapping { entry, _path: path })
    }
}

impl Drop for NamedMapping {
    fn drop(&mut self) {
        let _one =
            locked_without_signals(|| REGISTERING.lock().unwrap_or_else(PoisonError::into_inner));
        self.entry.len.store(0, Ordering::Release);
    }
}

fn entries() -> impl Iterator<Item = &'static MappedFile> {
    // SAFETY: entries are leaked boxes: null or valid for ever.
    let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |entry| unsafe { entry.next.as_ref() })
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo. Only signals of the kernel (positive code) carry
    // an address.
    let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    let found = address.and_then(|address| {
        entries().find_map(|entry| {
            let len = entry.len.load(Ordering::Acquire);
            let at =
                address.checked_sub(entry.base.load(Ordering::Relaxed)).filter(|at| *at < len)?;
            Some((entry, at))
        })
    });
    if let Some((entry, at)) = found {
        print_line(entry, at);
    }
    segv_chain::pass_on(signal, info, context);
}

fn print_line(entry: &MappedFile, at: usize) {
    let path = entry.path.load(Ordering::Relaxed);
    // SAFETY: a thread touches the mapping right now, so its region, which keeps the path, still
    // exists.
    let path = unsafe { CStr::from_ptr(path) };
    let mut line = LineBuffer::default();
    line.push(b"oikaze: touching byte ");
    line.push_number(at as u64);
    line.push(b" of a region ended this process (SIGBUS): byte ");
    line.push_number(entry.offset.load(Ordering::Relaxed).saturating_add(at as u64));
    line.push(b" of its file \"");
    line.push(path.to_bytes());
    line.push(
        b"\" is not there; the file was made shorter while it was mapped, or its disk failed. Do not shorten a file before ",
    );
    line.push(b"its region is dropped\n");
    // SAFETY: plain write of live bytes.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

/// One line, built without allocation and written at once. A longer path is cut.
struct LineBuffer {
    bytes: [u8; LineBuffer::ROOM],
    len: usize,
}

impl Default for LineBuffer {
    fn default() -> LineBuffer {
        LineBuffer { bytes: [0; LineBuffer::ROOM], len: 0 }
    }
}

impl LineBuffer {
    const ROOM: usize = 1024;
    /// Bytes reserved for the text other than the path.
    const REST: usize = 320;

    fn push(&mut self, text: &[u8]) {
        let text =
            text.get(..text.len().min(LineBuffer::ROOM - LineBuffer::REST)).unwrap_or_default();
        if let Some(place) = self.bytes.get_mut(self.len..self.len + text.len()) {
            place.copy_from_slice(text);
            self.len += text.len();
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let (mut rest, mut first) = (number, digits.len());
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (rest % 10) as u8;
            (rest, first) = (rest / 10, at);
            if rest == 0 {
                break;
            }
        }
        self.push(digits.get(first..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_holds_numbers_and_cuts_long_text() {
        let mut line = LineBuffer::default();
        for number in [0, 9, 10, u64::MAX] {
            line.push_number(number);
            line.push(b" ");
        }
        assert_eq!(&line.bytes[..line.len], b"0 9 10 18446744073709551615 ");
        line.push(&[b'x'; 5000]);
        line.push(&[b'y'; 100]);
        assert!(
            line.bytes[..line.len].ends_with(&[b'y'; 100]),
            "what follows a long path is there"
        );
    }
}
