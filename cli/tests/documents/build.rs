//! Writes the programs that README, the book and the documentation of `oikaze` show to a file that
//! `lib.rs` includes.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages and folders of pages.
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "docs", "spec"];

/// Folder of the sources whose documentation shows programs.
const SOURCES: &str = "crates/oikaze/src";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for path in PAGES.iter().chain([&SOURCES]) {
        println!("cargo::rerun-if-changed={}", root().join(path).display());
    }
    let file = Path::new(&std::env::var_os("OUT_DIR").unwrap()).join("programs.rs");
    fs::write(file, source(&shown())).unwrap();
}

/// Returns the root of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned()
}

/// Returns the file `path`, or the files below it with this ending, as sorted paths from the root.
fn files(path: &str, ending: &str) -> Vec<String> {
    let (mut found, mut paths) = (Vec::new(), vec![PathBuf::from(path)]);
    while let Some(path) = paths.pop() {
        if root().join(&path).is_dir() {
            let entries = fs::read_dir(root().join(&path)).unwrap();
            paths.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path.to_str().unwrap().to_owned());
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
    for file in PAGES.into_iter().flat_map(|pages| files(pages, "md")) {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let rust = blocks(text.lines())
            .into_iter()
            .filter(|(kind, _)| ["rust", "rust,no_run"].contains(kind));
        shown.extend(
            rust.enumerate().map(|(at, (_, program))| (format!("{file} {}", at + 1), program)),
        );
    }
    for file in files(SOURCES, "rs") {
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
    let (mut text, mut table) = (String::new(), String::new());
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
