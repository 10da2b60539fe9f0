//! Operators that are known at run time only.

use crate::collective::operator::OperatorCode;
use crate::collective::operator::{
    And, Max, MaxLocation, Min, MinLocation, Operator, Or, Product, Sum, Xor,
};
use crate::tables::element_kind::{ElementKind, KindClass};
use oikaze_protocol::rma::Combine;

/// Expands to `true` for operators of pairs.
macro_rules! is_pair {
    (number) => {
        false
    };
    (pair) => {
        true
    };
}

macro_rules! fused {
    (()) => {
        None
    };
    (($variant:ident)) => {
        Some(Combine::$variant)
    };
}

macro_rules! enumeration {
    ($(
        $(#[$text:meta])*
        $operator:ident: $name:literal, $elements:ident, $fused:tt, $c:tt;
    )*) => {
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
            $($(#[$text])* $operator,)*
        }

        impl UntypedOperator {
            /// All operators, in the order of their numbers.
            pub const ALL: &[UntypedOperator] = &[$(UntypedOperator::$operator),*];

            /// Returns the name, as Python has it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(UntypedOperator::$operator => $name),* }
            }

            /// Returns `true` if elements are pairs of a value and a location.
            #[must_use]
            pub const fn takes_pairs(self) -> bool {
                match self { $(UntypedOperator::$operator => is_pair!($elements)),* }
            }

            /// Returns the operator of atomic combinations and of barriers, if there is one.
            #[must_use]
            pub const fn fused(self) -> Option<Combine> {
                match self { $(UntypedOperator::$operator => fused!($fused)),* }
            }

            /// Returns the number by which the ranks compare their operators.
            pub(super) const fn code(self) -> OperatorCode {
                match self { $(UntypedOperator::$operator => OperatorCode::$operator),* }
            }
        }
    };
}
for_each_operator!(enumeration);

macro_rules! contains {
    ($this:ident $($operator:ident)*) => {
        matches!($this, $(UntypedOperator::$operator)|*)
    };
}

impl UntypedOperator {
    /// Returns the operator of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<UntypedOperator> {
        Self::ALL.iter().copied().find(|operator| operator.name() == name)
    }

    /// Checks that numbers of this kind can be combined so.
    ///
    /// # Errors
    /// They cannot; the error says what can be done.
    pub fn fits(self, kind: ElementKind) -> Result<(), String> {
        let fits = match kind.class() {
            KindClass::Integer => operators_of!(integer, contains self),
            KindClass::Float => operators_of!(float, contains self),
            KindClass::Truth => operators_of!(truth, contains self),
            KindClass::Complex => operators_of!(complex, contains self),
        };
        if fits || kind.class().has_order() && operators_of!(pair, contains self) {
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

macro_rules! applied_to {
    ($type:ty, $other:expr; $($operator:ident)*) => {
        impl Operator<$type> for Applied {
            #[inline]
            fn combine(&self, first: $type, second: $type) -> $type {
                match self.0 {
                    $(UntypedOperator::$operator => $operator.combine(first, second),)*
                    other => $other(other, first, second),
                }
            }
            fn code(&self) -> OperatorCode {
                self.0.code()
            }
        }
    };
}

macro_rules! applied {
    (integer $type:ty) => {
        operators_of!(integer, applied_to $type, refused;);
        operators_of!(pair, applied_to [$type; 2], refused;);
    };
    // Pairs are a value with its location, or a complex number.
    (float $type:ty) => {
        operators_of!(float, applied_to $type, refused;);
        operators_of!(pair, applied_to [$type; 2], complex;);
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

/// `fits` has refused the operator.
fn refused<T>(_: UntypedOperator, first: T, _: T) -> T {
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
