//! Threads and atomics, or their stand-ins under loom, which tries every interleaving.

mod mutex;
#[cfg(not(loom))]
mod thread;

#[cfg(loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use loom::thread::{Thread, current};

    /// Parks without a time limit, because time does not pass in a model.
    pub fn park(_: Option<std::time::Duration>) {
        loom::thread::park();
    }

    /// Names no thread, because no model shows names.
    pub fn current_name() -> String {
        String::new()
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
    pub use crate::sync::thread::{Thread, current, current_name, park};
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::sync::{Arc, Mutex, MutexGuard};
}

pub use chosen::*;
pub use mutex::lock;
