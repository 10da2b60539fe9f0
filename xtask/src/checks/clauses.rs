//! Checks that code and tests cite every clause of the spec, and that no citation names a missing
//! clause.
//!
//! The practice is that of s2n-quic (duvet), with the clause's number as the link: `WIND-2.3` in a
//! comment. `WIND-2.3, 2.5 and 2.7` and `WIND-2.8 to 2.11` cite each of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::command::root;

/// Name of a clause: its document, section and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Clause {
    document: String,
    section: u32,
    number: u32,
}

impl std::fmt::Display for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}.{}", self.document, self.section, self.number)
    }
}

/// Documents that have clauses.
const DOCUMENTS: [&str; 8] = ["WIRE", "SEAL", "WIND", "MEM", "COH", "COLL", "END", "LAUNCH"];

/// Clauses without a test that proves them. The list only shrinks. Needless entries are reported.
const UNPROVED: &[&str] = &[
    // This clause says what may be read where nothing is promised.
    "COH-1.3",
];

/// Checks all clauses.
///
/// # Errors
/// A clause is not cited, or a citation names a missing clause.
pub fn run() -> Result<(), String> {
    let clauses = spec()?;
    let (mut code, mut tests, mut all) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for folder in ["crates", "cli", "apps", "sim", "fuzz", "bindings"] {
        walk(&root().join(folder), &mut |path, text| {
            let text = &with_joined_comments(text);
            let (of_code, of_tests) = parts(path, text);
            code.extend(citations(of_code));
            // The head of a file names its subject, which one of its tests need not prove.
            tests.extend(
                of_tests.lines().filter(|line| !line.starts_with("//!")).flat_map(citations),
            );
            all.extend(citations(text));
        })?;
    }
    let mut wrong: Vec<String> =
        all.difference(&clauses).map(|cited| format!("{cited} is cited, but not there")).collect();
    for (what, cited, excepted) in [("code", &code, &[][..]), ("test", &tests, UNPROVED)] {
        let excepted: BTreeSet<Clause> = excepted.iter().flat_map(|name| citations(name)).collect();
        let missing =
            clauses.iter().filter(|clause| !cited.contains(clause) && !excepted.contains(clause));
        wrong.extend(missing.map(|clause| format!("{clause} is cited by no {what}")));
        let needless =
            excepted.iter().filter(|clause| cited.contains(clause) || !clauses.contains(clause));
        needless.for_each(|clause| println!("clauses: {clause} need not be excepted any more"));
    }
    println!("clauses: {} in the spec, {} without code or test", clauses.len(), wrong.len());
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("clauses of spec/:\n    {}", wrong.join("\n    ")))
    }
}

/// Returns all clauses of the spec, each of which begins a line such as `- **WIND-2.3** …`.
fn spec() -> Result<BTreeSet<Clause>, String> {
    let mut clauses = BTreeSet::new();
    for name in [
        "wire.md",
        "seal.md",
        "wind.md",
        "memory.md",
        "coherence.md",
        "collective.md",
        "ending.md",
        "launch.md",
    ] {
        let path = root().join("spec").join(name);
        let text = fs::read_to_string(&path)
            .map_err(|why| format!("reading {}: {why}", path.display()))?;
        for line in text.lines().filter_map(|line| line.strip_prefix("- **")) {
            let Some((name, _)) = line.split_once("**") else { continue };
            for clause in citations(name) {
                if !clauses.insert(clause.clone()) {
                    return Err(format!("{clause} is in {} twice", path.display()));
                }
            }
        }
    }
    Ok(clauses)
}

/// Calls `file` with path and text of each file of a folder, in Rust or Python.
fn walk(folder: &Path, file: &mut impl FnMut(&Path, &str)) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("reading {}: {why}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, file)?;
        } else if path.extension().is_some_and(|end| end == "rs" || end == "py") {
            file(&path, &fs::read_to_string(&path).map_err(failed)?);
        }
    }
    Ok(())
}

