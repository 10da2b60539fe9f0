//! Places of calls in a Python program: file and line of the innermost frame outside this package.

use crate::finalization::attached_unless_ending;
use oikaze::ffi::find_places_by;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;

thread_local! {
    /// Place of the call for which this thread of the binding's own works.
    static CALLER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes explanations of long waits name the calls of the program. Frames are looked at only when a
/// wait has lasted long.
pub fn name_calls() {
    find_places_by(|| of_thread().map(|place| Box::new(place) as Box<dyn Display + Send + Sync>));
}

/// Sets the place for which the calling thread works from now on.
pub fn work_for(place: Option<String>) {
    let _ = CALLER.try_with(|caller| *caller.borrow_mut() = place);
}

fn of_thread() -> Option<String> {
    let for_another = CALLER.try_with(|caller| caller.borrow().clone()).ok().flatten();
    for_another.or_else(|| attached_unless_ending(of_call).flatten())
}

/// Returns the place of the running call, such as "heat.py:40". Files below the current folder are
/// named from there.
pub fn of_call(py: Python<'_>) -> Option<String> {
    let package = py.import("oikaze").ok()?.getattr("__file__").ok()?.extract::<String>().ok()?;
    let package = Path::new(&package).parent()?;
    let mut frame = py.import("sys").ok()?.call_method0("_getframe").ok()?;
    while !frame.is_none() {
        let file = frame.getattr("f_code").ok()?.getattr("co_filename").ok()?;
        let file = file.extract::<String>().ok()?;
        if !Path::new(&file).starts_with(package) {
            let line = frame.getattr("f_lineno").ok()?.extract::<u32>().ok()?;
            let here = std::env::current_dir().unwrap_or_default();
            let file = Path::new(&file).strip_prefix(&here).unwrap_or(Path::new(&file));
            return Some(format!("{}:{line}", file.display()));
        }
        frame = frame.getattr("f_back").ok()?;
    }
    None
}
