//! Threads that park, and that other threads wake.
//!
//! `std::thread::current` panics in a thread whose thread-locals were destroyed: in functions of
//! atexit(3), in destructors of C++ objects, and late in a thread's end. Programs leave their jobs
//! there, so waits use these handles instead.

use rustix::thread::{Timespec, futex};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Nobody has woken the thread, which runs.
const EMPTY: u32 = 0;
/// The thread was woken, and its next park returns at once.
const NOTIFIED: u32 = 1;
/// The thread sleeps, or is about to. One less than [`EMPTY`].
const PARKED: u32 = u32::MAX;

/// Handle of a thread.
#[derive(Clone, Debug)]
pub struct Thread(Arc<ThreadState>);

#[derive(Debug)]
struct ThreadState {
    parked: AtomicU32,
    name: OnceLock<String>,
}

thread_local! {
    static THIS: Thread = Thread::new();
    /// Handle of a thread that has lost the one above. It has no destructor, so it stays.
    static LATE: Cell<Option<&'static Thread>> = const { Cell::new(None) };
}

/// Returns the handle of the calling thread, also while the thread ends.
pub fn current() -> Thread {
    THIS.try_with(Clone::clone).unwrap_or_else(|_| {
        // Never freed: the thread ends soon, and has at most one such handle.
        let late = LATE.get().unwrap_or_else(|| Box::leak(Box::new(Thread::new())));
        LATE.set(Some(late));
        late.clone()
    })
}

/// Parks the calling thread until it is woken or until the limit has passed. May return spuriously.
pub fn park(limit: Option<Duration>) {
    let Thread(state) = current();
    if state.parked.fetch_sub(1, Ordering::Acquire) == NOTIFIED {
        return;
    }
    // A limit that the kernel cannot express is none.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // Returns at once if another thread has woken this one meanwhile.
    let _ = futex::wait(&state.parked, futex::Flags::PRIVATE, PARKED, limit.as_ref());
    state.parked.swap(EMPTY, Ordering::Acquire);
}

/// Returns the name of the calling thread for messages: `main`, or what the system calls it.
pub fn current_name() -> String {
    let Thread(state) = current();
    state.name.get_or_init(oikaze_os::process::thread_name).clone()
}

impl Thread {
    fn new() -> Thread {
        Thread(Arc::new(ThreadState { parked: AtomicU32::new(EMPTY), name: OnceLock::new() }))
    }

    /// Returns a number that no other thread has while this handle exists.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Wakes the thread, or makes its next park return at once.
    pub fn unpark(&self) {
        if self.0.parked.swap(NOTIFIED, Ordering::Release) == PARKED {
            let _ = futex::wake(&self.0.parked, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn park_after_unpark_returns_at_once() {
        current().unpark();
        park(None);
        park(Some(Duration::from_millis(1)));
    }

    #[test]
    fn unpark_wakes_a_parked_thread() {
        let (tell, told) = std::sync::mpsc::channel();
        let woken = Arc::new(AtomicU32::new(0));
        let flag = Arc::clone(&woken);
        let parked = std::thread::spawn(move || {
            tell.send(current()).unwrap();
            while flag.load(Ordering::Acquire) == 0 {
                park(None);
            }
        });
        let thread = told.recv().unwrap();
        woken.store(1, Ordering::Release);
        thread.unpark();
        parked.join().unwrap();
        assert_ne!(thread.id(), current().id());
    }

    /// A handle exists while the thread-locals of a thread are destroyed, and stays the same.
    #[test]
    fn ending_thread_has_a_handle() {
        struct AtEnd(std::sync::mpsc::Sender<bool>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                current().unpark();
                park(None);
                let _ = self.0.send(current().id() == current().id());
            }
        }
        thread_local! {
            static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) };
        }
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Its destructor runs after that of the handle, which is made later.
            AT_END.set(Some(AtEnd(tell)));
            current();
        })
        .join()
        .unwrap();
        assert!(told.recv().unwrap());
    }
}
