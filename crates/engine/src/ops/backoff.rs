//! Backoff of retries until absent pages are present (MEM-1.11).

use oikaze_protocol::limits::{PRESENT_PAUSE_MAX, PRESENT_PAUSE_MIN, PRESENT_TIME};
use oikaze_protocol::time::Time;

/// Backoff of retries until pages are present: their number and the time of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    since: Time,
    times: u32,
}

impl Backoff {
    pub fn new(now: Time) -> Backoff {
        Backoff { since: now, times: 0 }
    }

    /// Called after another failed try. Returns the time of the next try, if there is one.
    pub fn next(&mut self, now: Time) -> Option<Time> {
        if now - self.since > PRESENT_TIME {
            return None;
        }
        let pause =
            PRESENT_PAUSE_MIN.saturating_mul(1 << self.times.min(16)).min(PRESENT_PAUSE_MAX);
        self.times += 1;
        Some(now + pause)
    }
}

/// Timer between two tries of work that absent pages hold up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTimer {
    backoff: Option<Backoff>,
    until: Option<Time>,
}

impl RetryTimer {
    /// Called after another failed try. Returns `true` if there will be another one.
    pub fn begin(&mut self, now: Time) -> bool {
        // A try during the pause does not make the next pause longer.
        if self.until.is_none_or(|due| due <= now) {
            self.until = self.backoff.get_or_insert_with(|| Backoff::new(now)).next(now);
        }
        self.until.is_some()
    }

    /// Called when no page is absent any more.
    #[inline]
    pub fn end(&mut self) {
        *self = RetryTimer::default();
    }

    /// Ends the pause if its time has come.
    #[inline]
    pub fn wake_up(&mut self, now: Time) {
        if self.until.is_some_and(|due| due <= now) {
            self.until = None;
        }
    }

    /// Returns the end of the pause, if there is a pause.
    #[inline]
    pub fn until(&self) -> Option<Time> {
        self.until
    }
}
