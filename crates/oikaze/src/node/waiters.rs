//! Threads that sleep until a turn has changed something.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread::{Thread, ThreadId};

/// The sleeping threads. Looking when there is none costs one load.
#[derive(Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    threads: Mutex<Vec<Thread>>,
}

impl Waiters {
    /// From now on this thread is woken. The caller looks at its condition again before it sleeps.
    pub fn register(&self) -> Registration<'_> {
        let thread = std::thread::current();
        let id = thread.id();
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Registration { waiters: self, id }
    }

    /// Wake all: each looks at its own condition.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                thread.unpark();
            }
        }
    }

    /// Wake one, to take over.
    pub fn wake_one(&self) -> bool {
        fence(Ordering::SeqCst);
        match self.threads.lock().unwrap_or_else(PoisonError::into_inner).first() {
            Some(thread) => {
                thread.unpark();
                true
            }
            None => false,
        }
    }
}

/// One thread's place among the waiters; dropped when it no longer waits.
pub(super) struct Registration<'a> {
    waiters: &'a Waiters,
    id: ThreadId,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut threads = self.waiters.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = threads.iter().position(|thread| thread.id() == self.id) {
            threads.remove(at);
            self.waiters.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
