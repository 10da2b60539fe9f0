//! Threads and atomics, or the stand-ins with which loom tries every order in which they can meet.

#[cfg(loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use loom::thread::{Thread, current};

    /// Time does not pass in a model: a sleep ends when it is ended.
    pub fn park(_: Option<std::time::Duration>) {
        loom::thread::park();
    }

    /// Try the body in all orders, or in those in which threads are interrupted so often at most.
    #[cfg(test)]
    pub fn model(preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(body);
    }
}

#[cfg(not(loom))]
mod chosen {
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::sync::{Arc, Mutex, MutexGuard};
    pub use std::thread::{Thread, current};

    /// Sleep until unparked, or the time is over, or for no reason.
    pub fn park(limit: Option<std::time::Duration>) {
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
    }
}

pub(crate) use chosen::*;
