//! Random numbers of the NAS benchmarks: x ← 5¹³·x mod 2⁴⁶.

/// Start value that the benchmark prescribes.
const SEED: u64 = 314_159_265;
/// Factor of the sequence, 5¹³.
const FACTOR: u64 = 1_220_703_125;
/// Number of bits of a state.
const BITS: u32 = 46;

/// Sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// Begins with the benchmark's start value.
    #[must_use]
    pub const fn new() -> Self {
        Self(SEED)
    }

    /// Returns the next number, in 0..1.
    pub fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(FACTOR) & ((1 << BITS) - 1);
        self.0 as f64 / (1u64 << BITS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_products_modulo_2_46() {
        let mut sequence = Sequence::new();
        let mut exact = u128::from(SEED);
        for _ in 0..1000 {
            exact = exact * u128::from(FACTOR) % (1 << 46);
            assert_eq!(sequence.draw(), exact as f64 / 2.0_f64.powi(46));
        }
    }
}
