//! Probe timeout (WIND-5.4; RFC 9002, section 6.2): nothing was acknowledged for so long that the oldest data is sent again.

use super::rtt::RoundTrip;
use crate::limits::{ACK_DELAY, PROBE_MAX, PROBE_MIN};
use core::time::Duration;

/// How often in a row the timer ran out.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Probe {
    in_a_row: u32,
    most: Duration,
}

impl Probe {
    /// Several probes must fit into the failure time, or heavy loss would look like death.
    pub fn new(failure_time: Duration) -> Probe {
        Probe { in_a_row: 0, most: PROBE_MAX.min(failure_time / 20).max(PROBE_MIN) }
    }

    /// After the latest datagram that must be acknowledged.
    pub fn timeout(&self, rtt: &RoundTrip) -> Duration {
        let base = (rtt.pessimistic() + ACK_DELAY).max(PROBE_MIN);
        // A slow path's base may itself be longer than the cap on doubling.
        base.saturating_mul(1 << self.in_a_row.min(16)).min(self.most.max(base))
    }

    pub fn ran_out(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
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

    #[test]
    fn doubles_from_two_milliseconds_to_a_hundred() {
        let mut rtt = RoundTrip::default();
        rtt.sample(Duration::from_micros(50), Duration::ZERO);
        let mut probe = Probe::new(Duration::from_secs(5));
        assert_eq!(probe.timeout(&rtt), PROBE_MIN);
        probe.ran_out();
        assert_eq!(probe.timeout(&rtt), PROBE_MIN * 2);
        (0..50).for_each(|_| probe.ran_out());
        assert_eq!(probe.timeout(&rtt), PROBE_MAX);
        probe.answered();
        assert_eq!(probe.timeout(&rtt), PROBE_MIN);
    }

    #[test]
    fn a_slow_path_is_waited_for() {
        let mut rtt = RoundTrip::default();
        rtt.sample(Duration::from_millis(300), Duration::ZERO);
        assert!(Probe::new(Duration::from_secs(5)).timeout(&rtt) >= Duration::from_millis(300));
    }
}
