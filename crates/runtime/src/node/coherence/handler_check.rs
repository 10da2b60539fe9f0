//! Decides when to check whether the program has installed signal handlers, which stay out of the
//! engine once there are shared arrays (COH-8.7).

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
pub struct HandlerCheck {
    due: AtomicU64,
}

impl Default for HandlerCheck {
    /// No check is due as long as there is no array.
    fn default() -> HandlerCheck {
        HandlerCheck { due: AtomicU64::new(u64::MAX) }
    }
}

impl HandlerCheck {
    /// Checks whether the program has handlers by now, at most once per `CHECK_INTERVAL`.
    #[inline]
    pub fn look_soon(&self, now: impl FnOnce() -> Time) {
        self.look_after(Duration::ZERO, now);
    }

    /// Checks as [`HandlerCheck::look_soon`] does. Called by the helper whenever it is awake.
    pub fn look_rarely(&self, now: impl FnOnce() -> Time) {
        self.look_after(HELPER_CHECK_INTERVAL - CHECK_INTERVAL, now);
    }

    fn look_after(&self, overdue: Duration, now: impl FnOnce() -> Time) {
        let due = self.due.load(Ordering::Relaxed);
        if due == u64::MAX {
            return;
        }
        let now = now();
        if now >= Time(due) + overdue {
            self.look(now);
        }
    }

    /// Checks whether the program has handlers by now. Checks on once there are arrays.
    pub fn look(&self, now: Time) {
        // The result holds for all nodes of this process, and for locks outside the engine
        // (`oikaze_os::signals::locked`).
        let next =
            if oikaze_os::signals::are_handled() { u64::MAX } else { (now + CHECK_INTERVAL).0 };
        self.due.store(next, Ordering::Relaxed);
    }
}