/// Splits the text of a file into code and tests. The simulator's code counts as neither, because
/// its oracles report only which clause is broken.
fn parts<'t>(path: &Path, text: &'t str) -> (&'t str, &'t str) {
    let inside = path.strip_prefix(root()).unwrap_or(path);
    let all_tests = inside.starts_with("fuzz") || inside.ends_with("tests.rs");
    if all_tests || inside.iter().any(|part| part == "tests" || part == "conformance") {
        return ("", text);
    }
    let (code, tests) = text.split_at(text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len()));
    (if inside.starts_with("sim") { "" } else { code }, tests)
}

/// Returns the text with each block of comment lines as one line, since a list of clauses may be
/// wrapped.
fn with_joined_comments(text: &str) -> String {
    let marker =
        |line: &str| ["//!", "///", "//"].into_iter().find(|marker| line.starts_with(marker));
    let (mut joined, mut before) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        let start = line.trim_start();
        let now = marker(start);
        match now.filter(|_| now == before) {
            Some(marker) => {
                joined.push(' ');
                joined.push_str(start.get(marker.len()..).unwrap_or_default().trim_start());
            }
            None => {
                joined.push('\n');
                joined.push_str(line);
            }
        }
        before = now;
    }
    joined
}

/// Returns all clauses that a text cites.
fn citations(text: &str) -> Vec<Clause> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let name = format!("{document}-");
        for (at, _) in text.match_indices(&name) {
            cited(document, text.get(at + name.len()..).unwrap_or_default(), &mut found);
        }
    }
    found
}

/// Collects `2.3` and the clauses that follow it: `, 2.5 and 2.7`, ` to 2.11`.
fn cited(document: &str, text: &str, found: &mut Vec<Clause>) {
    let clause = |section, number| Clause { document: document.to_owned(), section, number };
    let Some((mut section, mut number, mut rest)) = place(text) else { return };
    found.push(clause(section, number));
    loop {
        let separators = [", and ", ", ", " and ", " to "];
        let Some((separator, after)) =
            separators.iter().find_map(|s| Some((*s, rest.strip_prefix(s)?)))
        else {
            return;
        };
        // A list may repeat the document's name.
        let after =
            after.strip_prefix(document).and_then(|after| after.strip_prefix('-')).unwrap_or(after);
        let Some(next) = place(after) else { return };
        if separator == " to " && next.0 == section {
            found.extend((number + 1..next.1).map(|number| clause(section, number)));
        }
        (section, number, rest) = next;
        found.push(clause(section, number));
    }
}

/// Parses `2.3` and returns it with the rest of the text.
fn place(text: &str) -> Option<(u32, u32, &str)> {
    let (section, rest) = digits(text)?;
    let (number, rest) = digits(rest.strip_prefix('.')?)?;
    Some((section, number, rest))
}

fn digits(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        citations(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn wrapped_list_is_read_as_a_whole() {
        let text = "x();\n    /// WIND-4.1,\n    /// 4.2 and\n    // MEM-1.2\n    y();\n";
        assert_eq!(
            with_joined_comments(text),
            "\nx();\n    /// WIND-4.1, 4.2 and\n    // MEM-1.2\n    y();"
        );
    }

    #[test]
    fn citations_lists_and_ranges() {
        assert_eq!(names("kept here (WIND-2.3)."), ["WIND-2.3"]);
        assert_eq!(
            names("WIND-2.3, 2.5 and 2.7; MEM-1.1"),
            ["WIND-2.3", "WIND-2.5", "WIND-2.7", "MEM-1.1"]
        );
        assert_eq!(names("WIND-2.8 to 2.10"), ["WIND-2.8", "WIND-2.9", "WIND-2.10"]);
        assert_eq!(names("COH-3, WIND-5, version 2.3, WIRE-x"), [""; 0]);
    }

    #[test]
    fn tests_are_told_from_code() {
        let text = "code WIND-1.1\n#[cfg(test)]\nmod tests {\nWIND-1.2";
        let (code, tests) = parts(&root().join("crates/x/src/a.rs"), text);
        assert_eq!(names(code), vec!["WIND-1.1".to_owned()]);
        assert_eq!(names(tests), vec!["WIND-1.2".to_owned()]);
        assert_eq!(parts(&root().join("crates/x/src/tests/a.rs"), text).0, "");
        let (code, tests) = parts(&root().join("sim/src/a.rs"), text);
        assert_eq!((code, names(tests)), ("", vec!["WIND-1.2".to_owned()]));
    }
}
