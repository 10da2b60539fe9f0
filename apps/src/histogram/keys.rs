//! Keys to count.

use std::ops::Range;

use oikaze_kernels::histogram;

/// Keys of all rounds. A key is a 64-bit random number, and its bin is the upper part of the key.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Seed of the keys of the first round. The seed of each further round is larger by one.
    pub seed: u64,
    /// Number of keys in one round.
    pub count: u64,
    /// Number of bins.
    pub bins: usize,
}

impl Keys {
    /// Passes the bin of each of these keys of a round to `count`.
    #[inline(always)]
    pub fn each(self, round: u32, keys: Range<u64>, mut count: impl FnMut(usize)) {
        for index in keys {
            count(histogram::bin(self.seed_of(round), index, self.bins));
        }
    }

    /// Counts these keys of a round into `counts`, which has one counter for each bin.
    pub fn count(self, round: u32, keys: Range<u64>, counts: &mut [u64]) {
        histogram::count(self.seed_of(round), keys, &mut counts[..self.bins]);
    }

    /// Returns the seed of a round's keys.
    fn seed_of(self, round: u32) -> u64 {
        self.seed.wrapping_add(round.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_counted_once_in_a_bin_of_the_table() {
        for bins in [1, 3, 4096] {
            let keys = Keys { seed: 5, count: 1000, bins };
            let (mut whole, mut parts) = (vec![0; bins], vec![0; bins]);
            keys.count(2, 0..1000, &mut whole);
            keys.count(2, 0..300, &mut parts);
            keys.count(2, 300..1000, &mut parts);
            assert_eq!(whole, parts);
            assert_eq!(whole.iter().sum::<u64>(), 1000);
        }
    }
}
