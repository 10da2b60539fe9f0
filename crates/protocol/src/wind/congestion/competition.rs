//! Detects competing flows that fill queues (WIND-9.4). A delay-based controller that yields to
//! every queue starves beside them and on long paths, so it changes to CUBIC while they compete.

use super::{Controller, Limits};
use crate::time::Time;
use crate::wind::congestion::cubic::Cubic;
use core::time::Duration;

/// Number of successive round trips whose delay did not respond, after which the controller
/// competes.
const UNRESPONSIVE_ROUNDS_MAX: u32 = 6;
/// Time from a contest's beginning to its first test, and the maximum time between two tests.
const TEST_MIN: Duration = Duration::from_secs(2);
const TEST_MAX: Duration = Duration::from_secs(64);

/// Finding of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Far too much delay, all the time.
    Unresponsive,
    /// Hardly any delay at least once.
    Calm,
    /// Neither of the others.
    Mixed,
}

/// Watches whether the delay responds to a smaller window, and competes if it does not.
#[derive(Clone, Debug)]
pub(super) struct Competition {
    contest: Option<Contest>,
    unresponsive_rounds: u32,
    /// Window before the controller reduced it against the delay, and whether that reduction tests
    /// a contest.
    before: u64,
    testing: bool,
    interval: Duration,
}

#[derive(Clone, Debug)]
struct Contest {
    cubic: Cubic,
    test_at: Time,
}

impl Competition {
    pub fn new() -> Competition {
        Competition {
            contest: None,
            unresponsive_rounds: 0,
            before: 0,
            testing: false,
            interval: TEST_MIN,
        }
    }

    /// Returns the controller that decides during a contest.
    pub fn contest(&self) -> Option<&Cubic> {
        self.contest.as_ref().map(|contest| &contest.cubic)
    }

    pub fn contest_mut(&mut self) -> Option<&mut Cubic> {
        self.contest.as_mut().map(|contest| &mut contest.cubic)
    }

    /// Called when a round trip is over, in which the window was at most `window`. If that ends a
    /// contest, returns the window to go on with.
    pub fn round(
        &mut self,
        now: Time,
        finding: Finding,
        window: u64,
        limits: Limits,
    ) -> Option<u64> {
        if let Some(contest) = &self.contest {
            let calm = finding == Finding::Calm;
            if !calm && now < contest.test_at {
                return None;
            }
            let window = contest.cubic.window();
            self.contest = None;
            (self.testing, self.before, self.unresponsive_rounds) = (!calm, window, 0);
            self.interval = if calm { TEST_MIN } else { (self.interval * 2).min(TEST_MAX) };
            return Some(window);
        }
        if finding != Finding::Unresponsive {
            // One round in which the delay responds is enough to show that the queue is this flow's
            // own.
            (self.unresponsive_rounds, self.testing) = (0, false);
            return None;
        }
        if self.unresponsive_rounds == 0 && !self.testing {
            self.before = window;
        }
        self.unresponsive_rounds += 1;
        if self.unresponsive_rounds >= UNRESPONSIVE_ROUNDS_MAX {
            // Begin like a new flow: it must take its part of a full queue, and a long path has
            // room.
            let cubic = match self.testing {
                true => Cubic::resume(limits, self.before),
                false => Cubic::new(Limits { first: limits.clamp(self.before), ..limits }),
            };
            self.contest = Some(Contest { cubic, test_at: now + self.interval });
        }
        None
    }

    /// Forgets everything and begins anew.
    pub fn forget(&mut self) {
        *self = Competition::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_stubborn_rounds_begin_it_and_calm_or_time_ends_it() {
        let limits = Limits::new(1000, 1 << 30);
        let mut rivals = Competition::new();
        for _ in 0..5 {
            rivals.round(Time(0), Finding::Unresponsive, 100_000, limits);
        }
        rivals.round(Time(0), Finding::Mixed, 10_000, limits);
        for _ in 0..6 {
            assert!(rivals.contest().is_none());
            assert_eq!(rivals.round(Time(0), Finding::Unresponsive, 50_000, limits), None);
        }
        assert_eq!(rivals.contest().map(Controller::window), Some(50_000));
        let tested = Time(0) + TEST_MIN;
        assert_eq!(rivals.round(Time(1), Finding::Mixed, 0, limits), None);
        assert_eq!(
            rivals.round(tested, Finding::Unresponsive, 0, limits),
            Some(50_000),
            "put to the test"
        );
        for _ in 0..6 {
            rivals.round(tested, Finding::Unresponsive, 5000, limits);
        }
        assert_eq!(
            rivals.contest().map(Controller::window),
            Some(50_000),
            "it still does not obey"
        );
        assert_eq!(rivals.round(tested, Finding::Calm, 0, limits), Some(50_000));
        assert!(rivals.contest().is_none());
    }
}
