//! Shared processors: a host runs for a slice of time, and then others do.

use crate::random::Random;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::time::Duration;

/// Slices of time: in every period a host runs for one slice, which begins at a moment drawn for
/// each host and period.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Length of a period.
    pub period: Duration,
    /// Length of the slice in a period.
    pub slice: Duration,
}

impl Slices {
    /// Returns the time at which the host runs next, not before `at`.
    pub(super) fn next(self, seed: u64, rank: Rank, at: Time) -> Time {
        let (period, slice) = (self.period.as_nanos() as u64, self.slice.as_nanos() as u64);
        let number = at.0 / period;
        let begin = |number: u64| {
            let mut random =
                Random::stream(seed ^ number << 32, 0x736c_6963 << 16 | u64::from(rank));
            Time(number * period + random.below(period - slice + 1))
        };
        let now = begin(number);
        if at.0 < now.0 + slice { now.max(at) } else { begin(number + 1) }
    }
}
