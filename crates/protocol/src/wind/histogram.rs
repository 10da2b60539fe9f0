//! Spans of time, counted in buckets whose width grows with their value: a log-linear histogram as
//! Gil Tene's HdrHistogram, small enough to have one for each peer.
//!
//! Below two microseconds a bucket is 128 ns wide; from there on each doubling is cut into eight.
//! What a bucket stands for is at most a sixteenth away from what was recorded.

use crate::time::Time;
use alloc::boxed::Box;
use core::hash::{Hash, Hasher};
use core::time::Duration;

/// The finest difference told, in bits: 128 ns.
const UNIT_BITS: u32 = 7;
/// Buckets that a doubling is cut into, in bits.
const CUT_BITS: u32 = 3;
const CUT: usize = 1 << CUT_BITS;
/// Doublings told apart beyond the first; what exceeds them (17 s) counts with the last bucket.
const DOUBLINGS: usize = 24;

/// Counts of spans of time, cumulative, and the longest of them.
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
    /// Buckets of every histogram.
    pub const BUCKETS: usize = CUT * (DOUBLINGS + 1);

    /// From what [`counts`](Self::counts), [`halvings`](Self::halvings) and
    /// [`longest`](Self::longest) said.
    #[must_use]
    pub fn from_parts(
        counts: [u32; Histogram::BUCKETS],
        halvings: u32,
        longest: Duration,
    ) -> Histogram {
        Histogram { counts, halvings, longest: nanos(longest) }
    }

    /// Count one span.
    pub fn record(&mut self, span: Duration) {
        self.count(nanos(span));
    }

    fn count(&mut self, span: u64) {
        self.longest = self.longest.max(span);
        let Some(count) = self.counts.get_mut(bucket(span)) else { return };
        *count += 1;
        if *count == u32::MAX {
            // Shares stay as they are; who compares two looks is told (see `since`).
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.halvings = self.halvings.wrapping_add(1);
        }
    }

    /// How many spans lie in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u32; Histogram::BUCKETS] {
        &self.counts
    }

    /// How often all counts were halved because one of them was about to overflow.
    #[must_use]
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// The longest span recorded, exactly.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// How many spans were counted (fewer after a halving).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Nothing counted?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// The span that `hundredths` of a percent of all spans do not exceed (nearest rank: 9990 is
    /// p99.9), within a sixteenth of its value or 64 ns, and 10,000 exactly. `None` if there are
    /// none.
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

    /// What was counted since `earlier`, an older look at the same histogram. Its longest span is
    /// only known to its bucket.
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

/// A histogram that takes memory with its first span: an idle peer costs a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency(Option<Box<Histogram>>);

/// What was measured decides nothing: two states that differ in it only are one.
impl Hash for Latency {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Latency {
    /// Count one span.
    pub fn record(&mut self, span: Duration) {
        self.0.get_or_insert_default().record(span);
    }

    /// Count the span between two moments.
    pub fn record_between(&mut self, from: Time, to: Time) {
        // Without the detour by way of seconds.
        self.0.get_or_insert_default().count(to.0.saturating_sub(from.0));
    }

    /// What was counted, if anything.
    #[must_use]
    pub fn histogram(&self) -> Option<&Histogram> {
        self.0.as_deref()
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a span of so many nanoseconds is counted.
fn bucket(span: u64) -> usize {
    let units = span >> UNIT_BITS;
    let doubling = (units | CUT as u64).ilog2() - CUT_BITS;
    let at = (doubling as usize) * CUT + (units >> doubling) as usize;
    at.min(Histogram::BUCKETS - 1)
}

/// The shortest span counted in a bucket.
fn lowest(at: usize) -> u64 {
    let doubling = (at / CUT).saturating_sub(1);
    ((at - doubling * CUT) as u64) << doubling << UNIT_BITS
}

/// What a bucket stands for.
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

    /// Nearest rank in a sorted list.
    fn oracle(sorted: &[u64], hundredths: u64) -> u64 {
        let rank = (sorted.len() as u64 * hundredths).div_ceil(10_000).max(1);
        sorted[rank as usize - 1]
    }

    /// All magnitudes alike, up to the 17 s that are told apart.
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
            // The last rank is told by its bucket's end.
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
