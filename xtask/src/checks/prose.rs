//! Checks what a program can check of the style: banned words and openers, width, length of sentences
//! and of documentation, paths in documents, commit subjects.

use super::ratchet::Measure;
use crate::command::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Maximum number of characters in a line of a comment or a document; tables and code blocks apart.
const WIDTH: usize = 100;
/// Maximum number of words in a sentence of a document. Code counts as one word.
const SENTENCE: usize = 35;
/// Minimum number of words in the documentation of an item, clauses apart.
const DOC_WORDS: usize = 3;
/// Maximum number of characters in the subject of a commit.
const SUBJECT: usize = 72;
/// Commits up to this one are older than the rule for subjects.
const BEFORE_SUBJECTS: &str = "6ced448";
/// Beginnings of private words for which the field has standard ones (docs/GLOSSARY.md).
const WORDS: &[&str] = &[
    "favourite",
    "straggler",
    "doorway",
    "passage",
    "glance",
    "mourn",
    "bury",
    "heed",
    "turnstile",
    "foresight",
    "neighbour",
];
/// Words with which no documentation begins: it says first what the thing is or does.
const OPENERS: &[&str] = &["Who", "Whose", "Whom", "Whoever", "Whatever", "What", "Of", "That"];

/// Forms of a verb that take "not" where English negates a noun: "is not an error".
const COPULAS: &[&str] = &["is", "are", "was", "were", "be", "been"];
/// Words before which "is no" is English: "is no longer", "is no more than".
const AFTER_NO: &[&str] =
    &["longer", "more", "less", "fewer", "one", "such", "other", "better", "matter"];

/// Checks all tracked files, and the subjects of new commits.
///
/// # Errors
/// Git cannot be asked, or lines break a rule.
pub fn run() -> Result<(), String> {
    let (mut wrong, mut counts, mut advice) = (Vec::new(), BTreeMap::new(), Vec::new());
    // This file names what it forbids.
    let files = git(&["ls-files"])?;
    let paths = Paths::of(&files);
    let checked =
        |name: &&str| *name != file!() && (name.ends_with(".rs") || name.ends_with(".md"));
    for name in files.lines().filter(checked) {
        let Ok(text) = fs::read_to_string(root().join(name)) else { continue };
        let mut found = if name.ends_with(".rs") { in_code(&text) } else { in_document(&text) };
        found.extend(paths.missing(&text, name.ends_with(".rs")));
        wrong.extend(found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
        for (line, what) in calques(&text) {
            *counts.entry(area(name)).or_insert(0) += 1;
            advice.push(format!("{name}:{line}: {what}"));
        }
    }
    wrong.extend(subjects()?);
    let measure =
        Measure { name: "calque", unit: "times \"is no X\" for \"is not a X\"", limit: 0 };
    if let Err(above) = measure.check(&counts) {
        wrong.push(above);
        wrong.extend(advice);
    }
    println!("prose: {} lines break a rule", wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(format!("prose:\n    {}", wrong.join("\n    "))) }
}

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root()).args(arguments).output();
    let output = output.map_err(|why| format!("git {arguments:?}: {why}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("git {arguments:?}: {why}"));
    }
    String::from_utf8(output.stdout).map_err(|why| format!("git {arguments:?}: {why}"))
}

/// Checks commits since the rule began. A shallow clone knows only some of them.
fn subjects() -> Result<Vec<String>, String> {
    let is_known = git(&["cat-file", "-e", BEFORE_SUBJECTS]).is_ok();
    let range = format!("{BEFORE_SUBJECTS}..HEAD");
    let log = git(&["log", "--no-merges", "--format=%h %s", if is_known { &range } else { "-1" }])?;
    let long = |line: &&str| {
        line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > SUBJECT)
    };
    let long = log.lines().filter(long);
    Ok(long.map(|line| format!("commit {line}: subject of more than {SUBJECT} letters")).collect())
}

