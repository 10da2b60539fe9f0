//! Keeps signal handlers of the program out of the engine, once there are shared arrays (COH-8.7).

use super::Node;
use oikaze_protocol::time::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Minimum time between two checks of the program's handlers by threads that synchronise. A check
/// takes some microseconds.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Minimum time between two checks by the helper. The program may take guards and make no other
/// call for long.
const HELPER_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Time of the next check of the program's handlers, in nanoseconds of the node's time.
#[derive(Debug)]
pub(super) struct HandlerCheck {
    due: AtomicU64,
}

impl Default for HandlerCheck {
    /// No check is due as long as there is no array.
    fn default() -> HandlerCheck {
        HandlerCheck { due: AtomicU64::new(u64::MAX) }
    }
}

impl Node {
    /// Called when an array is made. From now on handlers may touch its pages.
    pub fn expect_handlers(&self) {
        self.engine.mask_signals();
        self.check_handlers(self.now());
    }

    /// Checks whether the program has handlers by now, at most once per `CHECK_INTERVAL`.
    pub fn check_handlers_soon(&self) {
        self.check_handlers_after(Duration::ZERO);
    }

    /// Checks as [`Node::check_handlers_soon`] does. Called by the helper whenever it is awake.
    pub fn check_handlers_rarely(&self) {
        self.check_handlers_after(HELPER_CHECK_INTERVAL - CHECK_INTERVAL);
    }

    fn check_handlers_after(&self, overdue: Duration) {
        let due = self.handlers.due.load(Ordering::Relaxed);
        if due == u64::MAX {
            return;
        }
        let now = self.now();
        if now >= Time(due) + overdue {
            self.check_handlers(now);
        }
    }

    fn check_handlers(&self, now: Time) {
        // The result holds for all nodes of this process, and for locks outside the engine
        // (`oikaze_os::signals::locked`).
        let next =
            if oikaze_os::signals::are_handled() { u64::MAX } else { (now + CHECK_INTERVAL).0 };
        self.handlers.due.store(next, Ordering::Relaxed);
    }
}
