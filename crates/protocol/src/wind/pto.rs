//! Probe timeout (WIND-5.4; tail probes as in RFC 8985, section 7, then RFC 9002, section 6.2): nothing was acknowledged for so long
//! that the oldest data is sent again.

use super::rtt::RoundTrip;
use crate::limits::{ACK_DELAY, ACK_HOLD, PROBE_MAX, PROBE_MIN};
use core::time::Duration;

/// So many timeouts in a row are probes of the tail; at the next one all in flight counts as lost.
pub(super) const TAIL_PROBES: u32 = 2;

/// How often in a row the timer ran out.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Probe {
    in_a_row: u32,
    /// The longest, on a path that is not itself slower …
    most: Duration,
    /// … and on one that is.
    most_of_all: Duration,
}

impl Probe {
    /// Several probes must fit into the failure time, or heavy loss would look like death.
    pub fn new(failure_time: Duration) -> Probe {
        let most = PROBE_MAX.min(failure_time / 20).max(PROBE_MIN);
        Probe { in_a_row: 0, most, most_of_all: most.max(failure_time / 8) }
    }

    /// After the latest datagram that must be acknowledged; did that one ask for it at once?
    pub fn timeout(&self, rtt: &RoundTrip, asked: bool) -> Duration {
        let base = Self::base(rtt, asked);
        // A slow path's base may itself be longer than the cap on doubling. But what was measured while a peer stood still may not put
        // off probes for as long as it takes to call it dead.
        base.saturating_mul(1 << self.in_a_row.min(16)).min(self.most.max(base)).min(self.most_of_all)
    }

    /// The first of them.
    pub fn base(rtt: &RoundTrip, asked: bool) -> Duration {
        (rtt.pessimistic() + if asked { ACK_HOLD } else { ACK_DELAY }).max(PROBE_MIN)
    }

    pub fn ran_out(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// Has everything that was in flight been given up, and nothing been acknowledged since?
    pub fn has_given_up(&self) -> bool {
        self.in_a_row > TAIL_PROBES
    }

    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Something was acknowledged.
    pub fn answered(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-5.4.
    #[test]
    fn doubles_from_what_was_measured_to_a_hundred_milliseconds() {
        let mut rtt = RoundTrip::default();
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(50), Duration::ZERO);
        }
        let mut probe = Probe::new(Duration::from_secs(5));
        let first = probe.timeout(&rtt, true);
        assert!(first.abs_diff(Duration::from_micros(100) + ACK_HOLD) < Duration::from_micros(1), "{first:?}");
        assert_eq!(probe.timeout(&rtt, false), first - ACK_HOLD + ACK_DELAY);
        probe.ran_out();
        assert_eq!(probe.timeout(&rtt, true), first * 2);
        (0..50).for_each(|_| probe.ran_out());
        assert_eq!(probe.timeout(&rtt, true), PROBE_MAX);
        assert!(probe.has_given_up());
        probe.answered();
        assert_eq!(probe.timeout(&rtt, true), first);
    }

    #[test]
    fn a_jittery_path_is_given_its_variation_and_a_slow_one_its_time() {
        let mut jittery = RoundTrip::default();
        for n in 0..200u64 {
            jittery.sample(Duration::from_micros(20 + 180 * (n % 2)), Duration::ZERO);
        }
        assert!(Probe::base(&jittery, true) > Duration::from_micros(400), "{:?}", Probe::base(&jittery, true));
        let mut slow = RoundTrip::default();
        slow.sample(Duration::from_millis(300), Duration::ZERO);
        assert!(Probe::new(Duration::from_secs(5)).timeout(&slow, true) >= Duration::from_millis(600));
        let mut quick = RoundTrip::default();
        for _ in 0..200 {
            quick.sample(Duration::from_micros(5), Duration::ZERO);
        }
        assert_eq!(Probe::base(&quick, true), PROBE_MIN);
    }
}
