//! Combination of elements by an accumulate (MEM-12.1).

use crate::bytes::{ByteReader, Invalid};
use crate::extremes::{Comparable, maximum, minimum};
use crate::rma::ops::atomic::{AtomicOp, Width, Word};
use core::ops::Add;

crate::wire_enum! {
    /// Type of the elements of an array.
    pub enum NumberKind {
        /// Unsigned 32-bit integer.
        U32 = 1,
        /// Signed 32-bit integer.
        I32 = 2,
        /// Unsigned 64-bit integer.
        U64 = 3,
        /// Signed 64-bit integer.
        I64 = 4,
        /// IEEE 754 binary32.
        F32 = 5,
        /// IEEE 754 binary64.
        F64 = 6,
    }
}

crate::wire_enum! {
    /// Operation that combines an arriving element with the stored one.
    pub enum Combine {
        /// Sum. Integers wrap; floating-point numbers are rounded as the processor adds.
        Sum = 1,
        /// Minimum. A NaN stays a NaN, and −0 is smaller than +0 (COLL-2.6).
        Min = 2,
        /// Maximum. A NaN stays a NaN, and +0 is greater than −0 (COLL-2.6).
        Max = 3,
    }
}

/// Type of elements, and the operation that combines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accumulation {
    /// Type of the elements.
    pub element: NumberKind,
    /// Operation that combines two elements.
    pub combine: Combine,
}

impl Combine {
    /// Returns the combination of two floating-point numbers.
    fn of<T: Comparable + Add<Output = T>>(self, here: T, other: T) -> T {
        match self {
            Combine::Sum => here + other,
            Combine::Min => minimum(here, other),
            Combine::Max => maximum(here, other),
        }
    }
}

impl Accumulation {
    /// Returns the width of an element.
    #[must_use]
    pub const fn width(self) -> Width {
        match self.element {
            NumberKind::U32 | NumberKind::I32 | NumberKind::F32 => Width::W32,
            NumberKind::U64 | NumberKind::I64 | NumberKind::F64 => Width::W64,
        }
    }

    /// Returns the change of a word that combines the integer `other` with it. Returns `None` for
    /// types that no processor combines in one instruction. For these, repeat
    /// [`Accumulation::of_floats`] until no other change comes between.
    #[must_use]
    pub fn of_integers(self, other: u64) -> Option<AtomicOp> {
        Some(match self.element {
            NumberKind::U32 => self.change(u32::from_bits(other)),
            NumberKind::I32 => self.change(i32::from_bits(other)),
            NumberKind::U64 => self.change(other),
            NumberKind::I64 => self.change(i64::from_bits(other)),
            NumberKind::F32 | NumberKind::F64 => return None,
        })
    }

    fn change<T: Word>(self, other: T) -> AtomicOp {
        match self.combine {
            Combine::Sum => AtomicOp::add(other),
            Combine::Min => AtomicOp::min(other),
            Combine::Max => AtomicOp::max(other),
        }
    }

    /// Combines two floating-point numbers as bits: returns the new value of `here` when `other`
    /// arrives (MEM-12.3).
    #[must_use]
    pub fn of_floats(self, here: u64, other: u64) -> u64 {
        if self.width() == Width::W32 {
            let (here, other) = (f32::from_bits(here as u32), f32::from_bits(other as u32));
            return u64::from(self.combine.of(here, other).to_bits());
        }
        self.combine.of(f64::from_bits(here), f64::from_bits(other)).to_bits()
    }

    /// Encodes for a head (MEM-2.1).
    pub(crate) fn encode(self) -> [u8; 2] {
        [self.element as u8, self.combine as u8]
    }

    /// Decodes from a head. The bytes must have a meaning (MEM-2.2).
    pub(crate) fn read(bytes: &mut ByteReader<'_>) -> Result<Accumulation, Invalid> {
        let element = bytes.code(NumberKind::from_code)?;
        Ok(Accumulation { element, combine: bytes.code(Combine::from_code)? })
    }
}

