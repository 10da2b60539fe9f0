//! Arguments of Python's calls: whole numbers, texts, objects of this package.
//!
//! An argument is taken within the call, and not by its signature, so that an error names the call.

use crate::interpreter::error::{invalid, wrong_type};
use pyo3::PyTypeCheck;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

/// Argument of a call, as the program passed it.
pub type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Whole numbers that calls take, one or several.
pub trait Number: Sized {
    /// Range of the numbers, for an error.
    const RANGE: &str;
    /// Returns the number of an object.
    fn of(object: Object) -> PyResult<Self>;
}

macro_rules! numbers {
    ($($type:ty, $range:literal)*) => {$(
        impl Number for $type {
            const RANGE: &str = $range;
            fn of(object: Object) -> PyResult<Self> {
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
    isize, "-2**63 to 2**63 - 1"
    i128, "-2**127 to 2**127 - 1"
    (u16, u16), "two ports, 0 to 65535"
}

/// Returns the number that an argument is: a rank, an offset, a length. One that is out of range,
/// such as a negative rank, is an `oikaze.InvalidError`, and so is a truth value.
pub fn number<T: Number>(object: Object, operation: &str, name: &str) -> PyResult<T> {
    if object.is_exact_instance_of::<PyBool>() {
        let cause = format!("{name} is {object}, a truth value");
        return Err(invalid(object.py(), operation, &cause, &format!("give {}", T::RANGE)));
    }
    word(object, operation, name)
}

/// Returns the number that an argument is which becomes a value in memory. A truth value is 0 or 1.
pub fn word<T: Number>(object: Object, operation: &str, name: &str) -> PyResult<T> {
    T::of(object).map_err(|error| {
        let (py, remedy) = (object.py(), format!("give {}", T::RANGE));
        let shown = shown(object);
        if error.is_instance_of::<PyOverflowError>(py) {
            let cause = format!("{name} is {shown}, which is out of range");
            return invalid(py, operation, &cause, &remedy);
        }
        let cause = format!("{name} is {shown}, which is not a whole number");
        wrong_type(py, operation, &cause, &remedy)
    })
}

/// Returns the number that an argument is, or `None`.
pub fn optional<T: Number>(
    object: Option<Object>,
    operation: &str,
    name: &str,
) -> PyResult<Option<T>> {
    let given = object.filter(|object| !object.is_none());
    given.map(|object| number(object, operation, name)).transpose()
}

/// Returns the numbers that a sequence is.
pub fn numbers<T: Number>(objects: Object, operation: &str, name: &str) -> PyResult<Vec<T>> {
    let Ok(objects) = objects.extract::<Vec<Bound<'_, PyAny>>>() else {
        let cause = format!("{name} is {}, which is not a sequence", shown(objects));
        let remedy = format!("give a list of whole numbers, {}", T::RANGE);
        return Err(wrong_type(objects.py(), operation, &cause, &remedy));
    };
    objects.iter().map(|object| number(object, operation, name)).collect()
}

/// Returns the text that an argument is.
pub fn text<'a>(object: &'a Bound<'_, PyAny>, operation: &str, name: &str) -> PyResult<&'a str> {
    let Ok(text) = object.cast::<PyString>() else {
        let cause = format!("{name} is {}, which is not a text", shown(object));
        return Err(wrong_type(object.py(), operation, &cause, "give a str"));
    };
    text.to_str().named(object.py(), operation)
}

/// Returns the object of this package that an argument is. `what` says what makes one.
pub fn object<'a, 'py, T: PyTypeCheck>(
    object: &'a Bound<'py, PyAny>,
    operation: &str,
    name: &str,
    what: &str,
) -> PyResult<&'a Bound<'py, T>> {
    object.cast::<T>().map_err(|_| {
        let cause = format!("{name} is {}, of another type", shown(object));
        wrong_type(object.py(), operation, &cause, &format!("give {what}"))
    })
}

/// Returns a short text of an object.
fn shown(object: Object) -> String {
    /// Length in characters from which on the text is cut.
    const LONGEST: usize = 60;
    let Ok(text) = object.repr() else { return "an object without a text".to_owned() };
    let text = text.to_string_lossy();
    if text.chars().count() <= LONGEST {
        return text.into_owned();
    }
    text.chars().take(LONGEST).chain("...".chars()).collect()
}

/// Results whose exceptions get the name of the operation.
pub trait Named<T> {
    /// Names the operation in an exception that is none of this package.
    fn named(self, py: Python<'_>, operation: &str) -> PyResult<T>;
}

impl<T> Named<T> for PyResult<T> {
    fn named(self, py: Python<'_>, operation: &str) -> PyResult<T> {
        self.map_err(|error| {
            let is_type = error.is_instance_of::<PyTypeError>(py);
            let is_ours = error.value(py).hasattr("operation").unwrap_or(true);
            if is_ours || !(is_type || error.is_instance_of::<PyValueError>(py)) {
                return error;
            }
            let text = error.value(py).to_string();
            let (cause, remedy) = text.split_once("; ").unwrap_or((&text, "see its documentation"));
            let made = if is_type { wrong_type } else { invalid };
            let made = made(py, operation, cause, remedy);
            made.set_cause(py, Some(error));
            made
        })
    }
}
