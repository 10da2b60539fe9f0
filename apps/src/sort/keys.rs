//! Keys to sort, each a pure function of its index, and sums that tell whether they are all there.

use std::ops::Range;

use clap::ValueEnum;
use oikaze_apps::random;

/// Distribution of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// All 64-bit numbers are equally likely.
    Uniform,
    /// All lengths of a number in bits are equally likely: half of the keys are below 2^32, and
    /// small ones are very frequent.
    Skewed,
    /// All keys are equal.
    Equal,
    /// Keys fall from the first to the last one, so that every key goes to another node.
    Falling,
}

impl Distribution {
    /// Returns the name of the option's value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Skewed => "skewed",
            Self::Equal => "equal",
            Self::Falling => "falling",
        }
    }
}

/// Keys of all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Seed of the keys of the first round. The seed of each further round is larger by one.
    pub seed: u64,
    /// Number of keys in one round.
    pub count: usize,
    /// Distribution of the keys.
    pub distribution: Distribution,
}

impl Keys {
    /// Returns one key of a round.
    fn key(self, round: u32, index: usize) -> u64 {
        let seed = self.seed.wrapping_add(round.into());
        let number = random(seed, index as u64);
        match self.distribution {
            Distribution::Uniform => number,
            Distribution::Skewed => number >> (random(!seed, index as u64) % u64::from(u64::BITS)),
            Distribution::Equal => random(seed, 0),
            Distribution::Falling => (self.count - index) as u64,
        }
    }

    /// Returns these keys of a round.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn make(self, round: u32, keys: Range<usize>) -> Result<Vec<u64>, String> {
        let mut made = Vec::new();
        made.try_reserve_exact(keys.len()).map_err(|_| {
            let mebibytes = (keys.len() * size_of::<u64>()).div_ceil(1 << 20);
            format!(
                "{} keys need {mebibytes} MiB of memory three times: choose a smaller --size",
                keys.len()
            )
        })?;
        made.extend(keys.map(|index| self.key(round, index)));
        Ok(made)
    }
}

/// Returns a sum over keys in any order. It differs if a key is lost, repeated or changed.
#[must_use]
pub fn checksum(keys: &[u64]) -> u64 {
    keys.iter().fold(0, |sum: u64, key| sum.wrapping_add(random(*key, 0)))
}

/// Returns a hash of sorted keys, of which the first has this position among the keys of all nodes.
/// Hashes of parts, combined by exclusive or, are the hash of the whole.
#[must_use]
pub fn hash(first: usize, keys: &[u64]) -> u64 {
    (first as u64..).zip(keys).fold(0, |hash, (position, key)| hash ^ random(*key, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(distribution: Distribution) -> Keys {
        Keys { seed: 5, count: 10_000, distribution }
    }

    #[test]
    fn parts_of_keys_are_the_whole() {
        for distribution in Distribution::value_variants() {
            let keys = keys(*distribution);
            let whole = keys.make(2, 0..10_000).unwrap();
            let parts = [0..300, 300..10_000].map(|part| keys.make(2, part).unwrap());
            assert_eq!(parts.concat(), whole);
            assert_eq!(hash(0, &whole), hash(0, &parts[0]) ^ hash(300, &parts[1]));
        }
    }

    #[test]
    fn lengths_of_skewed_keys_are_equally_frequent() {
        let made = keys(Distribution::Skewed).make(0, 0..10_000).unwrap();
        let below = |bits: u32| made.iter().filter(|key| **key < 1 << bits).count();
        assert!((4800..5200).contains(&below(32)), "{}", below(32));
        assert!((1100..1400).contains(&below(8)), "{}", below(8));
    }

    #[test]
    fn checksum_sees_what_is_lost_repeated_or_changed_and_not_the_order() {
        let sum = checksum(&[1, 2, 3]);
        assert_eq!(checksum(&[3, 1, 2]), sum);
        for wrong in [&[1, 2][..], &[1, 2, 3, 3], &[1, 2, 4], &[1, 1, 3], &[2, 2, 2]] {
            assert_ne!(checksum(wrong), sum, "{wrong:?}");
        }
        assert_ne!(hash(0, &[1, 3, 2]), hash(0, &[1, 2, 3]));
    }

    #[test]
    fn keys_without_memory_are_an_error() {
        let many = Keys { count: usize::MAX / 8, ..keys(Distribution::Uniform) };
        let why = many.make(0, 0..many.count).unwrap_err();
        assert!(why.contains("MiB") && why.contains("--size"), "{why}");
    }
}
