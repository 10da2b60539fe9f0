//! Checks what the user's book says of itself and of the sources: its chapters, its links, and the
//! messages in its chapter on errors. A test file of its own, which needs no node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the book's pages.
fn pages() -> PathBuf {
    root().join("docs/book/src")
}

/// Root of the source tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Text of a file.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Targets of the links in a page, outside of code blocks.
fn links(page: &str) -> Vec<String> {
    let mut is_code = false;
    let prose = page.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code
    });
    let joined: String = prose.collect::<Vec<_>>().join("\n");
    let targets = joined.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Anchor that a heading gets: its letters and digits in lower case, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let is_kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let kept: String = heading.trim().chars().filter(is_kept).collect();
    kept.to_lowercase().replace(' ', "-")
}

#[test]
fn summary_lists_every_page_of_the_book_once() {
    let listed = links(&text(&pages().join("SUMMARY.md")));
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "{listed:?}");
    let there = fs::read_dir(pages()).unwrap().map(|entry| entry.unwrap().file_name());
    let there: BTreeSet<String> = there
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    let missing: Vec<_> = there.difference(&unique).collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:?}");
}

#[test]
fn links_of_the_book_lead_to_files_and_headings() {
    let mut count = 0;
    for name in links(&text(&pages().join("SUMMARY.md"))) {
        let page = pages().join(&name);
        for link in links(&text(&page)) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { pages().join(file) };
            assert!(target.exists(), "{name}: {link}");
            let is_there = |line: &str| {
                line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading
            };
            assert!(heading.is_empty() || text(&target).lines().any(is_there), "{name}: {link}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

/// Adds the source files below a folder as one text, in which literals of several lines are joined.
fn read_sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut is_continued = false;
            for line in text(&path).replace("\\\"", "\"").lines() {
                let line = if is_continued { line.trim_start() } else { line };
                let begun = line.strip_suffix('\\');
                is_continued = begun.is_some();
                all.push_str(begun.unwrap_or(line));
                if !is_continued {
                    all.push('\n');
                }
            }
        }
    }
}

/// A reader finds a message by searching the page for its words.
#[test]
fn messages_in_the_chapter_on_errors_are_in_the_sources() {
    let mut all = String::new();
    for folder in ["crates", "cli/src"] {
        read_sources(&root().join(folder), &mut all);
    }
    let page = text(&pages().join("troubleshooting.md"));
    let messages = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut count = 0;
    for message in messages {
        // An ellipsis stands for what differs from case to case.
        for part in message.split('…').map(str::trim) {
            assert!(all.contains(part), "no source has {part:?} of {message:?}");
        }
        count += 1;
    }
    assert!(count >= 25, "{count}");
}

/// Returns a piece of code without spaces, which formatting may move.
fn packed(code: &str) -> String {
    code.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Every call that the chapter for users of MPI names stands in a program of that chapter.
/// `tests/documents.rs` runs these programs.
#[test]
fn calls_in_the_tables_for_mpi_stand_in_programs() {
    let page = text(&pages().join("mpi.md"));
    let mut blocks = page.split("```");
    let mut programs = String::new();
    while let (Some(_), Some(block)) = (blocks.next(), blocks.next()) {
        let (kind, program) = block.split_once('\n').expect("a block has lines");
        assert!(["rust", "rust,no_run"].contains(&kind), "a block of another language: {kind}");
        programs += &packed(program);
    }
    // A `|` inside a cell is escaped.
    let cells = |line: &str| -> Vec<String> {
        let line = line.replace("\\|", "\0");
        line.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
    };
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| `MPI_")) {
        let cells = cells(line);
        let [_, _, _, ours, _] = &cells[..] else { panic!("not three columns: {line}") };
        let call = ours.trim_matches('`');
        assert!(programs.contains(&packed(call)), "no program has `{call}`");
        rows += 1;
    }
    assert!(rows >= 45, "{rows}");
}
