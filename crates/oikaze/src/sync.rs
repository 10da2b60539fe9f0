//! Threads and atomics, or their stand-ins under loom, which tries every interleaving.

#[cfg(loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use loom::thread::{Thread, current};

    /// Parks without a time limit, because time does not pass in a model.
    pub fn park(_: Option<std::time::Duration>) {
        loom::thread::park();
    }

    /// Tries the body in all interleavings, or in those with at most `preemptions` preemptions.
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

    /// Parks until unparked or until the limit has passed. May return spuriously.
    pub fn park(limit: Option<std::time::Duration>) {
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
    }
}

pub(crate) use chosen::*;
