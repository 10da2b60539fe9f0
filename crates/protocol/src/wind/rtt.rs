//! Round-trip estimate (RFC 9002, section 5).

use core::time::Duration;

/// Before the first sample: a LAN with a busy peer.
const INITIAL: Duration = Duration::from_millis(1);

/// Smoothed round-trip time and its variation (WIND-5.1).
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct RoundTrip {
    least: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
}

impl RoundTrip {
    /// A datagram sent `elapsed` ago was acknowledged; the peer says that it held the acknowledgement back for `delay`.
    /// What of it the path took, as far as the peer is believed.
    pub fn sample(&mut self, elapsed: Duration, delay: Duration) -> Duration {
        let Some(smoothed) = self.smoothed else {
            self.least = elapsed;
            self.smoothed = Some(elapsed);
            self.variation = elapsed / 2;
            return elapsed;
        };
        self.least = self.least.min(elapsed);
        // The peer's delay is believed as far as the result stays possible (section 5.3).
        let adjusted = elapsed.checked_sub(delay).filter(|rest| *rest >= self.least).unwrap_or(elapsed);
        self.variation = self.variation * 3 / 4 + smoothed.abs_diff(adjusted) / 4;
        self.smoothed = Some(smoothed * 7 / 8 + adjusted / 8);
        adjusted
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// The shortest seen; zero before the first.
    pub fn least(&self) -> Duration {
        self.least
    }

    /// What hardly any exceeds: smoothed + 4 × variation (RFC 9002, section 6.2.1), and 2 × smoothed (RFC 8985, section 7.2).
    pub fn pessimistic(&self) -> Duration {
        self.smoothed.map_or(INITIAL * 2, |smoothed| (smoothed + self.variation * 4).max(smoothed * 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-5.1.
    #[test]
    fn converges_and_subtracts_the_peers_delay() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.smoothed(), None);
        rtt.sample(Duration::from_micros(100), Duration::ZERO);
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(600), Duration::from_micros(500));
        }
        let smoothed = rtt.smoothed().unwrap();
        assert!(smoothed.abs_diff(Duration::from_micros(100)) < Duration::from_micros(2), "{smoothed:?}");
    }

    /// WIND-5.1.
    #[test]
    fn an_impossible_delay_is_not_believed() {
        let mut rtt = RoundTrip::default();
        rtt.sample(Duration::from_micros(100), Duration::ZERO);
        rtt.sample(Duration::from_micros(200), Duration::from_secs(3));
        assert!(rtt.smoothed().unwrap() > Duration::from_micros(100));
    }
}
