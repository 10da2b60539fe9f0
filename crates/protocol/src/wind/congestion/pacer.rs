//! Pacer (WIND-9.8): a leaky bucket without a timer. Sent bytes leak out at the pace. While no more
//! than a burst is left in the bucket, more may be sent.

use crate::limits::{PACING_BURST, PACING_SPAN};
use crate::time::Time;
use core::time::Duration;

/// Nanoseconds in which `rate` bytes leak, as a power of two, so that sending a datagram needs no
/// division.
const UNIT: u32 = 30;
/// Nanoseconds after which the bucket is empty in any case. No product of this and a rate
/// overflows.
const EMPTIES: u64 = 1 << 29;
/// Rate above which there is no pace (34 GB/s).
const RATE_MAX: u64 = 1 << 34;

/// Computes when the next fragment may be sent, as a pure function of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes in the bucket at time `at`.
    debt: u64,
    at: Time,
    /// Bytes per 2³⁰ ns; 0 means no pace.
    rate: u64,
    /// Maximum bytes in the bucket.
    burst: u64,
}

impl Pacer {
    /// Sets the pace to `percent` percent of `window` bytes per round trip from now on. There is no
    /// pace if the window is no more than a burst, because acknowledgements then set the pace.
    pub fn set_pace(&mut self, now: Time, window: u64, percent: u64, round_trip: Duration) {
        let nanos = nanos(round_trip).max(1);
        // 2²⁶ × 2⁸ / 100 × 2³⁰ fits. A larger window has the pace of 64 MiB.
        let part = window.min(1 << 26) * percent.min(1 << 8) / 100;
        // Above the maximum rate there is no pace, whatever the burst. The product below must not
        // overflow for a round trip of zero.
        let rate = Some((part << UNIT) / nanos).filter(|rate| *rate <= RATE_MAX).unwrap_or(0);
        self.burst = PACING_BURST.max((rate * nanos_of_span()) >> UNIT);
        let rate = if window <= self.burst { 0 } else { rate };
        (self.debt, self.at, self.rate) = (self.left(now), now, rate);
    }

    /// Returns the pace in bytes per second; 0 means no pace.
    pub fn pace(&self) -> u64 {
        ((u128::from(self.rate) * 1_000_000_000) >> UNIT) as u64
    }

    /// Called when `bytes` bytes are sent.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        if self.rate > 0 {
            (self.debt, self.at) = (self.left(now) + bytes as u64, now);
        }
    }

    /// Returns `true` if a fragment may be sent now.
    pub fn may_send(&self, now: Time) -> bool {
        self.rate == 0 || self.left(now) <= self.burst
    }

    /// Returns when the next fragment may be sent, unless it might at the time of the last update.
    pub fn release(&self) -> Option<Time> {
        let above =
            self.debt.checked_sub(self.burst).filter(|above| self.rate > 0 && *above > 0)?;
        Some(self.at + Duration::from_nanos((above << UNIT).div_ceil(self.rate)))
    }

    fn left(&self, now: Time) -> u64 {
        match nanos(now - self.at) {
            elapsed if elapsed < EMPTIES && self.rate > 0 => {
                self.debt.saturating_sub((elapsed * self.rate) >> UNIT)
            }
            _ => 0,
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

const fn nanos_of_span() -> u64 {
    PACING_SPAN.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Returns a pacer with a pace of `rate` bytes per second.
    fn at_rate(rate: u64) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set_pace(Time(0), rate / 25, 100, Duration::from_millis(40));
        pacer
    }

    proptest! {
        /// No interval sends more than the pace permits, plus a burst and two datagrams.
        #[test]
        fn the_pace_is_kept(rate in 2_000_000u64..1_500_000_000, pauses in proptest::collection::vec(0u64..3_000_000, 1..50)) {
            let mut pacer = at_rate(rate);
            let mut now = Time(5);
            let mut sent: Vec<Time> = Vec::new();
            for pause in pauses {
                now += Duration::from_nanos(pause);
                while pacer.may_send(now) && sent.len() < 20_000 {
                    pacer.sent(now, 1472);
                    sent.push(now);
                }
                prop_assert!(sent.len() == 20_000 || pacer.release().is_some_and(|at| at > now && pacer.may_send(at)));
            }
            // The excess over the rate, as in a leaky bucket of no depth.
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
            now = pacer.release().unwrap_or(now);
            pacer.sent(now, 1000);
            bytes += 1000;
        }
        assert!((50_000_000..50_200_000).contains(&bytes), "{bytes}");
    }

    /// A pace that becomes faster (because the queue has gone) does not delay fragments for what
    /// was sent at the slower pace.
    #[test]
    fn a_debt_is_bytes_and_not_time() {
        let mut pacer = at_rate(4_000_000);
        while pacer.may_send(Time(0)) {
            pacer.sent(Time(0), 1000);
        }
        assert!(pacer.release().is_some());
        let soon = Time(100_000);
        pacer.set_pace(soon, 10 << 20, 100, Duration::from_millis(10));
        assert!(pacer.may_send(soon));
    }

    #[test]
    fn before_the_first_round_trip_there_is_no_pace() {
        let mut pacer = Pacer::default();
        (0..1000).for_each(|_| pacer.sent(Time(7), 9000));
        assert!(pacer.may_send(Time(7)));
    }
}
