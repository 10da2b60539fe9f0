//! Threads that come back from work without the interpreter's lock while the interpreter ends.
//!
//! Daemon threads may wait in the library when the interpreter begins to end. A thread that then
//! asks for the interpreter's lock is ended by pthread_exit(3) before Python 3.14, or reads state
//! of the interpreter that was freed. Neither may happen below frames of Rust. So from the end of
//! the program on, threads do not come back: they sleep until the process ends, as Python 3.14 does
//! itself.

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Set once the interpreter ends.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Number of threads that ask for the interpreter's lock.
static COMING_BACK: AtomicUsize = AtomicUsize::new(0);

/// Time between two checks whether threads have come back.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);
/// Maximum number of these checks (about 1 s). A child of fork may have counts of threads that it
/// does not have.
const CHECKS_MAX: u32 = 10_000;

thread_local! {
    /// Set in the thread that ends the interpreter.
    static ENDS_INTERPRETER: Cell<bool> = const { Cell::new(false) };
}

/// Counts a thread that asks for the interpreter's lock, unless the interpreter ends. Then the
/// thread sleeps for good.
struct ComesBack;

impl Drop for ComesBack {
    fn drop(&mut self) {
        // Either `end_threads` sees this count, or this thread sees its mark.
        COMING_BACK.fetch_add(1, Ordering::SeqCst);
        if ENDS.load(Ordering::SeqCst) && !ENDS_INTERPRETER.get() {
            COMING_BACK.fetch_sub(1, Ordering::SeqCst);
            sleep_for_good();
        }
    }
}

/// Ends the count of a thread that has the interpreter's lock again.
struct CameBack;

impl Drop for CameBack {
    fn drop(&mut self) {
        COMING_BACK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work` without the interpreter's lock.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _came_back = CameBack;
    py.detach(|| {
        let _comes_back = ComesBack;
        work()
    })
}

/// Runs `work` with the interpreter's lock, in a thread that gave it up.
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    drop(ComesBack);
    let came_back = CameBack;
    Python::attach(|py| {
        drop(came_back);
        work(py)
    })
}

/// Runs `work` with the interpreter's lock, in a thread that gave it up, unless the interpreter
/// ends.
pub fn attached_unless_ending<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    COMING_BACK.fetch_add(1, Ordering::SeqCst);
    let came_back = CameBack;
    if ENDS.load(Ordering::SeqCst) {
        return None;
    }
    Some(Python::attach(|py| {
        drop(came_back);
        work(py)
    }))
}

/// Arguments of a function of Python, by position.
pub trait Arguments<'py>:
    IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>
{
}

impl<'py, T> Arguments<'py> for T where
    T: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error: Into<PyErr>>
{
}

/// Calls a function written in Python, which may give the interpreter's lock up and not get it
/// back.
pub fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl Arguments<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?;
    let hangs = SleepsForGood;
    // SAFETY: both are objects that live, and NULL stands for no keywords. If Python ends the
    // thread, the unwinding ends in `hangs`.
    let result =
        unsafe { raw::PyObject_Call(function.as_ptr(), arguments.as_ptr(), std::ptr::null_mut()) };
    std::mem::forget(hangs);
    // SAFETY: the call returns a new reference, or NULL after an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

mod raw {
    use pyo3::ffi::PyObject;

    unsafe extern "C-unwind" {
        /// Calls an object. Before Python 3.14 pthread_exit(3) may unwind it.
        pub fn PyObject_Call(
            callable: *mut PyObject,
            arguments: *mut PyObject,
            keywords: *mut PyObject,
        ) -> *mut PyObject;
    }
}

/// Makes a thread that Python ends sleep for good instead. Unwinding may not pass frames of Rust.
struct SleepsForGood;

impl Drop for SleepsForGood {
    fn drop(&mut self) {
        sleep_for_good();
    }
}

fn sleep_for_good() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Makes the interpreter forget what it has noted of a type whose attributes have changed.
#[pyfunction]
pub fn type_modified(kind: &Bound<'_, PyType>) {
    // SAFETY: it is a type that lives.
    unsafe { pyo3::ffi::PyType_Modified(kind.as_type_ptr()) };
}

/// Keeps other threads from coming back to the interpreter, which ends. Called by the thread that
/// ends it, after the program's own functions of `atexit`.
#[pyfunction]
pub fn end_threads(py: Python<'_>) {
    ENDS_INTERPRETER.set(true);
    ENDS.store(true, Ordering::SeqCst);
    // Threads that did not see the mark get the lock meanwhile.
    py.detach(|| {
        let mut checks = 0..CHECKS_MAX;
        while COMING_BACK.load(Ordering::SeqCst) > 0 && checks.next().is_some() {
            std::thread::sleep(CHECK_INTERVAL);
        }
    });
}
