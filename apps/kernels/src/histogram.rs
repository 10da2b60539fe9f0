//! Histogram of random keys: counts of keys, and the fullest bin.

use std::ops::Range;

use crate::random::random;

/// Returns the bin of key number `index` of the sequence of `seed`. A key is a 64-bit random
/// number, and its bin is the upper part of the key.
#[inline]
#[must_use]
pub const fn bin(seed: u64, index: u64, bins: usize) -> usize {
    ((random(seed, index) as u128 * bins as u128) >> u64::BITS) as usize
}

/// Counts these keys of the sequence of `seed` into `counts`, which has one counter for each bin.
#[inline]
pub fn count(seed: u64, keys: Range<u64>, counts: &mut [u64]) {
    for index in keys {
        counts[bin(seed, index, counts.len())] += 1;
    }
}

/// Returns the first of the fullest bins, and its count.
#[inline]
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
    fn first_of_equally_full_bins_is_the_fullest() {
        assert_eq!(fullest(&[1, 7, 3, 7]), [1, 7]);
    }
}
