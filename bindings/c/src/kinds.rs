//! Types of elements, and operators that combine them.

use crate::call::{CallError, CallResult};
use oikaze::atomic::Combine;
use oikaze::collective::ReduceOp;
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
/// Sum. Integers wrap.
pub const OIK_SUM: oik_operator = 1;
/// Product. Integers wrap.
pub const OIK_PRODUCT: oik_operator = 2;
/// Minimum. A NaN gives way to a number.
pub const OIK_MIN: oik_operator = 3;
/// Maximum. A NaN gives way to a number.
pub const OIK_MAX: oik_operator = 4;
/// Bits that are set in both.
pub const OIK_AND: oik_operator = 5;
/// Bits that are set in one of both.
pub const OIK_OR: oik_operator = 6;
/// Bits that differ.
pub const OIK_XOR: oik_operator = 7;
/// Minimum, with its location. Elements are pairs of a value and a location of the same kind.
pub const OIK_MIN_LOCATION: oik_operator = 8;
/// Maximum, with its location. Elements are pairs of a value and a location of the same kind.
pub const OIK_MAX_LOCATION: oik_operator = 9;

/// Returns an operator by its number in the header.
pub fn operator_of(operator: oik_operator) -> CallResult<UntypedOperator> {
    Ok(match operator {
        OIK_SUM => UntypedOperator::Sum,
        OIK_PRODUCT => UntypedOperator::Product,
        OIK_MIN => UntypedOperator::Min,
        OIK_MAX => UntypedOperator::Max,
        OIK_AND => UntypedOperator::And,
        OIK_OR => UntypedOperator::Or,
        OIK_XOR => UntypedOperator::Xor,
        OIK_MIN_LOCATION => UntypedOperator::MinLocation,
        OIK_MAX_LOCATION => UntypedOperator::MaxLocation,
        _ => {
            return Err(CallError::invalid(format!(
                "operator {operator} is unknown; use OIK_SUM …"
            )));
        }
    })
}

fn only_three(operator: oik_operator, what: &str) -> CallError {
    let why = format!("operator {operator} does not {what}; use OIK_SUM, OIK_MIN or OIK_MAX");
    CallError::invalid(why)
}

/// Returns the operator of an atomic combination.
pub fn combine_of(operator: oik_operator) -> CallResult<Combine> {
    match operator {
        OIK_SUM => Ok(Combine::Sum),
        OIK_MIN => Ok(Combine::Min),
        OIK_MAX => Ok(Combine::Max),
        _ => Err(only_three(operator, "combine numbers in one step")),
    }
}

/// Returns the operator of a reduction that a barrier brings.
pub fn reduce_op_of(operator: oik_operator) -> CallResult<ReduceOp> {
    match operator {
        OIK_SUM => Ok(ReduceOp::Sum),
        OIK_MIN => Ok(ReduceOp::Min),
        OIK_MAX => Ok(ReduceOp::Max),
        _ => Err(only_three(operator, "travel with a barrier")),
    }
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
