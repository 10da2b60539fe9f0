//! Round-trip estimate (RFC 9002, section 5).

use core::time::Duration;

/// Estimate before the first sample, for a LAN with a busy peer. All values here are in
/// nanoseconds, because `Duration` would divide at every step.
const INITIAL: u64 = 1_000_000;

/// Smoothed round-trip time and its variation (WIND-5.1).
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct RoundTrip {
    least: u64,
    smoothed: Option<u64>,
    variation: u64,
}

impl RoundTrip {
    /// Takes a sample from a datagram that was sent `elapsed` ago. The peer says that it held the
    /// acknowledgement back for `delay`. Returns the time that the path took, as far as the peer is
    /// believed.
    pub fn sample(&mut self, elapsed: Duration, delay: Duration) -> Duration {
        // Cap at a value that exceeds any real round trip, against overflow.
        let nanos =
            |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).min(1 << 60);
        let (elapsed, delay) = (nanos(elapsed), nanos(delay));
        let Some(smoothed) = self.smoothed else {
            *self = RoundTrip { least: elapsed, smoothed: Some(elapsed), variation: elapsed / 2 };
            return Duration::from_nanos(elapsed);
        };
        self.least = self.least.min(elapsed);
        // The peer's delay counts only if the result stays possible (section 5.3).
        let adjusted =
            elapsed.checked_sub(delay).filter(|rest| *rest >= self.least).unwrap_or(elapsed);
        self.variation = self.variation * 3 / 4 + smoothed.abs_diff(adjusted) / 4;
        self.smoothed = Some(smoothed * 7 / 8 + adjusted / 8);
        Duration::from_nanos(adjusted)
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_nanos)
    }

    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation)
    }

    /// Returns the shortest round trip seen, or zero before the first.
    pub fn least(&self) -> Duration {
        Duration::from_nanos(self.least)
    }

    /// Returns a time that hardly any round trip exceeds: smoothed + 4 × variation (RFC 9002,
    /// section 6.2.1), and at least 2 × smoothed (RFC 8985, section 7.2).
    pub fn pessimistic(&self) -> Duration {
        let nanos = self
            .smoothed
            .map_or(2 * INITIAL, |smoothed| (smoothed + 4 * self.variation).max(2 * smoothed));
        Duration::from_nanos(nanos)
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
        assert!(
            smoothed.abs_diff(Duration::from_micros(100)) < Duration::from_micros(2),
            "{smoothed:?}"
        );
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
