//! SIGQUIT (Ctrl-\) as a question to the library, as Java's virtual machine takes it: a thread of
//! the library reports, and the program goes on.

use super::spawn;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Time in nanoseconds within which a second SIGQUIT has its default action: a core dump.
const AGAIN_NS: i64 = 1_000_000_000;
/// Value of [`LATEST`] before the first SIGQUIT.
const NEVER: i64 = i64::MIN;

/// Signalled by the handler. Never closed, because a handler may run at any time.
static EVENT: OnceLock<OwnedFd> = OnceLock::new();
/// Process that installed the handler. Its children of fork inherit the handler, and not the
/// thread.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Monotonic time of the latest SIGQUIT in nanoseconds.
static LATEST: AtomicI64 = AtomicI64::new(NEVER);
/// Action before the handler was installed: the default one, or none in jobs that a shell runs in
/// the background.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Set once the reporting thread runs.
static RUNS: Mutex<bool> = Mutex::new(false);

/// Makes each SIGQUIT call `report` in a thread of the library, unless the program has a handler of
/// its own. A second SIGQUIT within 1 s has its default action, unless it was ignored before. The
/// first call in a process decides on `report`.
///
/// # Errors
/// The system grants no descriptor or no thread. The signal keeps its default action.
pub fn report_on_quit(report: fn()) -> io::Result<()> {
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*runs {
        if EVENT.get().is_none() {
            let _ = EVENT.set(eventfd(0, EventfdFlags::CLOEXEC)?);
        }
        spawn("oikaze quit", move || report_each(report))?;
        *runs = true;
    }
    // SAFETY: `getpid` has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::SeqCst);
    let before = action();
    if matches!(before, libc::SIG_DFL | libc::SIG_IGN) {
        BEFORE.store(before, Ordering::SeqCst);
        set_action(handler());
    }
    Ok(())
}

fn report_each(report: fn()) {
    while let Some(event) = EVENT.get() {
        match rustix::io::read(event, &mut [0_u8; 8]) {
            Ok(_) => report(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Gives SIGQUIT its earlier action back, unless the program has changed the action since.
pub fn end_on_quit() {
    if is_ours(action()) {
        set_action(BEFORE.load(Ordering::SeqCst));
    }
}

/// Called when the launcher, which was sent SIGQUIT, asks this process for its report. A handler of
/// the program's own gets the signal. Otherwise the call counts as the first SIGQUIT, so that one
/// that the launcher sends within 1 s has its default action.
pub fn quit_from_launcher() {
    match action() {
        libc::SIG_DFL | libc::SIG_IGN => {}
        ours if is_ours(ours) => LATEST.store(now_ns(), Ordering::SeqCst),
        // SAFETY: sends a signal, for which the program has a handler, to this process.
        _ => _ = unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) },
    }
}

/// Returns `true` if this is the handler of SIGQUIT that this module installs.
pub(super) fn is_ours(action: libc::sighandler_t) -> bool {
    action == handler()
}

fn handler() -> libc::sighandler_t {
    on_quit as extern "C" fn(libc::c_int) as libc::sighandler_t
}

/// Makes only calls that are async-signal-safe (signal-safety(7)).
extern "C" fn on_quit(_: libc::c_int) {
    // SAFETY: the address of this thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let now = now_ns();
    let latest = LATEST.swap(now, Ordering::SeqCst);
    let before = BEFORE.load(Ordering::SeqCst);
    let again = latest != NEVER && now.saturating_sub(latest) < AGAIN_NS && before == libc::SIG_DFL;
    // SAFETY: `getpid` has no preconditions.
    let forked = PROCESS.load(Ordering::SeqCst) != unsafe { libc::getpid() };
    match EVENT.get() {
        Some(event) if !again && !forked => {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: the descriptor is never closed, and the bytes live for the call.
            unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
        _ => {
            set_action(before);
            // SAFETY: sends a signal to this thread. It is delivered when this handler returns.
            unsafe { libc::raise(libc::SIGQUIT) };
        }
    }
    // SAFETY: the address of this thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
}

fn now_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Returns the action of SIGQUIT.
fn action() -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks, there is room for the answer, and zeros are valid.
    unsafe {
        libc::sigaction(libc::SIGQUIT, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

fn set_action(to: libc::sighandler_t) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are valid, the set is initialised, and `to` is a handler of one argument or a
    // predefined action. System calls of the program are restarted after the handler.
    unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = to;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGQUIT, action, ptr::null_mut());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    static REPORTED: Mutex<Option<Sender<()>>> = Mutex::new(None);

    /// MEM-21.6. The only test of this process that raises SIGQUIT.
    #[test]
    fn quit_reports_and_its_default_action_comes_back_at_the_end() {
        // A shell ignores SIGQUIT in what it runs in the background.
        set_action(libc::SIG_DFL);
        let (sender, reports) = channel();
        *REPORTED.lock().unwrap() = Some(sender);
        report_on_quit(|| {
            REPORTED.lock().unwrap().as_ref().unwrap().send(()).unwrap();
        })
        .unwrap();
        assert!(is_ours(action()));
        // SAFETY: sends a signal, for which there is a handler.
        unsafe { libc::raise(libc::SIGQUIT) };
        reports.recv().unwrap();
        end_on_quit();
        assert_eq!(action(), libc::SIG_DFL);
        set_action(libc::SIG_IGN);
        report_on_quit(|| {}).unwrap();
        assert!(is_ours(action()));
        end_on_quit();
        assert_eq!(action(), libc::SIG_IGN);
        extern "C" fn of_program(_: libc::c_int) {}
        let own = of_program as extern "C" fn(libc::c_int) as libc::sighandler_t;
        set_action(own);
        report_on_quit(|| {}).unwrap();
        end_on_quit();
        assert_eq!(action(), own, "a handler of the program's own stays");
        set_action(libc::SIG_DFL);
    }
}
