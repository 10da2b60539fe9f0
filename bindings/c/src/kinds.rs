//! Types of elements, and operators that combine them.

use crate::call::{CallError, CallResult};
use oikaze::atomic::Combine;
use oikaze::collective::ReduceOp;
use oikaze::ffi::{Accumulation, ElementKind, UntypedOperator};

/// Type of elements. Values of another type, such as a struct, are moved as `OIK_U8`, and the count
/// is then their size in bytes.
pub type oik_kind = u32;
/// Elements of type `uint8_t`.
pub const OIK_U8: oik_kind = 1;
/// Elements of type `int8_t`.
pub const OIK_I8: oik_kind = 2;
/// Elements of type `uint16_t`.
pub const OIK_U16: oik_kind = 3;
/// Elements of type `int16_t`.
pub const OIK_I16: oik_kind = 4;
/// Elements of type `uint32_t`.
pub const OIK_U32: oik_kind = 5;
/// Elements of type `int32_t`.
pub const OIK_I32: oik_kind = 6;
/// Elements of type `uint64_t`.
pub const OIK_U64: oik_kind = 7;
/// Elements of type `int64_t`.
pub const OIK_I64: oik_kind = 8;
/// Elements of type `float`.
pub const OIK_F32: oik_kind = 9;
/// Elements of type `double`.
pub const OIK_F64: oik_kind = 10;
/// Elements of type `bool`.
pub const OIK_BOOL: oik_kind = 11;
/// Elements of type `float complex`.
pub const OIK_C64: oik_kind = 12;
/// Elements of type `double complex`.
pub const OIK_C128: oik_kind = 13;

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

/// Returns a type of elements by its number in the header.
pub fn kind_of(kind: oik_kind) -> CallResult<ElementKind> {
    Ok(match kind {
        OIK_U8 => ElementKind::U8,
        OIK_I8 => ElementKind::I8,
        OIK_U16 => ElementKind::U16,
        OIK_I16 => ElementKind::I16,
        OIK_U32 => ElementKind::U32,
        OIK_I32 => ElementKind::I32,
        OIK_U64 => ElementKind::U64,
        OIK_I64 => ElementKind::I64,
        OIK_F32 => ElementKind::F32,
        OIK_F64 => ElementKind::F64,
        OIK_BOOL => ElementKind::Bool,
        OIK_C64 => ElementKind::Complex64,
        OIK_C128 => ElementKind::Complex128,
        _ => return Err(CallError::invalid(format!("kind {kind} is unknown; use OIK_F64 …"))),
    })
}

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
