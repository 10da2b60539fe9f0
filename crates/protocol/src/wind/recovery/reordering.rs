//! Reordering window: how much reordering is tolerated (WIND-5.3; RFC 8985, section 6.2, step 4).

use super::rtt::RoundTrip;
use crate::limits::{REORDERING_CALM, REORDERING_MIN, REORDERING_THRESHOLD};
use crate::time::Time;
use core::time::Duration;

/// Maximum number of doublings that fits the factor. The smoothed round trip bounds the window long
/// before.
const DOUBLINGS_MAX: u32 = 31;

#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct Reordering {
    /// Whether the path reorders, so that only time proves a loss and overtaking does not.
    seen: bool,
    doublings: u32,
    /// Time before which the window may not double again.
    widen_after: Time,
    /// Events of loss since the last sign of reordering.
    calm: u32,
}

impl Reordering {
    /// Returns how much longer than the overtaker's round trip a datagram may take.
    pub fn window(&self, rtt: &RoundTrip) -> Duration {
        let quarter = rtt.least() / 4;
        let most = rtt.smoothed().unwrap_or_default().max(REORDERING_MIN);
        quarter.saturating_mul(1 << self.doublings).clamp(REORDERING_MIN, most)
    }

    /// Returns how many overtaking datagrams prove a loss at once, if any number does.
    pub fn threshold(&self) -> Option<u64> {
        (!self.seen).then_some(REORDERING_THRESHOLD)
    }

    /// Notes that a datagram was acknowledged after one sent later.
    pub fn seen(&mut self) {
        (self.seen, self.calm) = (true, 0);
    }

    /// Doubles the window, because a datagram was declared lost by time and had not been.
    pub fn widen(&mut self, rtt: &RoundTrip, now: Time) {
        self.seen();
        if now >= self.widen_after {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
            self.widen_after = now + rtt.smoothed().unwrap_or_default();
        }
    }

    /// Counts an event of loss: datagrams were lost for the first time in a round trip.
    pub fn event(&mut self) {
        self.calm += 1;
        if self.calm >= REORDERING_CALM {
            (self.seen, self.doublings, self.calm) = (false, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn measured(least: u64, then: u64) -> RoundTrip {
        let mut rtt = RoundTrip::default();
        rtt.sample(micros(least), Duration::ZERO);
        for _ in 0..200 {
            rtt.sample(micros(then), Duration::ZERO);
        }
        rtt
    }

    /// WIND-5.3.
    #[test]
    fn a_quarter_of_the_least_round_trip_doubling_up_to_the_smoothed_one() {
        let rtt = measured(100, 190);
        let mut reordering = Reordering::default();
        assert_eq!(reordering.window(&rtt), micros(25));
        assert_eq!(reordering.threshold(), Some(REORDERING_THRESHOLD));
        reordering.seen();
        assert_eq!((reordering.window(&rtt), reordering.threshold()), (micros(25), None));
        reordering.widen(&rtt, Time(0));
        reordering.widen(&rtt, Time(1000));
        assert_eq!(reordering.window(&rtt), micros(50), "once a round trip");
        (1..200).for_each(|n| reordering.widen(&rtt, Time(n * 1_000_000)));
        assert!(
            reordering.window(&rtt).abs_diff(micros(190)) < micros(2),
            "{:?}",
            reordering.window(&rtt)
        );
        assert_eq!(Reordering::default().window(&measured(4, 4)), REORDERING_MIN);
    }

    #[test]
    fn is_forgotten_after_calm() {
        let rtt = measured(100, 100);
        let mut reordering = Reordering::default();
        reordering.widen(&rtt, Time(0));
        (1..REORDERING_CALM).for_each(|_| reordering.event());
        reordering.seen();
        (1..REORDERING_CALM).for_each(|_| reordering.event());
        assert_eq!((reordering.window(&rtt), reordering.threshold()), (micros(50), None));
        reordering.event();
        assert_eq!(reordering.window(&rtt), micros(25));
        assert_eq!(reordering.threshold(), Some(REORDERING_THRESHOLD));
    }
}
