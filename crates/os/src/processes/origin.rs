//! Identity of a process across fork(2).
//!
//! A child of fork inherits every object of its parent: descriptors, shared mappings, locks that
//! other threads held. An [`Origin`] names the process that made an object, so that the child can
//! refuse to use it (MEM-24.1).
//!
//! The process number lies in a page of its own. `MADV_WIPEONFORK` makes the kernel clear that page
//! in a child, whichever system call made the child. Where the kernel refuses the advice, a handler
//! of pthread_atfork(3) clears the page. A child of vfork(2) or posix_spawn(3) shares the parent's
//! memory until it calls exec, and so keeps the number.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Number of the first process; 0 means that fork has cleared the number.
const FIRST: u32 = 1;

/// Holds the number until the page is mapped, and where no page can be mapped.
static FALLBACK: AtomicU32 = AtomicU32::new(FIRST);
/// Address of the process number.
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const FALLBACK).cast_mut());
/// Highest number among this process and its ancestors.
static HIGHEST: AtomicU32 = AtomicU32::new(FIRST);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Identity of the process that made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// Returns the identity of this process. Watches for forks from the first call on.
    #[must_use]
    pub fn here() -> Origin {
        // A swap and not a `Once`: in a child that was forked during this call, a `Once` would wait
        // for a thread that the child does not have.
        if !WATCHED.swap(true, Ordering::Relaxed) {
            watch();
        }
        Origin(number())
    }

    /// Returns `true` in the process that made the object, and `false` in its children of fork.
    /// Costs two loads.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        number() == self.0
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::here()
    }
}

/// Holds a value that a child of fork must not drop. The drop would act on the parent's job, or
/// wait for a thread that the child does not have. In a child the value is forgotten.
#[derive(Debug)]
pub struct OriginBound<T> {
    content: ManuallyDrop<T>,
    origin: Origin,
}

impl<T> OriginBound<T> {
    /// Binds `content` to this process.
    pub fn new(content: T) -> OriginBound<T> {
        OriginBound { content: ManuallyDrop::new(content), origin: Origin::here() }
    }
}

impl<T> Deref for OriginBound<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.content
    }
}

impl<T> DerefMut for OriginBound<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.content
    }
}

impl<T> Drop for OriginBound<T> {
    fn drop(&mut self) {
        if self.origin.is_here() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.content) };
        }
    }
}

#[inline]
fn number() -> u32 {
    // SAFETY: the address of a static, or of a page that is never unmapped.
    let word = unsafe { &*NUMBER.load(Ordering::Relaxed) };
    match word.load(Ordering::Relaxed) {
        0 => renumber(word),
        number => number,
    }
}

/// Gives a child of fork a number that none of its ancestors has.
#[cold]
fn renumber(word: &AtomicU32) -> u32 {
    let next = HIGHEST.load(Ordering::Relaxed).wrapping_add(1).max(FIRST);
    match word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            HIGHEST.store(next, Ordering::Relaxed);
            next
        }
        Err(other) => other,
    }
}

/// Arranges that the number is cleared in children of fork.
fn watch() {
    // Miri has neither fork nor the calls below.
    if cfg!(miri) {
        return;
    }
    if let Some(page) = page_wiped_on_fork() {
        // SAFETY: a fresh page, aligned, all zeros, which is never unmapped.
        unsafe { (*page).store(FIRST, Ordering::Relaxed) };
        NUMBER.store(page, Ordering::Release);
    }
    // SAFETY: the handler only stores to an atomic. It fails for want of memory only; the page does
    // without it.
    unsafe { libc::pthread_atfork(None, None, Some(clear)) };
}

/// Runs in the child of each fork(3).
extern "C" fn clear() {
    // SAFETY: as in `number`.
    unsafe { (*NUMBER.load(Ordering::Relaxed)).store(0, Ordering::Relaxed) };
}

fn page_wiped_on_fork() -> Option<*mut AtomicU32> {
    let len = rustix::param::page_size();
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new memory wherever the kernel likes.
    let page: *mut c_void = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was just mapped and nobody else knows it.
    if unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above.
        unsafe { libc::munmap(page, len) };
        return None;
    }
    Some(page.cast())
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Runs `look` in a child made by `fork`, and returns its status.
    fn in_child(fork: impl FnOnce() -> i32, look: impl FnOnce() -> bool) -> i32 {
        match fork() {
            0 => {
                let status = i32::from(!look());
                // SAFETY: ends the child without running anything of the test harness.
                unsafe { libc::_exit(status) }
            }
            child => {
                let mut status = -1;
                // SAFETY: waits for the child above.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                status
            }
        }
    }

    /// Plain fork(3), and the bare system call, of which pthread_atfork(3) hears nothing.
    const FORKS: [fn() -> i32; 2] = [
        // SAFETY: the child only loads, stores and exits.
        || unsafe { libc::fork() },
        // SAFETY: as above.
        || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 },
    ];

    /// MEM-24.1: a child of fork is another process, and so is its child.
    #[test]
    fn origin_in_child_of_fork_is_elsewhere() {
        let parent = Origin::here();
        for fork in FORKS {
            let look = || {
                let child = Origin::here();
                let grandchild = in_child(fork, || {
                    !parent.is_here() && !child.is_here() && Origin::here().is_here()
                });
                !parent.is_here() && child.is_here() && child != parent && grandchild == 0
            };
            assert_eq!(in_child(fork, look), 0);
            assert!(parent.is_here());
        }
    }

    /// MEM-24.2: a bound value is dropped in its own process and in no other.
    #[test]
    fn bound_content_in_child_of_fork_is_not_dropped() {
        struct Counted(Rc<Cell<u32>>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let drops = Rc::new(Cell::new(0));
        let bound = OriginBound::new(Counted(Rc::clone(&drops)));
        let inherited = &bound;
        let look = || {
            // SAFETY: the child drops its copy and exits; the parent's is another one.
            drop(unsafe { std::ptr::read(inherited) });
            drops.get() == 0
        };
        assert_eq!(in_child(FORKS[0], look), 0);
        drop(bound);
        assert_eq!(drops.get(), 1);
    }
}
