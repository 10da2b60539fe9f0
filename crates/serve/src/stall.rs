//! Stalls of a server, as its node sees them: the server takes nothing out of the ring (SERVE-4.3).

use std::time::{Duration, Instant};

/// Time without progress from which on a stall is counted and told. A control group whose quota is
/// used up waits for up to 100 ms.
const STALL_MIN: Duration = Duration::from_millis(50);
/// Longest time between two looks that counts as a stall in full. A node that slept longer knows
/// nothing about the time between.
const STALL_STEP_MAX: Duration = Duration::from_millis(250);

/// Finds out for how long a server has taken nothing, although there was something to take.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// Position of the server at the latest look, if it had not taken everything then.
    latest: Option<(u64, Instant)>,
    stalled: Duration,
    is_reported: bool,
    count: u64,
}

impl StallWatch {
    /// Notes how far the server has come. `has_more` says that it has not taken everything.
    pub fn check(&mut self, position: u64, has_more: bool, now: Instant) {
        let before = self.stalled;
        match self.latest {
            Some((stood, at)) if has_more && stood == position => {
                self.stalled += now.saturating_duration_since(at).min(STALL_STEP_MAX);
                self.count += u64::from(before < STALL_MIN && self.stalled >= STALL_MIN);
            }
            _ => (self.stalled, self.is_reported) = (Duration::ZERO, false),
        }
        self.latest = has_more.then_some((position, now));
    }

    /// Begins anew, with another server.
    pub fn begin_anew(&mut self) {
        *self = StallWatch { count: self.count, ..StallWatch::default() };
    }

    /// Returns the number of stalls so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns for how long the server has taken nothing, and whether this is the first call in
    /// this stall. `None` if it runs.
    pub fn report(&mut self) -> Option<(Duration, bool)> {
        if self.stalled < STALL_MIN {
            return None;
        }
        Some((self.stalled, !std::mem::replace(&mut self.is_reported, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// SERVE-4.3.
    #[test]
    fn server_that_takes_nothing_stalls_until_it_goes_on() {
        let (mut watch, begin) = (StallWatch::default(), Instant::now());
        let check = |watch: &mut StallWatch, at, position, has_more| {
            watch.check(position, has_more, begin + at)
        };
        check(&mut watch, ms(0), 0, false);
        check(&mut watch, ms(5000), 64, true);
        assert_eq!(watch.report(), None, "nothing was there to take");
        check(&mut watch, ms(5040), 64, true);
        assert_eq!((watch.report(), watch.count()), (None, 0), "a short delay is not a stall");
        check(&mut watch, ms(5160), 64, true);
        assert_eq!(watch.report(), Some((ms(160), true)));
        check(&mut watch, ms(5360), 64, true);
        assert_eq!((watch.report(), watch.count()), (Some((ms(360), false)), 1));
        check(&mut watch, ms(5400), 128, true);
        assert_eq!(watch.report(), None, "it has taken something");
        check(&mut watch, ms(5550), 128, true);
        assert_eq!((watch.report(), watch.count()), (Some((ms(150), true)), 2), "a new stall");
        check(&mut watch, ms(5600), 192, false);
        assert_eq!(watch.report(), None, "it has taken all");
    }

    /// A node that was itself stopped for 10 s does not blame its server.
    #[test]
    fn time_in_which_the_node_slept_counts_for_little() {
        let (mut watch, begin) = (StallWatch::default(), Instant::now());
        watch.check(64, true, begin);
        watch.check(64, true, begin + ms(10_000));
        assert_eq!(watch.report(), Some((STALL_STEP_MAX, true)));
        watch.begin_anew();
        assert_eq!((watch.report(), watch.count()), (None, 1));
    }
}
