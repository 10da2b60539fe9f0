//! Keeps the programs that `tests/documents.rs` runs equal to those that README and the
//! documentation of `oikaze` show. This is a test file of its own, so that it compiles when those
//! programs do not.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Path of the file with all programs, from the folder of this package.
const PROGRAMS_FILE: &str = "tests/documents/programs.rs";

/// Returns the root of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the files below `folder` with this ending, as sorted paths from the root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Returns the code blocks of a text in Markdown, each with the text that follows the opening
/// fence.
fn blocks<'text>(lines: impl Iterator<Item = &'text str>) -> Vec<(&'text str, String)> {
    let (mut found, mut open) = (Vec::new(), None::<(&str, String)>);
    for line in lines {
        match (line.trim_start().strip_prefix("```"), open.as_mut()) {
            (Some(kind), None) => open = Some((kind.trim(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some((_, text))) => writeln!(text, "{line}").unwrap(),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a code block has no end");
    found
}

/// Returns the documentation in a Rust file, line by line.
fn documentation(text: &str) -> impl Iterator<Item = &str> {
    let comment = |line: &'_ str| line.starts_with("///") || line.starts_with("//!");
    text.lines()
        .map(str::trim_start)
        .filter(move |line| comment(line))
        .map(|line| line[3..].strip_prefix(' ').unwrap_or(&line[3..]))
}

/// Returns the programs that the documents show, by name: file and number of the block there.
fn shown() -> Vec<(String, String)> {
    let mut shown = Vec::new();
    let pages = [
        vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()],
        files("docs", "md"),
        files("spec", "md"),
    ];
    for file in pages.into_iter().flatten() {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let rust = blocks(text.lines())
            .into_iter()
            .filter(|(kind, _)| ["rust", "rust,no_run"].contains(kind));
        shown.extend(
            rust.enumerate().map(|(at, (_, program))| (format!("{file} {}", at + 1), program)),
        );
    }
    for file in files("crates/oikaze/src", "rs") {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let all = blocks(documentation(&text))
            .into_iter()
            .filter(|(kind, _)| !kind.starts_with("compile_fail"));
        // The block of lib.rs is empty here, because it includes the file of README's program.
        for (at, (kind, block)) in all.filter(|(_, block)| !block.is_empty()).enumerate() {
            let name = format!("{file} {}", at + 1);
            assert!(
                ["", "no_run"].contains(&kind),
                "{name}: examples are run; write one that can be"
            );
            let line = |line: &str| {
                if line == "#" {
                    String::new()
                } else {
                    line.strip_prefix("# ").unwrap_or(line).to_owned()
                }
            };
            shown.push((name, block.lines().map(|text| line(text) + "\n").collect()));
        }
    }
    shown
}

/// Returns the source of all programs, with one module for each.
fn source(shown: &[(String, String)]) -> String {
    let mut text = String::from(
        "// Programs that the documents show, written by:\n// OIKAZE_BLESS=1 cargo test -p oikaze-cli --test shown\n\n",
    );
    let mut table = String::new();
    for (name, program) in shown {
        assert!(
            program.contains("fn main("),
            "{name}: a program has a `fn main` (in documentation it may be hidden)"
        );
        let module: String = name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let start = "pub fn start() -> std::process::ExitCode {\nstd::process::Termination::report(main())\n}";
        writeln!(text, "mod {module} {{\n{program}{start}\n}}\n").unwrap();
        let aborts = ["job.abort(", "job.end_with_reason("].iter().any(|end| program.contains(end));
        writeln!(table, "    ({name:?}, {module}::start, {aborts}),").unwrap();
    }
    text + "/// Name, start, and whether the program aborts the job.\npub const PROGRAMS: &[(&str, fn() -> std::process::ExitCode, bool)] = &[\n"
        + &table
        + "];\n"
}

#[test]
fn the_compiled_programs_are_those_shown() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAMS_FILE);
    let source = source(&shown());
    if std::env::var_os("OIKAZE_BLESS").is_some() {
        return fs::write(&file, source).unwrap();
    }
    let why = "the documents have changed: OIKAZE_BLESS=1 cargo test -p oikaze-cli --test shown";
    assert!(fs::read_to_string(&file).unwrap() == source, "{why}");
}

/// `cargo run --example readme` runs this program, and the documentation of the crate begins with
/// it.
#[test]
fn the_example_readme_is_the_program_in_readme() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join("crates/oikaze/examples/readme.rs")).unwrap();
    let rust: Vec<String> = blocks(text.lines())
        .into_iter()
        .filter(|(kind, _)| *kind == "rust")
        .map(|(_, program)| program)
        .collect();
    assert!(
        rust.contains(&example),
        "README.md does not show crates/oikaze/examples/readme.rs as it is"
    );
    let documentation = fs::read_to_string(root().join("crates/oikaze/src/lib.rs")).unwrap();
    assert!(documentation.contains(r#"#![doc = include_str!("../examples/readme.rs")]"#));
}
