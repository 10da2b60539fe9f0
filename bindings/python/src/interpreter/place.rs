//! Places of calls in a Python program: file and line of the innermost frame outside this package.

use crate::interpreter::finalization::attached_unless_ending;
use oikaze::ffi::find_places_by;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

/// Function that takes exceptions of signals' handlers.
static KEEP: OnceLock<fn(PyErr)> = OnceLock::new();

thread_local! {
    /// Place of the call for which this thread of the binding's own works.
    static CALLER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes explanations of long waits name the calls of the program. Frames are looked at only when a
/// wait has lasted long.
///
/// `keep` takes exceptions of signals' handlers that come meanwhile.
pub fn name_calls(keep: fn(PyErr)) {
    let _ = KEEP.set(keep);
    find_places_by(|| of_thread().map(|place| Box::new(place) as Box<dyn Display + Send + Sync>));
}

/// Sets the place for which the calling thread works from now on.
pub fn work_for(place: Option<String>) {
    let _ = CALLER.try_with(|caller| *caller.borrow_mut() = place);
}

fn of_thread() -> Option<String> {
    let for_another = CALLER.try_with(|caller| caller.borrow().clone()).ok().flatten();
    for_another.or_else(|| match attached_unless_ending(of_call)? {
        Ok(place) => place,
        Err(error) => {
            if let Some(keep) = KEEP.get() {
                keep(error);
            }
            None
        }
    })
}

/// Returns the place of the running call, such as "heat.py:40". Files below the current folder are
/// named from there.
///
/// # Errors
/// A signal's handler has raised an exception. The interpreter calls handlers between two steps of
/// Python, and this function takes some (imports, audit hooks).
pub fn of_call(py: Python<'_>) -> PyResult<Option<String>> {
    let package = py.import("oikaze")?.getattr("__file__")?.extract::<String>()?;
    let Some(package) = Path::new(&package).parent() else { return Ok(None) };
    let mut frame = py.import("sys")?.call_method0("_getframe")?;
    while !frame.is_none() {
        let file = frame.getattr("f_code")?.getattr("co_filename")?.extract::<String>()?;
        if !Path::new(&file).starts_with(package) {
            let line = frame.getattr("f_lineno")?.extract::<u32>()?;
            let here = std::env::current_dir().unwrap_or_default();
            let file = Path::new(&file).strip_prefix(&here).unwrap_or(Path::new(&file));
            return Ok(Some(format!("{}:{line}", file.display())));
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(None)
}
