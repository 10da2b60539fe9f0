//! Timer slack of a thread.

use core::cell::Cell;
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

/// Makes the calling thread's timers exact for good. A sleep of 10 µs then takes 10 µs, and not 60.
/// Costs one system call when the thread calls it first.
pub fn make_timers_exact() {
    thread_local! {
        static ARE_EXACT: Cell<bool> = const { Cell::new(false) };
    }
    if !ARE_EXACT.replace(true) {
        // If the kernel refuses, the sleeps are longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_timers_have_the_least_slack() {
        std::thread::spawn(|| {
            make_timers_exact();
            make_timers_exact();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }

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
