//! Exceptions of the package, made of errors of the library.

use crate::interpreter::finalization::{Arguments, call};
use oikaze::Error;
use oikaze::ffi::{ErrorClass, ErrorParts};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Module that defines the exceptions, in Python, so that they can have two base classes.
const MODULE: &str = "oikaze._errors";

/// Returns the name of the exception of a class.
fn name(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Timeout => "TimeoutError",
        ErrorClass::PeerLost | ErrorClass::PeerLeaving => "PeerLostError",
        ErrorClass::Refused => "RefusedError",
        ErrorClass::Full => "FullError",
        ErrorClass::QueueFull => "QueueFullError",
        ErrorClass::Left => "LeftError",
        ErrorClass::Aborted => "AbortedError",
        ErrorClass::Forked => "ForkedError",
        ErrorClass::Mismatch => "MismatchError",
        ErrorClass::Unreported => "UnreportedError",
        ErrorClass::Cancelled => "CancelledError",
        ErrorClass::Join => "JoinError",
        ErrorClass::Memory => "OutOfMemoryError",
        ErrorClass::Invalid | ErrorClass::TooSmall => "InvalidError",
        ErrorClass::System => "SystemCallError",
    }
}

/// Returns the function of `oikaze._errors` that makes an exception.
fn maker(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MAKER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    MAKER
        .get_or_try_init(py, || Ok(py.import(MODULE)?.getattr("make")?.unbind()))
        .map(|maker| maker.bind(py))
}

/// Makes an exception from its parts, in Python.
fn made<'py>(py: Python<'py>, parts: impl Arguments<'py>) -> PyErr {
    let made = maker(py).and_then(|maker| call(maker, parts));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// Makes the exception of an error of the library.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    exception_of_call(py, error, "")
}

/// Makes the exception of a collective. If the ranks called different things, it also says what
/// this rank passed.
pub fn exception_of_call(py: Python<'_>, error: &Error, meaning: &str) -> PyErr {
    let ErrorParts { operation, mut cause, remedy } = error.parts();
    let mut text = error.to_string();
    if !meaning.is_empty() && matches!(error.class(), ErrorClass::Mismatch) {
        let longer = format!("{cause} (this rank passes {meaning})");
        text = text.replacen(&cause, &longer, 1);
        cause = longer;
    }
    let refusal = error.refusal().map(|reason| reason.to_string());
    let class = name(error.class());
    let (peer, unreported) = (error.lost_peer(), error.unreported());
    made(py, (class, text, operation, cause, remedy, peer, refusal, unreported))
}

/// Makes the exception of arguments that do not fit.
pub fn invalid(py: Python<'_>, operation: &str, cause: &str, remedy: &str) -> PyErr {
    exception(py, &Error::invalid(operation, format!("{cause}; {remedy}")))
}

/// Makes the exception of an argument of another type than the call takes.
pub fn wrong_type(py: Python<'_>, operation: &str, cause: &str, remedy: &str) -> PyErr {
    let text = format!("{operation}: {cause}; {remedy}");
    made(py, ("ArgumentTypeError", text, operation, cause, remedy))
}

/// Results of the library as results of Python.
pub trait OrRaise<T> {
    /// Returns the value, or the exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error.into()))
    }
}

/// Makes the exception of a call after this process has left its job.
pub fn left(py: Python<'_>) -> PyErr {
    let (operation, cause) = ("using the job", "this process has left it");
    let remedy = "leave last, or join again if this job was of one node";
    let text = format!("{operation}: {cause}; {remedy}");
    let nothing: Option<u32> = None;
    made(py, ("LeftError", text, operation, cause, remedy, nothing, nothing, nothing))
}
