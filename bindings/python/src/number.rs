//! Whole numbers of Python as arguments.

use crate::error::invalid;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBool;

/// Whole numbers that calls take, one or several.
pub trait Number: Sized {
    /// Range of the numbers, for an error.
    const RANGE: &str;
    /// Returns the number of an object.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self>;
}

macro_rules! numbers {
    ($($type:ty, $range:literal)*) => {$(
        impl Number for $type {
            const RANGE: &str = $range;
            fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
                object.extract()
            }
        }
    )*};
}
numbers! {
    u8, "0 to 255"
    u32, "0 to 2**32 - 1"
    u64, "0 to 2**64 - 1"
    usize, "0 to 2**64 - 1"
    i64, "-2**63 to 2**63 - 1"
    i128, "-2**127 to 2**127 - 1"
    (u16, u16), "two ports, 0 to 65535"
}

impl<T: Number> Number for Vec<T> {
    const RANGE: &str = T::RANGE;
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        object.extract::<Vec<Bound<'_, PyAny>>>()?.iter().map(number).collect()
    }
}

/// Returns the number that an argument is: a rank, an offset, a length. One that is out of range,
/// such as a negative rank, is an `oikaze.InvalidError`, and so is a truth value.
pub fn number<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    if object.is_exact_instance_of::<PyBool>() {
        let cause = format!("{object} is a truth value");
        return Err(invalid(object.py(), "taking a number", &cause, &format!("give {}", T::RANGE)));
    }
    word(object)
}

/// Returns the number that an argument is which becomes a value in memory. A truth value is 0 or 1.
pub fn word<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    T::of(object).map_err(|error| {
        let py = object.py();
        if !error.is_instance_of::<PyOverflowError>(py) {
            return error;
        }
        let cause = format!("{object} is out of range");
        invalid(py, "taking a number", &cause, &format!("give {}", T::RANGE))
    })
}

/// Returns the number that an argument is, or `None`.
pub fn optional<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { number(object).map(Some) }
}
