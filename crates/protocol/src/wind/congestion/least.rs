//! The least round trip of a path, forgotten when the path may have changed (WIND-9.3).

use crate::time::Time;
use core::time::Duration;

/// A value counts for this long at least, and at most for twice as long.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The least value of the last 10 to 20 seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    /// Of the time before `since`, and from then on.
    earlier: Duration,
    later: Duration,
    since: Time,
}

impl Least {
    pub fn new() -> Least {
        Least { earlier: Duration::MAX, later: Duration::MAX, since: Time(0) }
    }

    pub fn take(&mut self, now: Time, value: Duration) {
        if now - self.since >= REMEMBERED {
            // After a silence of any length the last that was known is better than nothing.
            (self.earlier, self.later, self.since) = (self.later, Duration::MAX, now);
        }
        self.later = self.later.min(value);
    }

    /// [`Duration::MAX`] if nothing is known.
    pub fn get(&self) -> Duration {
        self.earlier.min(self.later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_ten_to_twenty_seconds() {
        let (us, s) = (Duration::from_micros, Duration::from_secs);
        let mut least = Least::new();
        assert_eq!(least.get(), Duration::MAX);
        least.take(Time(0) + s(1), us(20));
        (2..10).for_each(|n| least.take(Time(0) + s(n), us(50)));
        assert_eq!(least.get(), us(20));
        (10..19).for_each(|n| least.take(Time(0) + s(n), us(50)));
        assert_eq!(least.get(), us(20), "until twenty");
        least.take(Time(0) + s(21), us(60));
        assert_eq!(least.get(), us(50));
        least.take(Time(0) + s(500), us(70));
        assert_eq!(least.get(), us(60));
    }
}
