//! Types of elements, and operators that combine them.

use crate::abi::call::{CallError, CallResult};
use oikaze::atomic::Combine;
use oikaze::ffi::{Accumulation, ElementKind, UntypedOperator};

/// Type of elements. Values of another type, such as a struct, are moved as `OIK_U8`, and the count
/// is then their size in bytes.
pub type oik_kind = u32;

macro_rules! kinds {
    ($(
        $(#[$text:meta])*
        $kind:ident: $name:literal, $type:ty, $class:ident, $element:tt,
        { $numpy:literal, $atomic:tt, $constant:ident = $number:literal, $c:literal };
    )*) => {
        $(
            #[doc = concat!("Elements of type `", $c, "`.")]
            pub const $constant: oik_kind = $number;
        )*

        /// Returns a type of elements by its number in the header.
        pub fn kind_of(kind: oik_kind) -> CallResult<ElementKind> {
            Ok(match kind {
                $($constant => ElementKind::$kind,)*
                _ => return Err(CallError::invalid(format!("kind {kind} is unknown; use OIK_F64 …"))),
            })
        }
    };
}
oikaze::for_each_kind!(kinds);

/// Operator that combines two elements.
pub type oik_operator = u32;

macro_rules! operators {
    ($(
        $(#[$text:meta])*
        $operator:ident: $name:literal, $elements:ident, $fused:tt,
        { $constant:ident = $number:literal, $documentation:literal };
    )*) => {
        $(
            #[doc = $documentation]
            pub const $constant: oik_operator = $number;
        )*

        /// Returns an operator by its number in the header.
        pub fn operator_of(operator: oik_operator) -> CallResult<UntypedOperator> {
            Ok(match operator {
                $($constant => UntypedOperator::$operator,)*
                _ => {
                    let why = format!("operator {operator} is unknown; use OIK_SUM …");
                    return Err(CallError::invalid(why));
                }
            })
        }
    };
}
oikaze::for_each_operator!(operators);

/// Returns the operator of an atomic combination.
pub fn combine_of(operator: oik_operator) -> CallResult<Combine> {
    fused(operator, "combine numbers in one step")
}

/// Returns the operator of a reduction that a barrier brings.
pub fn barrier_operator_of(operator: oik_operator) -> CallResult<Combine> {
    fused(operator, "travel with a barrier")
}

fn fused(operator: oik_operator, what: &str) -> CallResult<Combine> {
    operator_of(operator).ok().and_then(UntypedOperator::fused).ok_or_else(|| {
        let why = format!("operator {operator} does not {what}; use OIK_SUM, OIK_MIN or OIK_MAX");
        CallError::invalid(why)
    })
}

/// Returns the type and the operator of an accumulate.
pub fn accumulation_of(kind: oik_kind, operator: oik_operator) -> CallResult<Accumulation> {
    let kind = kind_of(kind)?;
    let element = kind.number().ok_or_else(|| {
        let why = format!("{} is not accumulated; use a kind of 32 or 64 bits", kind.name());
        CallError::invalid(why)
    })?;
    Ok(Accumulation { element, combine: combine_of(operator)? })
}

/// Returns the bytes of `count` elements.
pub fn bytes_of(count: usize, size: usize) -> CallResult<usize> {
    let too_many = || CallError::invalid(format!("{count} elements of {size} bytes are too many"));
    count.checked_mul(size).ok_or_else(too_many)
}