/// Returns the part of the tree that has a ceiling of its own: a crate, or a folder at the root.
fn area(name: &str) -> String {
    let depth = if name.starts_with("crates/") || name.starts_with("bindings/") { 2 } else { 1 };
    name.split('/').take(depth).collect::<Vec<_>>().join("/")
}

/// Returns each "is no X" of a text, with what to write instead. "There is no X" is English, and
/// so is "is no larger than".
fn calques(text: &str) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words: Vec<(usize, &str)> = (1..)
        .zip(text.lines())
        .flat_map(|(line, text)| {
            let words = text.split(move |c| !is_word(c));
            words.filter(|word| word.contains(char::is_alphanumeric)).map(move |word| (line, word))
        })
        .collect();
    let mut found = Vec::new();
    for (at, three) in words.windows(3).enumerate() {
        let [(_, verb), (line, "no"), (_, noun)] = three else { continue };
        let exists = words[at.saturating_sub(3)..at].iter();
        let exists = exists.map(|(_, word)| word).any(|word| word.eq_ignore_ascii_case("there"));
        let compares = words.get(at + 3).is_some_and(|(_, word)| *word == "than");
        let is_noun = noun.starts_with(|c: char| c.is_ascii_lowercase());
        if COPULAS.contains(verb) && is_noun && !AFTER_NO.contains(noun) && !exists && !compares {
            let article = if matches!(*verb, "are" | "were") { "" } else { " a" };
            found
                .push((*line, format!("write \"{verb} not{article} …\" for \"{verb} no {noun}\"")));
        }
    }
    found
}

fn in_code(text: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let mut follows_comment = false;
    for (line, text) in (1..).zip(text.lines()) {
        wrong.extend(banned_word(text).map(|word| (line, format!("private word {word:?}"))));
        let comment = text.trim_start().strip_prefix("//");
        let is_table = comment.is_some_and(|comment| {
            comment.trim_start_matches(['/', '!']).trim_start().starts_with('|')
        });
        if comment.is_some() && !is_table && text.chars().count() > WIDTH {
            wrong.push((line, format!("comment wider than {WIDTH} columns")));
        }
        let doc = comment.and_then(|comment| comment.strip_prefix(['/', '!']));
        let opener = doc.filter(|_| !follows_comment).and_then(opener);
        wrong.extend(opener.map(|word| (line, format!("documentation begins with {word:?}"))));
        follows_comment = doc.is_some_and(|doc| !doc.trim().is_empty());
    }
    wrong.extend(short_docs(text));
    wrong
}

/// Returns the places of documentation that is too short to say anything. A test may cite only the
/// clause that it proves, and an item may refer to another.
fn short_docs(text: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let (mut words, mut cites) = (0, false);
    for (line, text) in (1..).zip(text.lines().chain([""])) {
        let text = text.trim_start();
        if let Some(doc) = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")) {
            words += doc.split_whitespace().count();
            cites |= doc.contains("See [")
                || doc.split(|c: char| !c.is_alphanumeric() && c != '-').any(is_clause);
        } else {
            if (1..DOC_WORDS).contains(&words) && !cites {
                wrong.push((line - 1, format!("documentation of less than {DOC_WORDS} words")));
            }
            (words, cites) = (0, false);
        }
    }
    wrong
}

