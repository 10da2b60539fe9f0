//! Counts accesses to lent memory, so that a loan can end.

use crate::processes::origin::Origin;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;

/// Counts accesses under way. After closing, no access begins.
#[derive(Debug)]
pub(super) struct Gate {
    /// The [`CLOSED`] bit and the number of accesses under way.
    state: AtomicU32,
    origin: Origin,
}

const CLOSED: u32 = 1 << 31;
/// Reached only by leaking visits on purpose. Beyond it, the count would run into `CLOSED`.
const VISITORS_MAX: u32 = 1 << 30;

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { state: AtomicU32::new(0), origin: Origin::here() }
    }

    /// Begins an access. Returns `false` if closed. Each `true` needs one [`Gate::leave`].
    pub(super) fn enter(&self) -> bool {
        // Acquire: sees what the lender wrote. `close` waits for the count.
        let state = self.state.fetch_add(1, Ordering::Acquire);
        if state & !CLOSED > VISITORS_MAX {
            std::process::abort();
        }
        if state & CLOSED != 0 {
            self.leave();
            return false;
        }
        true
    }

    /// Ends an access.
    pub(super) fn leave(&self) {
        // Release: the access happens before the lender's next step.
        if self.state.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            // If this fails, nobody waits. A closer that had not slept yet rereads the state by
            // itself.
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Begins an access that ends when dropped.
    pub(super) fn visit(&self) -> Option<Visit<'_>> {
        self.enter().then(|| Visit(self))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Refuses new accesses and waits until all accesses under way have ended.
    pub(super) fn close(&self) {
        let mut state = self.state.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
        // Visitors that a child of fork inherits never leave (MEM-24.2).
        while state != CLOSED && self.origin.is_here() {
            // Interrupted, or the state has changed: read it again.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, state, None);
            state = self.state.load(Ordering::Acquire);
        }
    }
}

/// An access under way.
#[derive(Debug)]
pub(super) struct Visit<'a>(&'a Gate);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
