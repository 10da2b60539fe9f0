//! Random numbers by index, so that any node can compute any number without those before it.

/// Returns number `index` of the sequence of `seed`, by splitmix64's output function over a Weyl
/// sequence (Steele, Lea & Flood, OOPSLA '14).
#[inline]
#[must_use]
pub const fn random(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns number `index` of the sequence of `seed` as a value in 0..1.
#[inline]
#[must_use]
pub fn uniform(seed: u64, index: u64) -> f64 {
    (random(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published splitmix64 program with seed 1234567.
    #[test]
    fn sequence_is_the_published_one() {
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random(1_234_567, 0), random(1_234_567, 1)], expected);
    }
}
