//! Operators that are known at run time only.

use crate::collective::operator::OperatorCode;
use crate::collective::{And, Max, MaxLocation, Min, MinLocation, Operator, Or, Product, Sum, Xor};
use crate::tables::{ElementKind, KindClass};

/// Operator of a reduction, for callers that know it at run time only.
///
/// ```
/// use oikaze::ffi::{ElementKind, UntypedOperator};
/// # fn main() {
/// assert!(UntypedOperator::Sum.fits(ElementKind::F64).is_ok());
/// assert!(UntypedOperator::Xor.fits(ElementKind::F64).is_err());
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum UntypedOperator {
    /// The operator [`Sum`] of Rust.
    Sum,
    /// The operator [`Product`] of Rust.
    Product,
    /// The operator [`Min`] of Rust.
    Min,
    /// The operator [`Max`] of Rust.
    Max,
    /// The operator [`And`] of Rust.
    And,
    /// The operator [`Or`] of Rust.
    Or,
    /// The operator [`Xor`] of Rust.
    Xor,
    /// As [`MinLocation`]: elements are pairs of a value and a location of the same kind.
    MinLocation,
    /// As [`MaxLocation`]: elements are pairs of a value and a location of the same kind.
    MaxLocation,
}

impl UntypedOperator {
    /// All operators, in the order of their numbers.
    pub const ALL: [UntypedOperator; 9] = [
        UntypedOperator::Sum,
        UntypedOperator::Product,
        UntypedOperator::Min,
        UntypedOperator::Max,
        UntypedOperator::And,
        UntypedOperator::Or,
        UntypedOperator::Xor,
        UntypedOperator::MinLocation,
        UntypedOperator::MaxLocation,
    ];

    /// Returns `true` if elements are pairs of a value and a location.
    #[must_use]
    pub const fn takes_pairs(self) -> bool {
        matches!(self, UntypedOperator::MinLocation | UntypedOperator::MaxLocation)
    }

    /// Checks that numbers of this kind can be combined so.
    ///
    /// # Errors
    /// They cannot; the error says what can be done.
    pub fn fits(self, kind: ElementKind) -> Result<(), String> {
        use UntypedOperator::{And, Or, Product, Sum, Xor};
        let fits = match kind.class() {
            KindClass::Complex => matches!(self, Sum | Product),
            KindClass::Float => !matches!(self, And | Or | Xor),
            KindClass::Truth => matches!(self, And | Or | Xor),
            KindClass::Integer => true,
        };
        if fits {
            return Ok(());
        }
        Err(format!(
            "{self:?} does not combine elements of {}: take another operator, or convert them",
            kind.name()
        ))
    }
}

/// An operator that was checked to fit its elements.
#[derive(Clone, Copy)]
pub(super) struct Applied(pub UntypedOperator);

impl Applied {
    fn shared_code(self) -> OperatorCode {
        match self.0 {
            UntypedOperator::Sum => OperatorCode::Sum,
            UntypedOperator::Product => OperatorCode::Product,
            UntypedOperator::Min => OperatorCode::Min,
            UntypedOperator::Max => OperatorCode::Max,
            UntypedOperator::And => OperatorCode::And,
            UntypedOperator::Or => OperatorCode::Or,
            UntypedOperator::Xor => OperatorCode::Xor,
            UntypedOperator::MinLocation => OperatorCode::MinLocation,
            UntypedOperator::MaxLocation => OperatorCode::MaxLocation,
        }
    }
}

macro_rules! number {
    ($type:ty: $($bitwise:ident)*) => {
        impl Operator<$type> for Applied {
            #[inline]
            fn combine(&self, first: $type, second: $type) -> $type {
                match self.0 {
                    UntypedOperator::Sum => Sum.combine(first, second),
                    UntypedOperator::Product => Product.combine(first, second),
                    UntypedOperator::Min => Min.combine(first, second),
                    UntypedOperator::Max => Max.combine(first, second),
                    $(UntypedOperator::$bitwise => $bitwise.combine(first, second),)*
                    // `fits` has refused these.
                    _ => first,
                }
            }
            fn code(&self) -> OperatorCode {
                self.shared_code()
            }
        }
    };
}

/// Pairs are a value with its location, or a complex number.
macro_rules! pair {
    ($type:ty: $complex:expr) => {
        impl Operator<[$type; 2]> for Applied {
            #[inline]
            fn combine(&self, first: [$type; 2], second: [$type; 2]) -> [$type; 2] {
                match self.0 {
                    UntypedOperator::MinLocation => MinLocation.combine(first, second),
                    UntypedOperator::MaxLocation => MaxLocation.combine(first, second),
                    other => $complex(other, first, second),
                }
            }
            fn code(&self) -> OperatorCode {
                self.shared_code()
            }
        }
    };
}

macro_rules! applied {
    (integer $type:ty) => {
        number!($type: And Or Xor);
        pair!($type: no_complex);
    };
    (float $type:ty) => {
        number!($type:);
        pair!($type: complex);
    };
    // Truth values are bytes, and complex numbers pairs.
    (truth $type:ty) => {};
    (complex $type:ty) => {};
}

macro_rules! kinds {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt, $faces:tt;
    )*) => {
        $(applied!($class $type);)*
    };
}
for_each_kind!(kinds);

/// `fits` has refused other operators for pairs of integers.
fn no_complex<T>(_: UntypedOperator, first: T, _: T) -> T {
    first
}

fn complex<F>(operator: UntypedOperator, [a, b]: [F; 2], [c, d]: [F; 2]) -> [F; 2]
where
    F: Copy + std::ops::Add<Output = F> + std::ops::Sub<Output = F> + std::ops::Mul<Output = F>,
{
    match operator {
        UntypedOperator::Product => [a * c - b * d, a * d + b * c],
        _ => [a + c, b + d],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_added_and_multiplied() {
        let (a, b) = ([1.0_f64, 2.0], [3.0, -1.0]);
        assert_eq!(Applied(UntypedOperator::Sum).combine(a, b), [4.0, 1.0]);
        assert_eq!(Applied(UntypedOperator::Product).combine(a, b), [5.0, 5.0]);
    }

    /// Every operator that fits a kind gives what the operator of Rust gives.
    #[test]
    fn operators_are_those_of_rust() {
        use UntypedOperator as U;
        let of = |operator| Operator::<i32>::combine(&Applied(operator), 12, 10);
        let all = [U::Sum, U::Product, U::Min, U::Max, U::And, U::Or, U::Xor].map(of);
        assert_eq!(all, [22, 120, 10, 12, 8, 14, 6]);
        let codes: Vec<_> =
            U::ALL.iter().map(|one| Operator::<i32>::code(&Applied(*one)) as u32).collect();
        assert_eq!(codes, (1..=9).collect::<Vec<u32>>(), "the codes of Rust's operators");
        let pairs = [U::MinLocation, U::MaxLocation].map(|o| Applied(o).combine([5, 1], [5, 0]));
        assert_eq!(pairs, [[5, 0], [5, 0]]);
    }
}
