//! Time as an argument: nanoseconds since a start that the caller chooses.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment, in nanoseconds since the caller's own start. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns the span from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Rounds of a check that runs periodically while there is something to check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// Time of the next round, while there is something to check.
    pub next: Option<Time>,
}

impl Rounds {
    /// Returns `true` if a round is due. The first is due `every` after `is_on` became `true`.
    pub fn is_due(&mut self, is_on: bool, now: Time, every: Duration) -> bool {
        let is_due = is_on && self.next.is_some_and(|next| next <= now);
        if is_due || is_on != self.next.is_some() {
            self.next = is_on.then(|| now + every);
        }
        is_due
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