/// Returns `true` if the word is the beginning of a clause, such as `MEM-4`.
fn is_clause(word: &str) -> bool {
    word.split_once('-').is_some_and(|(part, number)| {
        part.len() >= 3
            && part.chars().all(|c| c.is_ascii_uppercase())
            && number.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Returns the long sentences of a document, each with the line at which its paragraph begins.
fn long_sentences(text: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let (mut paragraph, mut start, mut in_block) = (String::new(), 1, false);
    for (line, text) in (1..).zip(text.lines().chain([""])) {
        let is_fence = text.trim_start().starts_with("```");
        in_block ^= is_fence;
        let trimmed = text.trim_start();
        let is_item = trimmed.starts_with("- ")
            || trimmed.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let is_prose =
            !in_block && !is_fence && !trimmed.is_empty() && !trimmed.starts_with(['|', '#']);
        if !is_prose || is_item {
            let long = sentences(&paragraph).filter(|words| *words > SENTENCE);
            wrong.extend(long.map(|words| (start, format!("sentence of {words} words"))));
            paragraph.clear();
        }
        if is_prose {
            if paragraph.is_empty() {
                start = line;
            }
            paragraph.push_str(trimmed);
            paragraph.push(' ');
        }
    }
    wrong
}

/// Returns the number of words of each sentence.
fn sentences(paragraph: &str) -> impl Iterator<Item = usize> {
    // Every second part is code.
    let plain: String = paragraph
        .split('`')
        .enumerate()
        .map(|(index, part)| if index % 2 == 0 { part } else { "code" })
        .collect();
    let mut counts = vec![0];
    for word in plain.split_whitespace() {
        if let Some(count) = counts.last_mut()
            && word.contains(char::is_alphanumeric)
        {
            *count += 1;
        }
        if word.trim_end_matches(['*', ')', '"', ']']).ends_with(['.', '!', '?', ':']) {
            counts.push(0);
        }
    }
    counts.into_iter()
}

fn in_document(text: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let mut in_block = false;
    for (line, text) in (1..).zip(text.lines()) {
        wrong.extend(banned_word(text).map(|word| (line, format!("private word {word:?}"))));
        in_block ^= text.trim_start().starts_with("```");
        let is_prose = !in_block && !text.trim_start().starts_with('|');
        if is_prose && text.chars().count() > WIDTH {
            wrong.push((line, format!("wider than {WIDTH} columns")));
        }
    }
    wrong.extend(long_sentences(text));
    wrong
}

/// Files and folders of the repository, as documents and comments may name them.
struct Paths(Vec<String>);

impl Paths {
    fn of(files: &str) -> Paths {
        let mut paths = BTreeSet::new();
        for file in files.lines() {
            for path in Path::new(file).ancestors().filter_map(Path::to_str) {
                let path = format!("/{}", path.strip_suffix(".rs").unwrap_or(path));
                paths.insert(path.replace("/src/", "/"));
                paths.insert(path);
            }
        }
        Paths(paths.into_iter().collect())
    }

    /// Returns the paths in code spans of a document, or of the comments of code, that end no path
    /// here. The beginning of a path, its folder `src`, and `.rs` may be left out:
    /// `engine/ops/fence`.
    fn missing(&self, text: &str, is_code: bool) -> Vec<(usize, String)> {
        let mut wrong = Vec::new();
        let mut is_program = false;
        for (line, text) in (1..).zip(text.lines()) {
            is_program ^= !is_code && text.starts_with("```");
            if is_program || (is_code && !text.trim_start().starts_with("//")) {
                continue;
            }
            for span in text.split('`').skip(1).step_by(2).filter(|span| is_path(span)) {
                let missing = alternatives(span).into_iter().filter(|path| {
                    let path = path.trim_end_matches('/');
                    let end = format!("/{}", path.strip_suffix(".rs").unwrap_or(path));
                    !self.0.iter().any(|path| path.ends_with(&end))
                });
                wrong.extend(missing.map(|path| (line, format!("no file or folder {path:?}"))));
            }
        }
        wrong
    }
}

/// Returns `true` for what looks like a path within the repository: words of small letters with
/// slashes between them.
fn is_path(span: &str) -> bool {
    let (first, last) = (span.split('/').next(), span.trim_end_matches('/').rsplit('/').next());
    let is_word = |word: Option<&str>| {
        word.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_lowercase() || c == '{'))
    };
    span.trim_end_matches('/').contains('/')
        && is_word(first)
        && is_word(last)
        && span.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.{,}".contains(c))
}

/// Returns the paths of a pattern such as `a/{b,c}.rs`.
fn alternatives(pattern: &str) -> Vec<String> {
    match pattern.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, after))) => {
            names.split(',').map(|name| format!("{before}{name}{after}")).collect()
        }
        None => vec![pattern.to_owned()],
    }
}

