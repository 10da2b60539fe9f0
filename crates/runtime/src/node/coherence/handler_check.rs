//! Decides when to check whether the program has installed signal handlers. A handler may touch a
//! page of a shared array, and then waits for the engine. So while there are shared arrays and
//! handlers, threads in the engine block signals (COH-8.7).

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
    /// Checks whether the program has handlers by now, at most once per `CHECK_INTERVAL`. Called by
    /// threads that synchronise.
    #[inline]
    pub fn check_if_due(&self, now: impl FnOnce() -> Time) {
        self.check_overdue(Duration::ZERO, now);
    }

    /// Checks as [`HandlerCheck::check_if_due`] does. Called by the helper whenever it is awake.
    pub fn check_by_helper(&self, now: impl FnOnce() -> Time) {
        self.check_overdue(HELPER_CHECK_INTERVAL - CHECK_INTERVAL, now);
    }

    fn check_overdue(&self, overdue: Duration, now: impl FnOnce() -> Time) {
        let due = self.due.load(Ordering::Relaxed);
        if due == u64::MAX {
            return;
        }
        let now = now();
        if now >= Time(due) + overdue {
            self.check(now);
        }
    }

    /// Checks whether the program has handlers by now, and schedules the next check unless there
    /// are some. Called when the first array is made, which begins the checks.
    pub fn check(&self, now: Time) {
        // The result holds for all nodes of this process, and for locks outside the engine
        // (`oikaze_os::signals::locked`).
        let next =
            if oikaze_os::signals::are_handled() { u64::MAX } else { (now + CHECK_INTERVAL).0 };
        self.due.store(next, Ordering::Relaxed);
    }
}