/// Type that can be accumulated: `u32`, `i32`, `u64`, `i64`, `f32`, `f64`.
pub trait Number: Copy + Send + Sync + 'static + super::sealed::Sealed {
    /// Element type of this Rust type.
    #[doc(hidden)]
    const ELEMENT: NumberKind;
    /// Returns the bits, which are zero above the width.
    #[doc(hidden)]
    fn bits(self) -> u64;
    /// Returns the number of these bits, of which those above the width do not count.
    #[doc(hidden)]
    fn of_bits(bits: u64) -> Self;
}

macro_rules! number {
    ($($type:ty: $element:ident, $bits:expr, $of_bits:expr;)*) => {
        $(
            impl Number for $type {
                #[doc(hidden)]
                const ELEMENT: NumberKind = NumberKind::$element;
                #[doc(hidden)]
                fn bits(self) -> u64 {
                    $bits(self)
                }
                #[doc(hidden)]
                fn of_bits(bits: u64) -> Self {
                    $of_bits(bits)
                }
            }
        )*
    };
}
number! {
    u32: U32, Word::to_bits, Word::from_bits;
    i32: I32, Word::to_bits, Word::from_bits;
    u64: U64, Word::to_bits, Word::from_bits;
    i64: I64, Word::to_bits, Word::from_bits;
    f32: F32, |number: f32| u64::from(number.to_bits()), |bits| f32::from_bits(bits as u32);
    f64: F64, f64::to_bits, f64::from_bits;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(combine: Combine, here: f64, other: f64) -> (f64, f32) {
        let wide = Accumulation { element: NumberKind::F64, combine };
        let narrow = Accumulation { element: NumberKind::F32, combine };
        let short = narrow
            .of_floats(u64::from((here as f32).to_bits()), u64::from((other as f32).to_bits()));
        assert_eq!(short >> 32, 0);
        (
            f64::from_bits(wide.of_floats(here.to_bits(), other.to_bits())),
            f32::from_bits(short as u32),
        )
    }

    /// MEM-12.3.
    #[test]
    fn a_nan_stays_and_zeros_have_an_order() {
        for combine in [Combine::Min, Combine::Max] {
            for (here, other) in [(f64::NAN, 3.0), (3.0, f64::NAN), (f64::NAN, f64::NAN)] {
                let (wide, narrow) = all(combine, here, other);
                assert!(wide.is_nan() && narrow.is_nan());
            }
        }
        for (here, other) in [(0.0, -0.0), (-0.0, 0.0)] {
            let (min, max) = (all(Combine::Min, here, other), all(Combine::Max, here, other));
            assert!(min.0.is_sign_negative() && min.1.is_sign_negative());
            assert!(max.0.is_sign_positive() && max.1.is_sign_positive());
        }
        assert!(all(Combine::Sum, f64::INFINITY, f64::NEG_INFINITY).0.is_nan());
        assert_eq!(all(Combine::Max, f64::NEG_INFINITY, -5.0), (-5.0, -5.0));
    }

    /// MEM-12.3: integers use the processor's own change of a word, of their width and sign.
    #[test]
    fn integers_are_changes_of_words() {
        use crate::rma::{AtomicOp as Op, Combine::*, NumberKind::*};
        let of = |element, combine, other| Accumulation { element, combine }.of_integers(other);
        assert_eq!(of(U32, Min, 5), Some(Op::min(5u32)));
        assert_eq!(of(I32, Min, 0xFFFF_FFFF), Some(Op::min(-1i32)));
        assert_eq!(of(I32, Sum, 7), Some(Op::add(7i32)));
        assert_eq!(of(U64, Max, 9), Some(Op::max(9u64)));
        assert_eq!(of(I64, Max, u64::MAX), Some(Op::max(-1i64)));
        assert_eq!((of(F32, Sum, 0), of(F64, Min, 0)), (None, None));
    }
}
