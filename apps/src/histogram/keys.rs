//! Keys to count, and the fullest bin of a histogram.

use std::ops::Range;

use oikaze_apps::random;

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
        let seed = self.seed.wrapping_add(round.into());
        for index in keys {
            let bin = (u128::from(random(seed, index)) * self.bins as u128) >> u64::BITS;
            count(bin as usize);
        }
    }

    /// Counts these keys of a round into `counts`, which has one counter for each bin.
    #[inline(never)]
    pub fn count(self, round: u32, keys: Range<u64>, counts: &mut [u64]) {
        self.each(round, keys, |bin| counts[bin] += 1);
    }
}

/// Returns the first of the fullest bins, and its count.
#[must_use]
pub fn fullest(counts: &[u64]) -> [u64; 2] {
    let most = counts.iter().copied().max().unwrap_or(0);
    let bin = counts.iter().position(|&count| count == most).unwrap_or(0);
    [bin as u64, most]
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

    #[test]
    fn first_of_equally_full_bins_is_the_fullest() {
        assert_eq!(fullest(&[1, 7, 3, 7]), [1, 7]);
    }
}
