//! Keeping signal handlers of the program out of the engine, once there are shared arrays (COH-8.7).

use super::Node;
use super::turnstile::Calm;
use oikaze_protocol::time::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Least time between two looks at the program's handlers: a look takes some microseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// When the program's handlers are looked at next, in nanoseconds of the node's time.
#[derive(Debug)]
pub(super) struct HandlersLook {
    due: AtomicU64,
}

impl Default for HandlersLook {
    /// Never, as long as there is no array.
    fn default() -> HandlersLook {
        HandlersLook { due: AtomicU64::new(u64::MAX) }
    }
}

impl Node {
    /// An array is made: from now on handlers may touch its pages.
    pub fn expect_handlers(&self) {
        self.engine.keep_calm(Calm::Turns);
        self.look_at_handlers(self.now());
    }

    /// Looks again whether the program has handlers by now, unless it was looked a moment ago.
    pub fn look_at_handlers_soon(&self) {
        if self.handlers.due.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let now = self.now();
        if now.0 >= self.handlers.due.load(Ordering::Relaxed) {
            self.look_at_handlers(now);
        }
    }

    fn look_at_handlers(&self, now: Time) {
        let next = if oikaze_os::signals::are_handled() {
            self.engine.keep_calm(Calm::Always);
            u64::MAX
        } else {
            (now + LOOK_INTERVAL).0
        };
        self.handlers.due.store(next, Ordering::Relaxed);
    }
}
