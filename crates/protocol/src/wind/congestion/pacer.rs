//! Not faster than (WIND-9.8): the virtual scheduling algorithm (ITU-T I.371, appendix; a leaky bucket without a timer).

use crate::limits::{PACING_BURST, PACING_SPAN};
use crate::time::Time;
use core::time::Duration;

/// When the next fragment may go, as a pure function of what went. No divisions where datagrams go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    /// When all that went would have gone at the pace. May lie ahead of the present by the time of one burst.
    through: Time,
    /// How far ahead.
    tolerance: Duration,
    /// Nanoseconds for [`PACING_BURST`] bytes; 0: no pace.
    pace: u64,
}

impl Pacer {
    /// So many percent of `window` bytes a round trip, from now on.
    pub fn set_pace(&mut self, window: u64, percent: u64, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX).saturating_mul(100);
        self.pace = nanos.saturating_mul(PACING_BURST) / window.saturating_mul(percent).max(1);
        self.tolerance = PACING_SPAN.max(Duration::from_nanos(self.pace));
    }

    /// `bytes` go now.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        self.through = self.through.max(now) + Duration::from_nanos(self.pace.saturating_mul(bytes as u64) / PACING_BURST);
    }

    /// When the next may go: past, if it may go now.
    pub fn release(&self) -> Time {
        Time(self.through.0.saturating_sub(u64::try_from(self.tolerance.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// May it go now?
    pub fn may_send(&self, now: Time) -> bool {
        self.release() <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// So many bytes a second.
    fn at_rate(rate: u64) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set_pace(rate / 100, 100, Duration::from_millis(10));
        pacer
    }

    proptest! {
        /// In no span goes more than the pace allows, a burst and two datagrams.
        #[test]
        fn the_pace_is_kept(rate in 1_000_000u64..2_000_000_000, pauses in proptest::collection::vec(0u64..3_000_000, 1..50)) {
            let mut pacer = at_rate(rate);
            let mut now = Time(5);
            let mut sent: Vec<Time> = Vec::new();
            for pause in pauses {
                now += Duration::from_nanos(pause);
                while pacer.may_send(now) && sent.len() < 20_000 {
                    pacer.sent(now, 1472);
                    sent.push(now);
                }
                prop_assert!(sent.len() == 20_000 || pacer.release() > now);
            }
            // The excess over the rate, as a leaky bucket of no depth sees it.
            let (mut excess, mut last, mut most) = (0f64, Time(0), 0f64);
            for at in sent {
                excess = (excess - (at - last).as_secs_f64() * rate as f64).max(0.0) + 1472.0;
                (last, most) = (at, most.max(excess));
            }
            let burst = PACING_BURST.max(rate / 1000) as f64;
            prop_assert!(most <= burst * 1.01 + 2.0 * 1472.0, "{most} above {rate}");
        }
    }

    #[test]
    fn who_waits_for_the_release_gets_the_whole_rate() {
        let (mut pacer, mut now, mut bytes) = (at_rate(50_000_000), Time(0), 0u64);
        while now < Time(1_000_000_000) {
            now = now.max(pacer.release());
            pacer.sent(now, 1000);
            bytes += 1000;
        }
        assert!((50_000_000..50_200_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn before_the_first_round_trip_there_is_no_pace() {
        let mut pacer = Pacer::default();
        (0..1000).for_each(|_| pacer.sent(Time(7), 9000));
        assert!(pacer.may_send(Time(7)));
    }
}
