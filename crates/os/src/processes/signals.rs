//! Signals of the program, and threads that must not run its handlers.
//!
//! A handler of the program may touch a page of a shared array. On a thread of the library, or on a
//! thread that is inside the engine, the handler would wait for a page that only this thread can
//! fetch.

mod quit;

pub use quit::{end_on_quit, quit_from_launcher, report_on_quit};

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Signals that a thread raises by its own instructions. Blocked, they would end the process at
/// once, or be lost.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Guard: while it lives, the calling thread runs no signal handler except those of synchronous
/// signals. Threads that are spawned meanwhile inherit the mask.
#[derive(Debug)]
#[must_use = "signals are let through again when this is dropped"]
pub struct SignalsBlocked {
    before: Option<libc::sigset_t>,
    /// The mask belongs to the thread.
    not_send: PhantomData<*mut ()>,
}

impl SignalsBlocked {
    /// Blocks signals from here on. (It fails on no system. A sandbox that forbids it leaves the
    /// mask as it was.)
    pub fn begin() -> SignalsBlocked {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigfillset` initialises the set, from which valid signals are taken; both sets
        // are valid for the calls.
        let before = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            for signal in SYNCHRONOUS {
                libc::sigdelset(set.as_mut_ptr(), signal);
            }
            // Added to the signals that the program has blocked already.
            let masked =
                libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) == 0;
            masked.then(|| before.assume_init())
        };
        SignalsBlocked { before, not_send: PhantomData }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: a mask that this thread has had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Starts a thread of the library, which runs no signal handler of the program's (COH-8.7).
///
/// # Errors
/// The system grants no further thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _inherited = SignalsBlocked::begin();
    Builder::new().name(name.into()).spawn(work)
}

/// `true` once the program was seen to have handlers for signals that come from outside.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// A lock whose holder runs no handler of the program. A handler on this thread could otherwise
/// wait for a page that only a thread waiting for the lock can fetch (COH-8.7).
#[derive(Debug)]
pub struct Locked<G> {
    // Released before signals are let through again.
    guard: G,
    _blocked: Option<SignalsBlocked>,
}

/// Takes a lock by calling `lock`. Costs one extra load while the program has no handlers.
pub fn locked<G>(lock: impl FnOnce() -> G) -> Locked<G> {
    let blocked = are_known_to_be_handled().then(SignalsBlocked::begin);
    Locked { guard: lock(), _blocked: blocked }
}

/// As [`locked`], but blocks signals even if no handlers are known. It costs two system calls, so
/// it is for locks that are taken rarely.
pub fn locked_without_signals<G>(lock: impl FnOnce() -> G) -> Locked<G> {
    let blocked = Some(SignalsBlocked::begin());
    Locked { guard: lock(), _blocked: blocked }
}

impl<T> Locked<MutexGuard<'_, T>> {
    /// Waits for a condition, at most for `limit` ([`Condvar::wait_timeout`]).
    #[must_use]
    pub fn wait_timeout(self, condition: &Condvar, limit: Duration) -> Self {
        let Locked { guard, _blocked } = self;
        let guard = condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0;
        Locked { guard, _blocked }
    }

    /// Waits for a condition ([`Condvar::wait`]).
    #[must_use]
    pub fn wait(self, condition: &Condvar) -> Self {
        let Locked { guard, _blocked } = self;
        Locked { guard: condition.wait(guard).unwrap_or_else(PoisonError::into_inner), _blocked }
    }
}

impl<G: Deref> Deref for Locked<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Locked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Writes a line to standard error without the lock of [`std::io::stderr`]. A thread in a signal
/// handler may hold that lock while it waits for the caller.
pub fn print_line(text: &str) {
    let line = format!("{text}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(io::stderr(), rest) {
            Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // No process reads standard error.
            _ => return,
        }
    }
}

/// Returns `true` if the program was [seen](are_handled) to have handlers. Costs one load.
#[inline]
#[must_use]
pub fn are_known_to_be_handled() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

/// Returns `true` if the program has a handler for some signal that comes from outside. Costs a
/// system call for each signal.
#[must_use]
pub fn are_handled() -> bool {
    let are_handled = look_for_handlers();
    if are_handled {
        HANDLED.store(true, Ordering::Relaxed);
    }
    are_handled
}

fn look_for_handlers() -> bool {
    let first_reserved = 32;
    let numbers = (1..first_reserved).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    numbers.filter(|signal| !SYNCHRONOUS.contains(signal)).any(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: it only asks, there is room for the answer, and zeros, which stay if the number
        // is not a signal, are valid.
        let handler = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
            action.assume_init().sa_sigaction
        };
        handler != libc::SIG_DFL && handler != libc::SIG_IGN && !quit::is_ours(handler)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The signals that a thread blocks, as the kernel says.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    /// COH-8.7: the thread blocks all signals except the synchronous ones and the two that cannot
    /// be blocked. The mask of the spawning thread stays the same.
    #[test]
    fn library_thread_blocks_all_but_synchronous_signals() {
        let before = blocked();
        let inside = spawn("signals", blocked).unwrap().join().unwrap();
        let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
        for signal in SYNCHRONOUS {
            assert_eq!(inside & bit(signal), 0, "{signal}");
        }
        for signal in [
            libc::SIGALRM,
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGCHLD,
            libc::SIGUSR1,
            libc::SIGPROF,
            libc::SIGRTMIN(),
        ] {
            assert_ne!(inside & bit(signal), 0, "{signal}");
        }
        assert_eq!(blocked(), before);
    }
}
