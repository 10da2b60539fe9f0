//! Faces of the library, written to files that CI compares: a change of a face is seen in review.
//!
//! | file | face |
//! |---|---|
//! | `docs/api/rust.txt` | public items that [`rust`] reaches from `crates/oikaze/src/lib.rs` |
//! | `docs/api/python.txt` | classes and functions that [`python`] reaches from `__init__.py` |
//! | `bindings/c/include/oikaze.h` | functions of C, by [`crate::header`] |

mod python;
mod rust;
mod tokens;
mod tree;

use crate::checks::ratchet::Measure;
use crate::command::root;
use std::fs;

/// Writes the faces, or checks that the files are what the sources say.
///
/// # Errors
/// A source cannot be read, a file is not that of the sources, or a module of Rust has too many
/// public types.
pub fn run(check: bool) -> Result<(), String> {
    let (rust, types) = rust::face()?;
    let python = python::face()?;
    println!("api: {} items of Rust, {} of Python", rust.len(), python.len());
    for (name, lines) in [("rust.txt", &rust), ("python.txt", &python)] {
        compare(name, &(lines.join("\n") + "\n"), check)?;
    }
    let measure = Measure { name: "public", unit: "public types", limit: 12 };
    measure.check(&types).map_err(|wrong| format!("api:\n    {wrong}"))
}

fn compare(name: &str, text: &str, check: bool) -> Result<(), String> {
    let path = root().join("docs/api").join(name);
    let failed = |why| format!("{}: {why}", path.display());
    if !check {
        return fs::write(&path, text).map_err(failed);
    }
    let kept = fs::read_to_string(&path).map_err(failed)?;
    let differs = kept.lines().zip(text.lines()).position(|(kept, new)| kept != new);
    if kept == text {
        return Ok(());
    }
    let line = differs.unwrap_or_else(|| kept.lines().count().min(text.lines().count())) + 1;
    let new = text.lines().nth(line - 1).unwrap_or("the end of the file");
    Err(format!(
        "{}:{line}: the sources say `{new}`; run `cargo xtask api` and commit what changes",
        path.display()
    ))
}
