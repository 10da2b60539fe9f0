//! Operators that are known at run time only.

use crate::collective::operator::{
    And, Combiner, Max, MaxLocation, Min, MinLocation, Operator, OperatorCode, Or, Product, Sum,
    Xor,
};
use crate::tables::element_kind::ElementKind;
use oikaze_protocol::rma::Combine;
use std::ops::{Add, Mul, Sub};

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

/// Expands to the operator over bytes that is one of these operators for a type.
macro_rules! pick {
    ($this:ident, $type:ty, $of:ident; $($operator:ident)*) => {
        match $this {
            $(UntypedOperator::$operator => Some(Combiner::of::<$type>($of($operator))),)*
            _ => None,
        }
    };
}

macro_rules! combiner {
    // Truth values are bytes.
    (truth $type:ty, $this:ident) => {
        operators_of!(truth, pick $this, $type, identity;)
    };
    (complex $type:ty, $this:ident) => {
        operators_of!(complex, pick $this, $type, Complex;)
    };
    ($class:ident $type:ty, $this:ident) => {
        operators_of!($class, pick $this, $type, identity;)
            .or_else(|| operators_of!(pair, pick $this, [$type; 2], identity;))
    };
}

macro_rules! combiners {
    ($this:ident $of:ident; $(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt, $faces:tt;
    )*) => {
        match $of { $(ElementKind::$kind => combiner!($class $type, $this),)* }
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
        self.combiner(kind).map(drop)
    }

    /// Returns the operator over the bytes of numbers of this kind, or of pairs of them.
    pub(super) fn combiner(self, kind: ElementKind) -> Result<Combiner, String> {
        for_each_kind!(combiners self kind;).ok_or_else(|| {
            let kind = kind.name();
            format!("{self:?} does not combine elements of {kind}: take another operator, or convert them")
        })
    }
}

fn identity<O>(operator: O) -> O {
    operator
}

/// Operator of complex numbers: two numbers, real part first.
struct Complex<O>(O);

impl<F: Add<Output = F>> Operator<[F; 2]> for Complex<Sum> {
    fn combine(&self, [a, b]: [F; 2], [c, d]: [F; 2]) -> [F; 2] {
        [a + c, b + d]
    }
    fn code(&self) -> OperatorCode {
        OperatorCode::Sum
    }
}

impl<F: Copy + Add<Output = F> + Sub<Output = F> + Mul<Output = F>> Operator<[F; 2]>
    for Complex<Product>
{
    fn combine(&self, [a, b]: [F; 2], [c, d]: [F; 2]) -> [F; 2] {
        [a * c - b * d, a * d + b * c]
    }
    fn code(&self) -> OperatorCode {
        OperatorCode::Product
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::operator::Item;
    use oikaze_protocol::collective::Order;

    fn combined<T: Item>(operator: UntypedOperator, kind: ElementKind, [first, new]: [T; 2]) -> T {
        let combiner = operator.combiner(kind).unwrap();
        assert_eq!(combiner.code as u32, operator as u32 + 1, "the code of Rust's operators");
        let mut here = bytemuck::bytes_of(&first).to_vec();
        (combiner.combine)(&mut here, bytemuck::bytes_of(&new), Order::NewLast);
        bytemuck::pod_read_unaligned(&here)
    }

    #[test]
    fn complex_numbers_are_added_and_multiplied() {
        let of = |operator| combined(operator, ElementKind::Complex128, [[1.0, 2.0], [3.0, -1.0]]);
        assert_eq!(of(UntypedOperator::Sum), [4.0, 1.0]);
        assert_eq!(of(UntypedOperator::Product), [5.0, 5.0]);
    }

    /// Every operator that fits a kind gives what the operator of Rust gives.
    #[test]
    fn operators_are_those_of_rust() {
        use UntypedOperator as U;
        let of = |operator| combined(operator, ElementKind::I32, [12, 10]);
        let all = [U::Sum, U::Product, U::Min, U::Max, U::And, U::Or, U::Xor].map(of);
        assert_eq!(all, [22, 120, 10, 12, 8, 14, 6]);
        let pairs = [U::MinLocation, U::MaxLocation]
            .map(|operator| combined(operator, ElementKind::I32, [[5, 1], [5, 0]]));
        assert_eq!(pairs, [[5, 0], [5, 0]]);
    }
}
