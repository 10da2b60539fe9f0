//! Random numbers. All randomness of a run comes from one seed through this module.

/// xoshiro256** (Blackman, Vigna: Scrambled Linear Pseudorandom Number Generators, 2018), seeded by
/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

/// Returns one step of SplitMix64 (Steele, Lea, Flood, 2014).
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    /// Makes a stream of its own for each pair of seed and purpose, so that draws of one part do
    /// not change those of another.
    #[must_use]
    pub fn stream(seed: u64, purpose: u64) -> Random {
        let first = mix(seed ^ mix(purpose));
        let second = mix(first);
        let third = mix(second);
        Random([first, second, third, mix(third)])
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let word = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        word
    }

    /// Returns a number of `0..end`; 0 if there is none. (The bias of the product is below 2^-32
    /// for all values used here.)
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.word()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// Returns a number of `0..end`.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Returns a number of `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// Returns a number of `from..=to`, in which each power of two has the same chance, so that
    /// small numbers are as likely as large ones.
    pub fn spread(&mut self, from: u64, to: u64) -> u64 {
        let bits = |value: u64| u64::from(64 - value.leading_zeros());
        let width = self.between(bits(from), bits(to));
        let ceiling = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        self.between(from, ceiling.clamp(from, to))
    }

    /// Returns `true` with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.word() >> 11) as f64) * (1.0 / (1_u64 << 53) as f64) < probability
    }

    /// Returns one of these items.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.index(at + 1));
        }
    }
}

/// Returns bytes that follow from a key, so that a receiver can check them without other knowledge.
#[must_use]
pub fn bytes_of(key: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut state = mix(key);
    while bytes.len() < len {
        state = mix(state);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns the offset of the first byte that differs from `than`. (It runs after every turn over
/// much memory, so it compares eight bytes at a time.)
#[must_use]
pub fn first_other(bytes: &[u8], than: u8) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let equal = words.iter().take_while(|word| **word == [than; 8]).count() * 8;
    bytes[equal..].iter().position(|byte| *byte != than).map(|at| equal + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, purpose| {
            let mut random = Random::stream(seed, purpose);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn ranges_are_kept() {
        let mut random = Random::stream(7, 7);
        for _ in 0..10_000 {
            assert!(random.below(10) < 10);
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!((1..=100).contains(&random.spread(1, 100)));
            assert!(random.spread(0, 9) <= 9);
        }
        assert_eq!(random.between(4, 4), 4);
        let hits = (0..10_000).filter(|_| random.chance(0.3)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
    }

    #[test]
    fn another_byte_is_found() {
        let mut bytes = [7; 29];
        assert_eq!(first_other(&bytes, 7), None);
        for at in (0..29).rev() {
            bytes[at] = 6;
            assert_eq!(first_other(&bytes, 7), Some(at));
        }
    }

    #[test]
    fn bytes_follow_from_their_key() {
        assert_eq!(bytes_of(5, 13), bytes_of(5, 16)[..13]);
        assert_ne!(bytes_of(5, 13), bytes_of(6, 13));
        assert!(bytes_of(5, 0).is_empty());
    }
}