fn opener(doc: &str) -> Option<&'static str> {
    let first = doc.trim_start().split(|c: char| !c.is_alphanumeric()).next();
    OPENERS.iter().find(|opener| first == Some(**opener)).copied()
}

/// Returns the private word that a word of this line begins with.
fn banned_word(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    words.find_map(|word| WORDS.iter().find(|banned| word.starts_with(**banned)).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_that_begins_with_a_relative_is_found() {
        let code =
            "/// Whose it is.\nlet x = 1;\n/// Returns it,\n/// Whatever it is.\n//! Of all.\n";
        let lines: Vec<usize> = in_code(code).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1], "a line in the middle of a comment is no opener");
    }

    #[test]
    fn documentation_of_two_words_is_found_unless_it_cites_a_clause() {
        let code = "/// In µs.\nu: u64,\n/// MEM-4.8.\nfn a() {}\n/// Time in µs.\nt: u64,\n";
        assert_eq!(short_docs(code), [(1, "documentation of less than 3 words".to_owned())]);
    }

    #[test]
    fn long_sentence_is_found_with_its_paragraph() {
        let long = "word ".repeat(SENTENCE + 1);
        let fits = "word ".repeat(SENTENCE);
        let text = format!("A title.\n\n{long}.\n\n- {fits}.\n- {long}: {fits}.\n\n| {long} |\n");
        let lines: Vec<usize> = long_sentences(&text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [3, 6]);
        assert_eq!(long_sentences(&format!("Run `{long}` now.\n")), []);
    }

    #[test]
    fn path_in_a_document_leads_to_a_file() {
        let paths = Paths::of("crates/a/src/b/c.rs\ncrates/a/src/b/d.rs\ndocs/e.md");
        let lines = |text: &str, is_code| -> Vec<usize> {
            paths.missing(text, is_code).into_iter().map(|(line, _)| line).collect()
        };
        let text = "`a/b/c.rs`, `crates/a/src/b/{c,x}.rs` and `b/c.rs`\n`a::b` `c.rs` `y/c.rs`\n";
        assert_eq!(lines(text, false), [1, 2]);
        let folders = "`crates/a`, `a/b/`, `a/b/c` and `docs/e.md`\n`a/x`\n`./x/y` `A/b`\n";
        assert_eq!(lines(folders, false), [2]);
        assert!(lines("```\n`y/c`\n```\n", false).is_empty());
        assert_eq!(lines("let path = `y/c`;\n// See `y/c`.\n", true), [2]);
    }

    #[test]
    fn private_words_are_found_in_names_and_text() {
        let code = format!("fn is_{}() {{}}\n// a {}s\n", "favourite", "neighbour");
        assert_eq!(in_code(&code).len(), 2);
        assert_eq!(in_code("let buried = unburied;\n"), []);
    }

    #[test]
    fn negated_noun_is_found_with_what_to_write() {
        let no = "no";
        let found = calques(&format!("/// It is {no} file, and that\n/// was\n/// {no} port.\n"));
        let file = "write \"is not a …\" for \"is no file\"".to_owned();
        let port = "write \"was not a …\" for \"was no port\"".to_owned();
        assert_eq!(found, [(1, file), (3, port)]);
        assert_eq!(calques(&format!("They `are` {no} ports.")).len(), 1);
        for text in ["There is", "\"there may be", "where there\n/// would be", "It has"] {
            assert_eq!(calques(&format!("{text} {no} room")), [], "{text}");
        }
        assert_eq!(calques("is no longer, are no larger than, be no such thing, is a no-op"), []);
    }

    #[test]
    fn wide_lines_are_found_outside_tables_and_code() {
        let wide = "x".repeat(WIDTH + 1);
        assert_eq!(in_document(&format!("{wide}\n| {wide} |\n```\n{wide}\n```\n")).len(), 1);
        assert_eq!(in_code(&format!("// {wide}\nlet x = \"{wide}\";\n")).len(), 1);
    }
}
