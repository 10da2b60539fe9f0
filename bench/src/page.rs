//! Generated parts of pages. Each stands between two lines that tell what makes it.

use std::path::Path;

use oikaze_os::replace_file::{self, FileRights};

use crate::error::{Error, Tried};

/// Writes a part into the page, between the lines `begin` and `end`.
///
/// # Errors
/// The page cannot be read or written, or lacks a line.
pub fn write_part(page: &Path, (begin, end): (&str, &str), part: &str) -> Result<(), Error> {
    let reading = format!("reading {}", page.display());
    let text = std::fs::read_to_string(page).tried(reading.clone())?;
    let text = with_part(&text, (begin, end), part).ok_or_else(|| {
        Error::new(format!("{reading}: it has no line {begin} with a line {end} after it"))
    })?;
    replace_file::write(page, text.as_bytes(), FileRights::Kept)
        .tried(format!("writing {}", page.display()))?;
    println!("{}", page.display());
    Ok(())
}

/// Returns the page with this part in place of its part. What stands around it is kept.
pub fn with_part(page: &str, (begin, end): (&str, &str), part: &str) -> Option<String> {
    let (head, rest) = page.split_once(begin)?;
    let (_, tail) = rest.split_once(end)?;
    Some(format!("{head}{begin}\n{part}{end}{tail}"))
}

/// Breaks text into lines of at most `length` characters.
pub fn wrapped(text: &str, length: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= length => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_around_a_part_is_kept() {
        let lines = ("BEGIN", "END");
        let page = "head\nBEGIN\nold\nEND\ntail\n";
        assert_eq!(with_part(page, lines, "new\n"), Some(page.replace("old", "new")));
        assert_eq!(with_part("head", lines, "new"), None);
        assert_eq!(with_part("END\nBEGIN", lines, "new"), None);
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "word ".repeat(50) + "end";
        let wrapped = wrapped(&text, 100);
        assert!(wrapped.len() == 3 && wrapped.iter().all(|line| line.len() <= 100));
        assert_eq!(wrapped.join(" "), text);
    }
}
