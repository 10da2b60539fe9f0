//! Black hole detection (RFC 8899, section 4.3): counts acknowledged and lost datagrams by size, as
//! evidence about the path MTU (WIND-8.3).

use crate::limits::DATAGRAM_MIN;
use arrayvec::ArrayVec;

/// Counts of datagrams since the last query, without size probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeEvidence {
    /// Number of datagrams acknowledged.
    pub acked: u32,
    /// Bytes of the longest acknowledged datagram.
    pub longest_acked: usize,
    /// Large datagrams lost while no later one of at least their length was acknowledged.
    pub large_lost: u32,
    /// Bytes of the shortest of these lost datagrams.
    pub least_lost: usize,
    /// Other datagrams lost.
    pub lost: u32,
}

impl Default for SizeEvidence {
    fn default() -> SizeEvidence {
        SizeEvidence { acked: 0, longest_acked: 0, large_lost: 0, least_lost: usize::MAX, lost: 0 }
    }
}

/// Collects [`SizeEvidence`] by size.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlackHoleDetector {
    seen: SizeEvidence,
    arrived: Arrived,
}

impl BlackHoleDetector {
    /// Counts an acknowledged datagram.
    #[inline]
    pub fn acked(&mut self, number: u64, bytes: u32) {
        self.seen.acked += 1;
        self.seen.longest_acked = self.seen.longest_acked.max(bytes as usize);
        if bytes as usize > DATAGRAM_MIN {
            self.arrived.note(number, bytes);
        }
    }

    /// Counts a datagram that was overtaken and is lost.
    pub fn lost(&mut self, number: u64, bytes: u32) {
        if bytes as usize > DATAGRAM_MIN && self.arrived.longest_after(number) < bytes {
            self.seen.large_lost += 1;
            self.seen.least_lost = self.seen.least_lost.min(bytes as usize);
        } else {
            self.seen.lost += 1;
        }
    }

    pub fn take(&mut self) -> SizeEvidence {
        core::mem::take(&mut self.seen)
    }
}

/// Hashes nothing, because the detector decides neither what is sent nor what is accepted. To a
/// model, states that differ only in it are equal.
impl core::hash::Hash for BlackHoleDetector {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Lengths of the datagrams that arrived, by number. Numbers ascend and lengths descend. A datagram
/// that is older than another and not longer is irrelevant.
#[derive(Clone, Debug, Default)]
struct Arrived(ArrayVec<(u64, u32), 8>);

impl Arrived {
    #[inline]
    fn note(&mut self, number: u64, bytes: u32) {
        // One acknowledgement reports many equally long datagrams, the latest first.
        if self.0.last().is_none_or(|latest| latest.0 < number || latest.1 < bytes) {
            self.insert(number, bytes);
        }
    }

    fn insert(&mut self, number: u64, bytes: u32) {
        if self.longest_after(number) >= bytes {
            return;
        }
        self.0.retain(|earlier| earlier.0 > number || earlier.1 > bytes);
        if self.0.is_full() {
            self.0.remove(0);
        }
        let at = self.0.partition_point(|earlier| earlier.0 < number);
        self.0.insert(at, (number, bytes));
    }

    fn longest_after(&self, number: u64) -> u32 {
        self.0.iter().find(|later| later.0 > number).map_or(0, |later| later.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The answer never exceeds what arrived, and is exact while there are few lengths.
        #[test]
        fn the_longest_after(arrivals in prop::collection::vec(0..60u32, 0..60), factor in 1..60u32, lengths in 1..20u32) {
            let bytes = |number: u32| 2000 + number * factor % lengths;
            let mut arrived = Arrived::default();
            for (n, number) in arrivals.iter().enumerate() {
                arrived.note(u64::from(*number), bytes(*number));
                for ask in 0..60 {
                    let known = arrivals.iter().take(n + 1).filter(|at| **at > ask);
                    let longest = known.map(|at| bytes(*at)).max().unwrap_or(0);
                    let answer = arrived.longest_after(u64::from(ask));
                    prop_assert!(if lengths <= 8 { answer == longest } else { answer <= longest }, "{answer} {longest}");
                }
            }
        }
    }

    /// Packed datagrams never arrive, while shorter fragments all do.
    #[test]
    fn longer_ones_that_are_lost_beside_shorter_ones_that_are_not() {
        let mut witness = BlackHoleDetector::default();
        for number in 0..30 {
            if number % 10 == 0 {
                witness.lost(number, 8952);
            } else {
                witness.acked(number, 8248);
            }
        }
        witness.lost(5, 100);
        witness.lost(6, 8000);
        let expected = SizeEvidence {
            acked: 27,
            longest_acked: 8248,
            large_lost: 3,
            least_lost: 8952,
            lost: 2,
        };
        assert_eq!(witness.take(), expected);
        assert_eq!(witness.take(), SizeEvidence::default());
    }
}
