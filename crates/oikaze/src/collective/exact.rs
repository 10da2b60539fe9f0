//! Exact sums of floating-point numbers: a fixed-point number as wide as all exponents.
//!
//! Kulisch, "Very fast and exact accumulation of products", 2011: integers add without rounding and
//! in any order, so the sum has the same bits for any number of ranks. Only the result is rounded.

/// Bits of one limb that a number is cut into. The rest of an `i64` holds carries.
const LIMB_BITS: usize = 32;
/// Number of limbs: 2^−1074 to 2^1023, and 78 bits for carries.
const LIMBS: usize = 68;
/// Number of additions after which carries are passed on. Each adds less than 2^32 to a limb.
const ADDS_MAX: u32 = 1 << 30;

/// Counts that stand behind the limbs.
const NANS: usize = LIMBS;
const INFINITIES: usize = LIMBS + 1;
const NEGATIVE_INFINITIES: usize = LIMBS + 2;
const NEGATIVE_ZEROS: usize = LIMBS + 3;
const OTHERS: usize = LIMBS + 4;
/// Number of words of an accumulator.
const WORDS: usize = LIMBS + 5;

/// Floating-point type whose sums can be exact.
///
/// ```
/// use oikaze::collective::Float;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn total<F: Float>(job: &Job, values: &[F]) -> oikaze::Result<F> {
///     job.sum_exact(values)
/// }
/// assert_eq!(total(&job, &[1e300, 1.0, -1e300])?, f64::from(job.size()));
/// # Ok(())
/// # }
/// ```
pub trait Float: Copy {
    #[doc(hidden)]
    fn widen(self) -> f64;
    #[doc(hidden)]
    fn of_accumulator(accumulator: &Accumulator) -> Self;
}

impl Float for f64 {
    fn widen(self) -> f64 {
        self
    }
    fn of_accumulator(accumulator: &Accumulator) -> f64 {
        accumulator.special().unwrap_or_else(|| f64::from_bits(accumulator.rounded(52, 0, 0x7ff)))
    }
}

impl Float for f32 {
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn of_accumulator(accumulator: &Accumulator) -> f32 {
        // Rounded once, from the exact sum.
        let bits = || accumulator.rounded(23, 1074 - 149, 0xff);
        let rounded = || u32::try_from(bits()).map_or(f32::NAN, f32::from_bits);
        accumulator.special().map_or_else(rounded, |special| special as f32)
    }
}

/// Exact sum of any `f64` values.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Accumulator {
    words: [i64; WORDS],
    adds: u32,
}

impl Accumulator {
    /// Returns the sum of these values.
    pub(super) fn of<F: Float>(values: &[F]) -> Accumulator {
        let mut sum = Accumulator { words: [0; WORDS], adds: 0 };
        values.iter().for_each(|value| sum.add(value.widen()));
        sum.carry();
        sum
    }

    /// Takes the words that several accumulators have in sum.
    pub(super) fn of_words(words: &[i64]) -> Accumulator {
        let mut sum = Accumulator { words: [0; WORDS], adds: 0 };
        sum.words.iter_mut().zip(words).for_each(|(word, given)| *word = *given);
        sum.carry();
        sum
    }

    /// Returns the words, of which each limb is less than 2^32. So sums of 2^31 accumulators, word
    /// by word, do not overflow.
    pub(super) fn words(&self) -> &[i64] {
        &self.words
    }

    fn count(&mut self, what: usize) {
        self.add_at(what, 1);
    }

    fn add_at(&mut self, at: usize, value: i64) {
        if let Some(word) = self.words.get_mut(at) {
            *word = word.wrapping_add(value);
        }
    }

