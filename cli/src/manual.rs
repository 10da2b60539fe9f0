//! Manual pages and completions of shells, made from the arguments.

use crate::arguments::Arguments;
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use oikaze_os::replace_file::{self, FileRights};
use std::io::{self, Write};
use std::path::Path;

/// Returns the script that completes this command's arguments in a shell.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "oikaze", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a page for the command and one for each of its subcommands: `oikaze-run.1` and so on.
///
/// # Errors
/// A file cannot be written.
pub fn write_pages(directory: &Path) -> io::Result<()> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages_of(&command, directory)
}

fn write_pages_of(command: &Command, directory: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages_of(command, directory)?;
    }
    let plain = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let man = Man::new(plain);
    let mut page = Vec::new();
    man.render(&mut page)?;
    // clap_mangen would fill the lines of examples and tables into paragraphs.
    let notes = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(notes) = notes {
        writeln!(page, ".SH NOTES\n.nf")?;
        for line in notes.to_string().lines() {
            writeln!(page, "{}", literal(line))?;
        }
        writeln!(page, ".fi")?;
    }
    replace_file::write(&directory.join(man.get_filename()), &page, FileRights::Kept)
}

/// Returns a line for roff, in which no character has a meaning of its own (groff_char(7)).
fn literal(line: &str) -> String {
    let front = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    let mut literal = front.to_owned();
    for c in line.chars() {
        match c {
            '\\' => literal.push_str("\\e"),
            '-' => literal.push_str("\\-"),
            '\'' => literal.push_str("\\(aq"),
            '`' => literal.push_str("\\(ga"),
            '~' => literal.push_str("\\(ti"),
            c => literal.push(c),
        }
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_no_meaning_in_roff() {
        assert_eq!(literal(".SH -n '\\'"), "\\&.SH \\-n \\(aq\\e\\(aq");
    }

    #[test]
    fn each_subcommand_has_a_page() {
        let directory = std::env::temp_dir().join(format!("oikaze-pages-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        write_pages(&directory).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let run = page("oikaze-run.1");
        assert!(run.contains("\n  oikaze run \\-n 4 \\-\\- himeno \\-\\-size S\n"), "{run}");
        assert!(run.contains("\\-\\-ship") && run.contains("\n.SH NOTES\n.nf\nExamples:\n"));
        assert!(!run.contains("EXTRA"));
        assert!(page("oikaze.1").contains("oikaze\\-doctor(1)"));
        let names: Vec<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(!names.iter().any(|name| name.contains("agent")), "{names:?}");
        assert!(names.len() >= 6, "{names:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn completions_name_subcommands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            assert!(script.contains("doctor") && script.contains("failure-time"), "{shell}");
        }
    }
}
