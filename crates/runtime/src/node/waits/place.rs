//! Places of waits: the calls of the program that wait (MEM-21.5).

use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

/// Place of a call that waits, displayed as "src/main.rs:40". A binding may find out the text only
/// when the place is displayed.
pub struct CallPlace(Box<dyn fmt::Display + Send + Sync>);

/// Function of a binding that finds the place of the calling thread's call in the program.
pub type PlaceFinder = fn() -> Option<Box<dyn fmt::Display + Send + Sync>>;

static FINDER: OnceLock<PlaceFinder> = OnceLock::new();

/// Sets the function that finds places of calls in a program of another language. Without one,
/// places are lines of Rust. The function runs on a thread whose wait has lasted long, outside the
/// engine. The first call of this function decides.
///
/// ```
/// # fn main() {
/// oikaze::ffi::find_places_by(|| Some(Box::new("heat.py:40")));
/// # }
/// ```
pub fn find_places_by(finder: PlaceFinder) {
    let _ = FINDER.set(finder);
}

impl CallPlace {
    /// Returns the place of the calling thread's call, which is at `location` in a Rust program.
    pub fn of_call(location: &'static Location<'static>) -> Option<CallPlace> {
        if let Some(find) = FINDER.get() {
            return find().map(CallPlace);
        }
        line_of(location).map(|line| CallPlace(Box::new(line)))
    }
}

#[cfg(all(test, not(loom)))]
impl CallPlace {
    pub fn of_line(location: &'static Location<'static>) -> CallPlace {
        CallPlace(Box::new(SourceLine(location)))
    }
}

impl fmt::Display for CallPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Line of a Rust program, displayed as "src/main.rs:40".
#[derive(Clone, Copy, Debug)]
pub struct SourceLine(&'static Location<'static>);

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}

/// Returns a line of the program. Lines of this library, of its bindings, and of the standard
/// library say nothing to a program's author.
pub fn line_of(location: &'static Location<'static>) -> Option<SourceLine> {
    if FINDER.get().is_some() {
        return None;
    }
    is_of_program(location.file()).then_some(SourceLine(location))
}

fn is_of_program(file: &str) -> bool {
    let own = file!().strip_suffix("node/waits/place.rs").unwrap_or("crates/runtime/src/");
    // Another crate of the library has its sources beside this one's.
    let face =
        own.replace("crates/runtime/", "crates/oikaze/").replace("oikaze-runtime-", "oikaze-");
    !file.starts_with(own)
        && !file.starts_with(&face)
        && !file.starts_with("/rustc/")
        && !file.contains("/rustlib/src/")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// MEM-21.5.
    #[test]
    fn lines_of_libraries_are_no_places_of_a_program() {
        for file in
            [file!(), "crates/oikaze/src/lib.rs", "/rustc/0a1b/library/core/src/ops/function.rs"]
        {
            assert!(!is_of_program(file), "{file}");
        }
        for file in ["src/main.rs", "apps/himeno/src/main.rs", "/home/me/crates/oikaze/src/x.rs"] {
            assert!(is_of_program(file), "{file}");
        }
    }
}