    fn add(&mut self, value: f64) {
        if !value.is_finite() || value == 0.0 {
            return self.count(match value {
                value if value.is_nan() => NANS,
                f64::INFINITY => INFINITIES,
                f64::NEG_INFINITY => NEGATIVE_INFINITIES,
                value if value.is_sign_negative() => NEGATIVE_ZEROS,
                _ => OTHERS,
            });
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        // Bit 0 of the accumulator is 2^−1074.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let shifted = u128::from(mantissa) << (shift % LIMB_BITS);
        for n in 0..3 {
            let part = (shifted >> (LIMB_BITS * n) & 0xffff_ffff) as i64;
            let part = if value < 0.0 { -part } else { part };
            self.add_at(shift / LIMB_BITS + n, part);
        }
        self.count(OTHERS);
        self.adds += 1;
        if self.adds >= ADDS_MAX {
            self.carry();
        }
    }

    /// Passes carries on, so that each limb but the last is at least 0 and less than 2^32.
    fn carry(&mut self) {
        let mut carry = 0;
        for limb in self.words.iter_mut().take(LIMBS - 1) {
            let sum = limb.wrapping_add(carry);
            *limb = sum & 0xffff_ffff;
            carry = sum >> LIMB_BITS;
        }
        self.add_at(LIMBS - 1, carry);
        self.adds = 0;
    }

    fn has(&self, what: usize) -> bool {
        self.words.get(what).is_some_and(|count| *count != 0)
    }

    /// Returns the sum if it is not a finite number, or a zero of negative terms only.
    fn special(&self) -> Option<f64> {
        match (self.has(INFINITIES), self.has(NEGATIVE_INFINITIES)) {
            _ if self.has(NANS) => Some(f64::NAN),
            (true, true) => Some(f64::NAN),
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            // IEEE 754: only a sum of negative zeros is a negative zero.
            (false, false) => (self.has(NEGATIVE_ZEROS) && !self.has(OTHERS)).then_some(-0.0),
        }
    }

    /// Returns the bits of the nearest number of a format, ties to even: with so many bits of
    /// fraction, whose smallest number is bit `lowest` of the accumulator, and whose infinity has
    /// this exponent.
    fn rounded(&self, fraction: usize, lowest: usize, infinity: u64) -> u64 {
        let negative = self.words.get(LIMBS - 1).is_some_and(|last| *last < 0);
        let mut magnitude = self.clone();
        if negative {
            magnitude.words.iter_mut().take(LIMBS).for_each(|limb| *limb = -*limb);
            magnitude.carry();
        }
        let width = if infinity > 0xff { 63 } else { 31 };
        let sign = u64::from(negative) << width;
        let Some(top) = magnitude.top_bit() else { return 0 };
        // Position of the lowest bit that the result keeps.
        let shift = top.saturating_sub(fraction).max(lowest);
        let kept = magnitude.bits(shift, fraction + 1);
        // The hidden bit adds one to the exponent. A carry of the rounding does the same.
        let mut bits = (((shift - lowest) as u64) << fraction) + kept;
        let half = shift > 0 && magnitude.bits(shift - 1, 1) == 1;
        let more = shift > 1 && magnitude.has_bits_below(shift - 1);
        bits += u64::from(half && (more || kept & 1 == 1));
        sign | bits.min(infinity << fraction)
    }

    fn limb(&self, at: usize) -> u64 {
        self.words.get(at).filter(|_| at < LIMBS).map_or(0, |limb| limb.cast_unsigned())
    }

    fn top_bit(&self) -> Option<usize> {
        let at = (0..LIMBS).rev().find(|at| self.limb(*at) != 0)?;
        Some(at * LIMB_BITS + self.limb(at).ilog2() as usize)
    }

    /// Returns up to 53 bits from this one on.
    fn bits(&self, from: usize, count: usize) -> u64 {
        let at = from / LIMB_BITS;
        let limbs =
            (0..3).fold(0u128, |limbs, n| limbs | u128::from(self.limb(at + n)) << (LIMB_BITS * n));
        (limbs >> (from % LIMB_BITS)) as u64 & ((1 << count) - 1)
    }

    fn has_bits_below(&self, end: usize) -> bool {
        let at = end / LIMB_BITS;
        (0..at).any(|at| self.limb(at) != 0) || self.limb(at) & ((1 << (end % LIMB_BITS)) - 1) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact<F: Float>(values: &[F]) -> F {
        F::of_accumulator(&Accumulator::of(values))
    }

    /// Two's complement of 2,304 bits, which adds one 64-bit word after the other.
    fn oracle(values: &[f64], fraction: u32, lowest: u32) -> f64 {
        let mut sum = [0u64; 36];
        for value in values {
            let bits = value.to_bits();
            let (exponent, mantissa) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
            let mantissa = if exponent == 0 { mantissa } else { mantissa | 1 << 52 };
            let shift = exponent.saturating_sub(1) as usize;
            let mut term = [0u64; 36];
            for bit in (0..53).filter(|bit| mantissa >> bit & 1 == 1) {
                term[(shift + bit) / 64] |= 1 << ((shift + bit) % 64);
            }
            if *value < 0.0 {
                negate(&mut term);
            }
            add(&mut sum, &term);
        }
        let negative = sum[35] >> 63 == 1;
        if negative {
            negate(&mut sum);
        }
        let bit = |at: usize| sum[at / 64] >> (at % 64) & 1 == 1;
        let Some(top) = (0..2304).rev().find(|at| bit(*at)) else { return 0.0 };
        let last = top.saturating_sub(fraction as usize).max(lowest as usize);
        let mut kept = (last..=top).fold(0u64, |kept, at| kept | u64::from(bit(at)) << (at - last));
        let half = last > 0 && bit(last - 1);
        let more = last > 0 && (0..last - 1).any(bit);
        kept += u64::from(half && (more || kept & 1 == 1));
        // 2^(last − 1074), by two exact factors.
        let power = last as i32 - 1074;
        let scaled = kept as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
        if negative { -scaled } else { scaled }
    }

    fn negate(words: &mut [u64; 36]) {
        words.iter_mut().for_each(|word| *word = !*word);
        let mut one = [0; 36];
        one[0] = 1;
        add(words, &one);
    }

    fn add(sum: &mut [u64; 36], term: &[u64; 36]) {
        let mut carry = false;
        for (word, more) in sum.iter_mut().zip(term) {
            let (one, first) = word.overflowing_add(*more);
            let (two, second) = one.overflowing_add(u64::from(carry));
            (*word, carry) = (two, first || second);
        }
    }

    fn finite() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite()),
            -1e3..1e3,
            Just(f64::MAX / 4.0),
            Just(f64::MIN_POSITIVE / 4.0),
            (1..200i32).prop_map(|power| 2f64.powi(power)),
        ]
    }

    proptest! {
        #[test]
        fn sums_are_the_nearest_numbers(values in prop::collection::vec(finite(), 0..40)) {
            let values: Vec<f64> = values.iter().map(|value| value / 64.0).collect();
            let expected = oracle(&values, 52, 0);
            prop_assert_eq!(exact(&values), expected);
            let mut turned = values;
            turned.reverse();
            prop_assert_eq!(exact(&turned).to_bits(), exact(&turned).to_bits());
            prop_assert_eq!(exact(&turned), expected);
        }

        #[test]
        fn sums_of_short_floats_are_rounded_once(
            bits in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            let values: Vec<f32> = bits
                .into_iter()
                .map(f32::from_bits)
                .filter(|value| value.is_finite())
                .map(|value| value / 32.0)
                .collect();
            let wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            prop_assert_eq!(f64::from(exact(&values)), oracle(&wide, 23, 1074 - 149));
        }

        /// Words add up as the values do.
        #[test]
        fn parts_add_up_to_the_whole(
            values in prop::collection::vec(finite(), 0..40),
            cut in 0..40usize,
        ) {
            let (first, second) = values.split_at(cut.min(values.len()));
            let [first, second] = [first, second].map(Accumulator::of::<f64>);
            let words: Vec<i64> =
                first.words().iter().zip(second.words()).map(|(one, two)| one + two).collect();
            let whole = f64::of_accumulator(&Accumulator::of_words(&words));
            prop_assert_eq!(whole.to_bits(), exact(&values).to_bits());
        }
    }

    #[test]
    fn special_values_add_as_ieee_says() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert!(exact(&[1.0, nan]).is_nan() && exact(&[infinity, -infinity]).is_nan());
        assert_eq!([exact(&[infinity, 1.0]), exact(&[-infinity, 1.0])], [infinity, -infinity]);
        let is_negative_zero = |values: &[f64]| exact(values).to_bits() == (-0.0f64).to_bits();
        assert!(is_negative_zero(&[-0.0, -0.0]));
        assert!(!is_negative_zero(&[-0.0, 0.0]) && !is_negative_zero(&[1.0, -1.0]));
        assert!(!is_negative_zero(&[]));
        assert_eq!(exact(&[f64::MAX, f64::MAX]), infinity);
        assert_eq!(exact(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
        assert_eq!(exact(&[f32::MAX, f32::MAX]), f32::INFINITY);
        assert_eq!(exact(&[f64::from_bits(1); 3]).to_bits(), 3);
    }
}
