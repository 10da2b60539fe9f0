//! Folders hold few source files, and no name stands beside its plural.

use super::ratchet::{self, Measure};
use crate::command::{Step, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of source files directly in a folder: where there are more, a concept is missing.
const FILES_MAX: usize = 14;
/// Endings of source files.
const SOURCES: &[&str] = &["rs", "py", "c", "cc", "h"];

/// Checks all folders of the repository, and the history of all ceilings.
///
/// # Errors
/// Git cannot be asked, a folder has too many files, a singular stands beside its plural, or a
/// ceiling was raised.
pub fn run() -> Result<(), String> {
    let listed = Step::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = listed.output()?;
    let files: Vec<&Path> =
        listed.lines().map(Path::new).filter(|file| root().join(file).exists()).collect();
    println!("folders: {} files", files.len());
    let measure = Measure { name: "files", unit: "source files", limit: FILES_MAX };
    measure.check(&counts(&files)).map_err(|wrong| format!("folders:\n    {wrong}"))?;
    let measure = Measure { name: "plural", unit: "names beside their plural", limit: 0 };
    measure.check(&plurals(&files)).map_err(|wrong| format!("folders:\n    {wrong}"))?;
    ratchet::history().map_err(|wrong| format!("folders: {wrong}"))
}

fn is_source(file: &Path) -> bool {
    file.extension().is_some_and(|end| SOURCES.iter().any(|source| end == *source))
}

/// Returns the number of source files directly in each folder.
fn counts(files: &[&Path]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        *counts.entry(folder(file)).or_default() += 1;
    }
    counts
}

/// Returns the number of source files and folders in each folder whose plural is there, too.
fn plurals(files: &[&Path]) -> BTreeMap<String, usize> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        for path in file.ancestors() {
            if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
                names.entry(folder(path)).or_default().insert(name);
            }
        }
    }
    let pairs = |names: BTreeSet<&str>| {
        names.iter().filter(|name| names.contains(format!("{name}s").as_str())).count()
    };
    names.into_iter().map(|(folder, names)| (folder, pairs(names))).collect()
}

fn folder(path: &Path) -> String {
    let parent = path.parent().and_then(Path::to_str).unwrap_or_default();
    if parent.is_empty() { ".".to_owned() } else { parent.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&'static str]) -> Vec<&'static Path> {
        names.iter().copied().map(Path::new).collect()
    }

    #[test]
    fn source_files_directly_in_a_folder_are_counted() {
        let counts = counts(&paths(&["a/b.rs", "a/c.py", "a/d.json", "a/e/f.rs", "g.md"]));
        assert_eq!((counts["a"], counts["a/e"], counts.len()), (2, 1, 2));
    }

    #[test]
    fn singular_beside_its_plural_is_found_for_files_and_folders() {
        let pairs = plurals(&paths(&["a/peer.rs", "a/peers/mod.rs", "b/homes.rs", "c/home.rs"]));
        assert_eq!((pairs["a"], pairs["b"], pairs["c"]), (1, 0, 0));
    }
}
