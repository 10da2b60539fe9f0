//! Log-linear histogram of durations, whose bucket width grows with the value, like Gil Tene's
//! HdrHistogram. It is small enough to have one for each peer.
//!
//! Below two microseconds a bucket is 128 ns wide. From there on each doubling is cut into eight
//! buckets. The value reported for a bucket differs from a recorded one by at most a sixteenth.

use crate::time::Time;
use alloc::boxed::Box;
use core::hash::{Hash, Hasher};
use core::time::Duration;

/// Width of the finest bucket, in bits: 128 ns.
const UNIT_BITS: u32 = 7;
/// Number of buckets in each doubling, in bits.
const CUT_BITS: u32 = 3;
const CUT: usize = 1 << CUT_BITS;
/// Number of doublings beyond the first. Longer durations (beyond 17 s) count in the last bucket.
const DOUBLINGS: usize = 24;

/// Cumulative counts of durations, and the longest duration.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; Histogram::BUCKETS],
    halvings: u32,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; Histogram::BUCKETS], halvings: 0, longest: 0 }
    }
}

impl Histogram {
    /// Number of buckets of every histogram.
    pub const BUCKETS: usize = CUT * (DOUBLINGS + 1);

    /// Creates a histogram from the values of [`counts`](Self::counts),
    /// [`halvings`](Self::halvings) and [`longest`](Self::longest).
    #[must_use]
    pub fn from_parts(
        counts: [u32; Histogram::BUCKETS],
        halvings: u32,
        longest: Duration,
    ) -> Histogram {
        Histogram { counts, halvings, longest: nanos(longest) }
    }

    /// Counts one duration.
    pub fn record(&mut self, span: Duration) {
        self.count(nanos(span));
    }

    fn count(&mut self, span: u64) {
        self.longest = self.longest.max(span);
        let Some(count) = self.counts.get_mut(bucket(span)) else { return };
        *count += 1;
        if *count == u32::MAX {
            // The shares stay as they are. A reader that compares two states learns of it (see
            // `since`).
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.halvings = self.halvings.wrapping_add(1);
        }
    }

    /// Returns the number of durations in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u32; Histogram::BUCKETS] {
        &self.counts
    }

    /// Returns how often all counts were halved because one of them was about to overflow.
    #[must_use]
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// Returns the longest recorded duration, exactly.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Returns the number of durations counted, which is less after a halving.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns `true` if nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Returns the duration that `hundredths` of a percent of all durations do not exceed (nearest
    /// rank: 9990 is p99.9). The result is within a sixteenth of its value or 64 ns, and exact for
    /// 10,000. Returns `None` if nothing was counted.
    #[must_use]
    pub fn percentile(&self, hundredths: u32) -> Option<Duration> {
        let total = self.len();
        if total == 0 {
            return None;
        }
        let rank = (u128::from(total) * u128::from(hundredths.min(10_000))).div_ceil(10_000).max(1);
        if rank == u128::from(total) {
            return Some(self.longest());
        }
        let mut below = 0u128;
        let at = self.counts.iter().position(|count| {
            below += u128::from(*count);
            below >= rank
        })?;
        Some(Duration::from_nanos(middle(at).min(self.longest)))
    }

    /// Returns what was counted since `earlier`, an older copy of the same histogram. Its longest
    /// duration is only known to within its bucket.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let shift = self.halvings.wrapping_sub(earlier.halvings);
        let mut since = Histogram::default();
        let mut last = None;
        for (at, (count, (now, before))) in
            since.counts.iter_mut().zip(self.counts.iter().zip(&earlier.counts)).enumerate()
        {
            *count = now.saturating_sub(before.checked_shr(shift).unwrap_or(0));
            last = if *count > 0 { Some(at) } else { last };
        }
        let end = last
            .map_or(0, |at| if at + 1 < Histogram::BUCKETS { lowest(at + 1) } else { u64::MAX });
        since.longest = end.min(self.longest);
        since
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let at = |hundredths| self.percentile(hundredths).unwrap_or_default();
        write!(
            f,
            "{} spans: p50 {:?}, p99 {:?}, longest {:?}",
            self.len(),
            at(5000),
            at(9900),
            self.longest()
        )
    }
}

/// Histogram that allocates with its first duration, so that an idle peer costs one pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency(Option<Box<Histogram>>);

/// Hashes nothing, because measurements decide nothing: states that differ only in them are equal
/// to a model.
impl Hash for Latency {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Latency {
    /// Counts one duration.
    pub fn record(&mut self, span: Duration) {
        self.0.get_or_insert_default().record(span);
    }

    /// Counts the time between `from` and `to`.
    pub fn record_between(&mut self, from: Time, to: Time) {
        // Avoids the conversion to seconds and back.
        self.0.get_or_insert_default().count(to.0.saturating_sub(from.0));
    }

