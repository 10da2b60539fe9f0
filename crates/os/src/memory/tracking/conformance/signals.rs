//! Signals that arrive while a thread sleeps on a page, such as a profiler's timer.

use super::*;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Word that the handler touches, and the number of its calls.
static TOUCHED_BY_HANDLER: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// Gives the two statics above to one test at a time.
static ONE: Mutex<()> = Mutex::new(());

extern "C" fn touch_another_page(_signal: libc::c_int) {
    // SAFETY: the test keeps the view mapped until the handler has run.
    let value = unsafe { TOUCHED_BY_HANDLER.load(Ordering::Acquire).read_volatile() };
    if value == 11 {
        HANDLED.fetch_add(1, Ordering::Release);
    }
}

/// The handler runs at once, on top of the sleep. It may itself sleep on another page, and then the
/// first sleep goes on.
pub(super) fn a_signal_handler_may_touch_pages_while_its_thread_sleeps_on_one(
    tracker: &Arc<dyn Tracker>,
) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let memory = array(tracker, 0, 2);
    poke(&memory, 0, 10);
    poke(&memory, 1, 11);
    TOUCHED_BY_HANDLER.store(memory.view_address().wrapping_add(PAGE).cast(), Ordering::Release);
    let before = HANDLED.load(Ordering::Acquire);
    let handler: extern "C" fn(libc::c_int) = touch_another_page;
    // SAFETY: the handler is async-signal-safe: it loads memory and counts.
    assert_ne!(unsafe { libc::signal(libc::SIGUSR2, handler as usize) }, libc::SIG_ERR);
    // SAFETY: no precondition.
    let toucher = unsafe { libc::pthread_self() };
    let mut signalled = false;
    let answer = |fault: FaultAt| match fault.page {
        0 if !signalled => {
            signalled = true;
            // SAFETY: the thread is alive: it waits for us.
            assert_eq!(unsafe { libc::pthread_kill(toucher, libc::SIGUSR2) }, 0);
        }
        0 => {}
        page => {
            memory.install(page..page + 1, Access::Read).unwrap();
            while HANDLED.load(Ordering::Acquire) == before {
                std::thread::yield_now();
            }
            memory.install(0..1, Access::Read).unwrap();
        }
    };
    let (value, faults) = serve(tracker, answer, || load(&memory, 0));
    assert_eq!(value, 10);
    assert_eq!(pages_of(&faults), [0, 1]);
}
