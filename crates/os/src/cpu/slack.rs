//! How exactly a thread wants to be woken.

use core::num::NonZeroU64;
use core::time::Duration;

/// Whether this thread's timers are exact, or may be late so that they need no interrupt of their
/// own. On a virtual machine each timer's interrupt takes its core away for 50 µs, a regular tick's
/// too; one that waits for the tick costs nothing beside it.
#[derive(Debug)]
pub struct TimerSlack {
    lax: bool,
    slack: Duration,
}

impl TimerSlack {
    /// Exact until [lax](Self::set_lax); then late by this much at most.
    #[must_use]
    pub const fn new(slack: Duration) -> TimerSlack {
        TimerSlack { lax: false, slack }
    }

    /// One system call if that is a change. A system that refuses wakes the thread in time.
    pub fn set_lax(&mut self, lax: bool) {
        if std::mem::replace(&mut self.lax, lax) != lax {
            let slack =
                if lax { u64::try_from(self.slack.as_nanos()).unwrap_or(u64::MAX) } else { 0 };
            // 0 is the default again.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(slack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_comes_and_goes() {
        let slack = || rustix::thread::current_timer_slack().unwrap();
        std::thread::spawn(move || {
            let before = slack();
            let mut timers = TimerSlack::new(Duration::from_millis(2));
            timers.set_lax(true);
            assert_eq!(slack(), 2_000_000);
            timers.set_lax(false);
            assert_eq!(slack(), before);
        })
        .join()
        .unwrap();
    }
}
