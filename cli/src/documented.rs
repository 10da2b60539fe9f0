//! Tests that the command lines in README, the documents and the help texts parse.

use crate::arguments::Arguments;
use clap::{CommandFactory, Parser};
use std::process::Command;

/// Splits a line into words as the shell does.
fn words(line: &str) -> Vec<String> {
    let script = format!("words() {{ printf '%s\\0' \"$@\"; }}; words {line}");
    let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{line}: not a line of a shell");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Returns the arguments of `oikaze` if the line calls it. The line may set variables first, or
/// call it on another machine (`ssh b oikaze …`).
fn called(line: &str) -> Option<Vec<String>> {
    let words = words(line);
    let at = words.iter().position(|word| word == "oikaze")?;
    let before = words.get(..at)?;
    let sets = before.iter().all(|word| word.starts_with("OIKAZE_"));
    (sets || before.first().is_some_and(|word| word == "ssh"))
        .then(|| words.into_iter().skip(at).collect())
}

/// Panics unless the line parses, and also the command that it starts if that is `oikaze` again.
/// Returns `true` if the line calls `oikaze`.
fn check(line: &str, source: &str) -> bool {
    let Some(arguments) = called(line) else { return false };
    if let Err(why) = Arguments::try_parse_from(&arguments) {
        panic!("{source}: `{line}` does not parse: {why}");
    }
    let program =
        arguments.iter().position(|word| word == "--").map(|at| arguments[at + 1..].join(" "));
    program.is_none_or(|program| !program.starts_with("oikaze") || check(&program, source))
}

/// Returns the lines of a page's shell blocks, without comments.
fn shell_lines(page: &str) -> Vec<&str> {
    let mut inside = false;
    let lines = page.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside = if fence { *line == "```sh" } else { inside };
        inside && !fence
    });
    lines
        .map(|line| line.split(" #").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .collect()
}

const PAGES: [(&str, &str); 13] = [
    ("README.md", include_str!("../../README.md")),
    ("CONTRIBUTING.md", include_str!("../../CONTRIBUTING.md")),
    ("docs/OBSERVING.md", include_str!("../../docs/OBSERVING.md")),
    ("docs/KERNELS.md", include_str!("../../docs/KERNELS.md")),
    ("docs/BENCH.md", include_str!("../../docs/BENCH.md")),
    ("docs/book/src/getting-started.md", include_str!("../../docs/book/src/getting-started.md")),
    ("docs/book/src/installing.md", include_str!("../../docs/book/src/installing.md")),
    ("docs/book/src/upgrading.md", include_str!("../../docs/book/src/upgrading.md")),
    ("docs/book/src/python-hosts.md", include_str!("../../docs/book/src/python-hosts.md")),
    ("docs/book/src/running.md", include_str!("../../docs/book/src/running.md")),
    (
        "docs/book/src/firewalls-and-containers.md",
        include_str!("../../docs/book/src/firewalls-and-containers.md"),
    ),
    ("docs/book/src/observing.md", include_str!("../../docs/book/src/observing.md")),
    ("docs/book/src/tuning.md", include_str!("../../docs/book/src/tuning.md")),
];

#[test]
fn command_lines_in_documents_parse() {
    let mut calls = 0;
    for (file, page) in PAGES {
        calls += shell_lines(page).into_iter().filter(|line| check(line, file)).count();
    }
    assert!(calls >= 10, "{calls}");
}

#[test]
fn command_lines_in_help_texts_parse() {
    let command = Arguments::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let mut calls = 0;
    for command in commands {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = text
            .lines()
            .skip_while(|line| *line != "Examples:")
            .skip(1)
            .take_while(|line| line.starts_with("  "));
        // Cuts the explanation off each line. Lines that are all explanation are indented further.
        let shown = examples
            .filter(|line| !line.starts_with("   "))
            .map(|line| line.trim().split("   ").next().unwrap_or_default());
        calls +=
            shown.filter(|line| check(line, &format!("help of {}", command.get_name()))).count();
    }
    assert!(calls >= 15, "{calls}");
}

#[test]
fn chores_in_documents_are_in_the_makefile() {
    let makefile = include_str!("../../Makefile");
    let mut chores = 0;
    for (file, page) in PAGES {
        for line in shell_lines(page) {
            let Some(chore) = line.strip_prefix("make ") else { continue };
            assert!(
                makefile.contains(&format!("\n{chore}:")),
                "{file}: `{line}` is not in the Makefile"
            );
            chores += 1;
        }
    }
    assert!(chores >= 4, "{chores}");
}

#[test]
#[should_panic(expected = "does not parse")]
fn unknown_option_does_not_parse() {
    check("OIKAZE_RSH='ssh -i key' oikaze run --no-such-option -- ./program", "this test");
}
