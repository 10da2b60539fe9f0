//! Datagram numbers that a lane leaves out. Only a peer that acknowledges what it has not received
//! acknowledges such a number (WIND-7.11).
//!
//! A peer that acknowledges early makes its sender send faster than the path allows (Savage et al.,
//! TCP Congestion Control with a Misbehaving Receiver, 1999). RFC 9000, section 21.4, advises to
//! skip numbers, and quinn does it at growing distances, too.

use crate::limits::DATAGRAM_NUMBER_MAX;
use crate::random::Random;
use core::hash::{Hash, Hasher};

/// Least distance between two skipped numbers.
const DISTANCE_MIN: u64 = 64;
/// Greatest least distance between two skipped numbers. The distance doubles until then.
const DISTANCE_MAX: u64 = 1 << 16;

/// Chooses the numbers to skip.
#[derive(Clone, Debug)]
pub(super) struct Skips {
    random: Random,
    distance: u64,
    /// Next number to skip, or 0 if none is ever skipped.
    next: u64,
    /// Latest skipped number, or 0.
    latest: u64,
}

impl Skips {
    /// Starts with a seed that the peer cannot know. Seed 0 skips nothing.
    pub fn new(seed: u64) -> Skips {
        let mut skips =
            Skips { random: Random::new(seed), distance: DISTANCE_MIN, next: 0, latest: 0 };
        if seed != 0 {
            skips.next = skips.after(0);
        }
        skips
    }

    fn after(&mut self, number: u64) -> u64 {
        number + self.distance + self.random.below(self.distance as usize) as u64
    }

    /// Returns `true` if the next datagram is not to have this number.
    pub fn skip(&mut self, number: u64) -> bool {
        let is_near_end = number > DATAGRAM_NUMBER_MAX - DISTANCE_MAX;
        let skips = self.next != 0 && number >= self.next && !is_near_end;
        if skips {
            self.latest = number;
            self.distance = (self.distance * 2).min(DISTANCE_MAX);
            self.next = self.after(number);
        }
        skips
    }

    /// Returns the latest skipped number.
    pub fn latest(&self) -> Option<u64> {
        (self.latest != 0).then_some(self.latest)
    }
}

/// Hashes nothing. The exhaustive model skips no number.
impl Hash for Skips {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn distances_grow_to_a_limit_and_depend_on_the_seed() {
        let skipped = |seed| -> Vec<u64> {
            let mut skips = Skips::new(seed);
            (1..1_000_000).filter(|number| skips.skip(*number)).collect()
        };
        let first = skipped(1);
        let mut least = DISTANCE_MIN;
        for pair in [0].iter().chain(&first).collect::<Vec<_>>().windows(2) {
            let distance = pair[1] - pair[0];
            assert!((least..2 * least).contains(&distance), "{distance} after {least}");
            least = (2 * least).min(DISTANCE_MAX);
        }
        assert!(first.len() > 15, "{first:?}");
        assert_ne!(first, skipped(2));
        assert!(skipped(0).is_empty());
    }
}
