//! Minimum and maximum of floating-point numbers, by one rule for all operations (COLL-2.6).

/// Floating-point number that [`minimum`] and [`maximum`] compare.
pub trait Comparable: Copy + PartialOrd {
    /// Quiet NaN without a sign and without a payload.
    const QUIET_NAN: Self;
    /// Returns `true` for −0 and for numbers below it.
    fn has_sign(self) -> bool;
}

macro_rules! comparable {
    ($($type:ty: $quiet_nan:literal;)*) => {
        $(
            impl Comparable for $type {
                const QUIET_NAN: Self = <$type>::from_bits($quiet_nan);
                #[inline]
                fn has_sign(self) -> bool {
                    self.is_sign_negative()
                }
            }
        )*
    };
}
comparable! {
    f32: 0x7fc0_0000;
    f64: 0x7ff8_0000_0000_0000;
}

/// Returns the smaller number, of which −0 is smaller than 0, or the quiet NaN if an operand is a
/// NaN. The order of the operands does not matter to a single bit.
#[inline]
#[must_use]
pub fn minimum<T: Comparable>(first: T, second: T) -> T {
    choose(first, second, first < second, first.has_sign())
}

/// Returns the greater number, of which 0 is greater than −0, or the quiet NaN if an operand is a
/// NaN. The order of the operands does not matter to a single bit.
#[inline]
#[must_use]
pub fn maximum<T: Comparable>(first: T, second: T) -> T {
    choose(first, second, first > second, !first.has_sign())
}

#[inline]
#[expect(clippy::eq_op, reason = "only a NaN differs from itself")]
fn choose<T: Comparable>(first: T, second: T, is_first: bool, is_first_of_equal: bool) -> T {
    if first != first || second != second {
        T::QUIET_NAN
    } else if is_first || first == second && is_first_of_equal {
        first
    } else {
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// COLL-2.6.
    #[test]
    fn extremes_keep_nans_and_order_zeros_in_any_order_of_operands() {
        let with_payload = f64::from_bits(0xfff0_0000_0000_0001);
        for nan in [f64::NAN, -f64::NAN, with_payload] {
            for other in [1.0, f64::INFINITY, f64::NEG_INFINITY, nan, f64::NAN] {
                for result in [
                    minimum(nan, other),
                    minimum(other, nan),
                    maximum(nan, other),
                    maximum(other, nan),
                ] {
                    assert_eq!(result.to_bits(), f64::QUIET_NAN.to_bits());
                }
            }
        }
        let narrow = [minimum(f32::NAN, 1.0), maximum(1.0, -f32::NAN)];
        assert_eq!(narrow.map(f32::to_bits), [f32::QUIET_NAN.to_bits(); 2]);
        for (first, second) in [(0.0_f32, -0.0), (-0.0, 0.0)] {
            assert_eq!(minimum(first, second).to_bits(), (-0.0_f32).to_bits());
            assert_eq!(maximum(first, second).to_bits(), 0.0_f32.to_bits());
        }
        assert_eq!((minimum(-1.0, 2.0), maximum(-1.0, 2.0)), (-1.0, 2.0));
    }
}
