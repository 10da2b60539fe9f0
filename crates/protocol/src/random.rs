//! Reproducible random numbers, for fault injection and tests. They are not secret, so keys and
//! connection ids never come from here.

use alloc::vec::Vec;

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). The same
/// seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number less than `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.next_u64().checked_rem(end as u64).unwrap_or(0) as usize
    }

    /// Returns `true` with this probability. The upper 53 bits are a fraction.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) * (1.0 / (1_u64 << 53) as f64) < probability
    }

    /// Returns one of these values.
    ///
    /// # Panics
    /// There is no value.
    #[allow(clippy::indexing_slicing, reason = "the index is below the length")]
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64() as u8).collect()
    }
}

/// SplitMix64's finaliser: spreads each bit of `value` over all bits of the result.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as other implementations of SplitMix64 publish them.
    #[test]
    fn numbers_of_a_seed_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [0; 3].map(|_: u64| random.next_u64());
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, published);
    }
}
