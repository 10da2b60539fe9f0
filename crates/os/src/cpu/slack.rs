//! Timer slack of a thread.

use core::num::NonZeroU64;
use core::time::Duration;

/// Switches the calling thread's timers between exact and lax. A lax timer may be late, so that it
/// needs no interrupt of its own. On a virtual machine each timer interrupt takes the core away for
/// 50 µs, and so does a regular tick. A timer that waits for the tick costs nothing extra.
#[derive(Debug)]
pub struct TimerSlack {
    lax: bool,
    slack: Duration,
}

impl TimerSlack {
    /// Creates the switch with exact timers. [Lax](Self::set_lax) timers are late by at most
    /// `slack`.
    #[must_use]
    pub const fn new(slack: Duration) -> TimerSlack {
        TimerSlack { lax: false, slack }
    }

    /// Makes timers lax or exact. Costs one system call if the setting changes. If the kernel
    /// refuses, timers stay exact.
    pub fn set_lax(&mut self, lax: bool) {
        if std::mem::replace(&mut self.lax, lax) != lax {
            let slack =
                if lax { u64::try_from(self.slack.as_nanos()).unwrap_or(u64::MAX) } else { 0 };
            // 0 restores the default.
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