    /// Returns the histogram, if anything was counted.
    #[must_use]
    pub fn histogram(&self) -> Option<&Histogram> {
        self.0.as_deref()
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the bucket of a duration in nanoseconds.
fn bucket(span: u64) -> usize {
    let units = span >> UNIT_BITS;
    let doubling = (units | CUT as u64).ilog2() - CUT_BITS;
    let at = (doubling as usize) * CUT + (units >> doubling) as usize;
    at.min(Histogram::BUCKETS - 1)
}

/// Returns the shortest duration counted in a bucket, in nanoseconds.
fn lowest(at: usize) -> u64 {
    let doubling = (at / CUT).saturating_sub(1);
    ((at - doubling * CUT) as u64) << doubling << UNIT_BITS
}

/// Returns the value reported for a bucket, in nanoseconds.
fn middle(at: usize) -> u64 {
    lowest(at) + (lowest(at + 1) - lowest(at)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn of(spans: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        spans.iter().for_each(|span| histogram.record(Duration::from_nanos(*span)));
        histogram
    }

    /// Returns the value of the nearest rank in a sorted list.
    fn oracle(sorted: &[u64], hundredths: u64) -> u64 {
        let rank = (sorted.len() as u64 * hundredths).div_ceil(10_000).max(1);
        sorted[rank as usize - 1]
    }

    /// Durations of all magnitudes alike, up to the 17 s that have buckets of their own.
    fn spans() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            (0..34u32, any::<u64>()).prop_map(|(bits, value)| value & ((2 << bits) - 1)),
            1..400,
        )
    }

    fn is_near(found: Duration, right: u64) -> bool {
        found.abs_diff(Duration::from_nanos(right)) <= Duration::from_nanos((right / 16).max(64))
    }

    proptest! {
        #[test]
        fn percentiles_are_within_a_sixteenth(mut spans in spans(), hundredths in 0..=10_000u32) {
            let histogram = of(&spans);
            spans.sort_unstable();
            let (found, right) = (histogram.percentile(hundredths).unwrap(), oracle(&spans, u64::from(hundredths)));
            prop_assert!(is_near(found, right), "{found:?} for {right}");
            prop_assert_eq!(histogram.percentile(10_000), Some(Duration::from_nanos(*spans.last().unwrap())));
            prop_assert_eq!(histogram.len(), spans.len() as u64);
            let again = Histogram::from_parts(*histogram.counts(), histogram.halvings(), histogram.longest());
            prop_assert_eq!(again, histogram);
        }

        #[test]
        fn what_came_since_is_told(before in spans(), mut after in spans(), hundredths in 0..10_000u32) {
            let earlier = of(&before);
            let mut later = earlier.clone();
            after.iter().for_each(|span| later.record(Duration::from_nanos(*span)));
            let since = later.since(&earlier);
            after.sort_unstable();
            prop_assert_eq!(since.len(), after.len() as u64);
            let (found, right) = (since.percentile(hundredths).unwrap(), oracle(&after, u64::from(hundredths)));
            // The last rank is reported as the end of its bucket.
            prop_assert!(found.abs_diff(Duration::from_nanos(right)) <= Duration::from_nanos((right / 8).max(128)));
        }

        #[test]
        fn buckets_follow_each_other(span in 0..(1u64 << 34)) {
            let at = bucket(span);
            prop_assert!(lowest(at) <= span && span < lowest(at + 1));
        }
    }

    #[test]
    fn nothing_and_too_much() {
        assert_eq!(Histogram::default().percentile(5000), None);
        let histogram = of(&[u64::MAX]);
        assert_eq!(histogram.percentile(5000), Some(Duration::from_nanos(u64::MAX)));
        assert_eq!((bucket(u64::MAX), bucket(0)), (Histogram::BUCKETS - 1, 0));
    }

    #[test]
    fn a_full_bucket_halves_them_all_and_since_knows() {
        let mut counts = [0; Histogram::BUCKETS];
        (counts[100], counts[150]) = (u32::MAX - 1, 1000);
        let mut histogram = Histogram::from_parts(counts, 0, Duration::from_nanos(lowest(150)));
        let earlier = histogram.clone();
        (0..11).for_each(|_| histogram.record(Duration::from_nanos(lowest(100))));
        assert_eq!((histogram.halvings(), histogram.counts()[150]), (1, 500));
        assert_eq!(histogram.since(&earlier).len(), 10);
    }

    #[test]
    fn an_idle_peer_costs_a_pointer() {
        assert_eq!(size_of::<Latency>(), size_of::<usize>());
        assert!(size_of::<Histogram>() <= 1024);
        let mut latency = Latency::default();
        assert_eq!(latency.histogram(), None);
        latency.record(Duration::from_micros(3));
        assert_eq!(latency.histogram().map(Histogram::len), Some(1));
    }
}
