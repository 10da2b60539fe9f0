//! Table of all figures in a directory, made from their data and written into its `README.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use oikaze_os::replace_file::{self, FileRights};
use serde::Deserialize;

use super::plot::LINES_MAX;
use crate::error::{Error, Tried};
use crate::page::write_part;
use crate::record::three_digits;
use crate::results::size_text;
use crate::suite::surroundings::{Surroundings, doubts};

/// Page that has the table between these lines. What stands around them is kept.
const PAGE: &str = "README.md";
const LINES: (&str, &str) =
    ("<!-- table: made by `cargo xtask bench papers --summary` -->", "<!-- end of the table -->");
/// Page of a directory that has none.
const NEW: &str = "# The papers' figures, measured again\n";

/// Data of a figure, as far as the table tells them. Earlier benches did not record all.
#[derive(Deserialize)]
struct Figure {
    #[serde(alias = "table")]
    figure: String,
    date: String,
    then: Option<PaperResult>,
    base: Option<String>,
    #[serde(default)]
    panels: Vec<Vec<String>>,
    seal: Option<String>,
    before: Option<Surroundings>,
    after: Option<Surroundings>,
    #[serde(default)]
    records: Vec<Value>,
}

/// Result of the paper.
#[derive(Deserialize)]
struct PaperResult {
    found: String,
}

/// Value of a system at a size.
#[derive(Deserialize)]
struct Value {
    size: usize,
    system: String,
    value: f64,
    unit: String,
    rounds: Vec<f64>,
}

/// Writes the table of all figures into the page of a directory.
///
/// # Errors
/// A file cannot be read or written, or is not what this bench has written.
pub fn write(folder: &Path) -> Result<(), Error> {
    let page = folder.join(PAGE);
    if !page.exists() {
        let text = format!("{NEW}\n{}\n{}\n", LINES.0, LINES.1);
        replace_file::write(&page, text.as_bytes(), FileRights::Kept)
            .tried(format!("writing {}", page.display()))?;
    }
    write_part(&page, LINES, &table(&figures(folder)?))
}

/// Returns the figures whose data are in a directory, by name.
fn figures(folder: &Path) -> Result<Vec<(Figure, PathBuf)>, Error> {
    let reading = format!("reading {}", folder.display());
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).tried(reading.clone())? {
        let file = entry.tried(reading.clone())?.path();
        if file.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let what = format!("reading {}", file.display());
        let text = std::fs::read_to_string(&file).tried(what.clone())?;
        let figure = serde_json::from_str(&text);
        let figure: Figure = figure.map_err(|why| Error::new(format!("{what}: {why}")))?;
        all.push((figure, file));
    }
    all.sort_by(|(one, _), (other, _)| one.figure.cmp(&other.figure));
    Ok(all)
}

fn table(figures: &[(Figure, PathBuf)]) -> String {
    let mut text = String::from("| figure | measured | then | now |\n|---|---|---|---|\n");
    for (figure, file) in figures {
        let then = figure.then.as_ref().map_or("", |then| without_remark(&then.found));
        let cells = [figure.name(file), figure.conditions(), then.to_owned(), figure.found()];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

/// Returns a text without the remark in parentheses at its end, which the picture has.
fn without_remark(text: &str) -> &str {
    let remark = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    let is_remark =
        |(_, remark): &(&str, &str)| remark.starts_with("no ") || remark.starts_with("drawn");
    remark.filter(is_remark).map_or(text, |(text, _)| text)
}

impl Figure {
    /// Returns the name with links to the picture, or the page, and to the data.
    fn name(&self, file: &Path) -> String {
        let picture = ["svg", "md"].into_iter().find(|ending| file.with_extension(ending).exists());
        let name = &self.figure;
        let title = name.replacen('-', ": ", 1).replace('-', " ");
        let title = match picture {
            Some(ending) => format!("[{title}]({name}.{ending})"),
            None => title,
        };
        format!("{title} ([data]({name}.json))")
    }

    /// Returns when the figure was measured, and what makes its values worth less.
    fn conditions(&self) -> String {
        let mut text = self.date.clone();
        let rounds = self.records.iter().map(|value| value.rounds.len()).max().unwrap_or(0);
        match rounds {
            0 => {}
            1 => text += ", 1 round",
            _ => _ = write!(text, ", {rounds} rounds"),
        }
        // A figure without conditions was measured before they were recorded.
        let Some(before) = &self.before else {
            return text + ", conditions not recorded";
        };
        let seal = self.seal.as_ref().map(|seal| format!(", seal {seal}"));
        text += seal.as_deref().unwrap_or_default();
        let states: Vec<&Surroundings> =
            [Some(before), self.after.as_ref()].into_iter().flatten().collect();
        if let Some(why) = doubts(rounds, &states) {
            let _ = write!(text, ", worth little: {why}");
        }
        text
    }

    /// Returns a sentence: the values of the first line at the least and at the greatest size, and
    /// those of the other lines of the first panel at the greatest, with their ratios to the base.
    fn found(&self) -> String {
        let Some(unit) = self.records.first().map(|value| &value.unit) else {
            return "see the page".to_owned();
        };
        let unit = if unit == "us" { "µs" } else { unit };
        let mut systems: Vec<&str> = Vec::new();
        for value in &self.records {
            if !systems.contains(&value.system.as_str()) {
                systems.push(&value.system);
            }
        }
        match self.panels.first() {
            Some(panel) => systems.retain(|system| panel.iter().any(|name| name == system)),
            None => systems.truncate(LINES_MAX),
        }
        // The base stands last, because the others are compared with it.
        systems.sort_by_key(|system| Some(*system) == self.base.as_deref());
        let Some(most) = self.records.iter().map(|value| value.size).max() else {
            return String::new();
        };
        let mut parts: Vec<String> = Vec::new();
        for system in systems {
            let of_system = || self.records.iter().filter(|value| value.system == system);
            let last = of_system().find(|value| value.size == most);
            let first = of_system().min_by_key(|value| value.size);
            let range = first.filter(|first| parts.is_empty() && first.size < most);
            if let (Some(first), Some(last)) = (range, last) {
                parts.push(format!(
                    "{system} {} at {} to {}",
                    self.value(first),
                    self.size(first.size),
                    self.value(last)
                ));
            } else if let Some(last) = last {
                parts.push(format!("{system} {}", self.value(last)));
            }
        }
        format!("{} {unit} at {}", parts.join(", "), self.size(most))
    }

    /// Returns a size in bytes, or a number of packets.
    fn size(&self, size: usize) -> String {
        if self.figure == "000-io-request" { format!("k = {size}") } else { size_text(size) }
    }

    /// Returns a value with its ratio to that of the base.
    fn value(&self, value: &Value) -> String {
        let is_base =
            |other: &&Value| Some(&other.system) == self.base.as_ref() && other.size == value.size;
        let base = self.records.iter().find(is_base).filter(|base| base.value > 0.0);
        let ratio = base.filter(|base| base.system != value.system);
        let ratio =
            ratio.map(|base| format!(" ({:.2} × {})", value.value / base.value, base.system));
        format!("{}{}", three_digits(value.value), ratio.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::with_part;

    fn figure(text: &str) -> Figure {
        serde_json::from_str(text).expect("a figure")
    }

    const NEWER: &str = r#"{"figure": "f-figure-1", "date": "2026-11-29", "then": {"found": "a | b (drawn)"}, "base": "udp",
        "panels": [["oikaze", "udp"], ["other"]], "seal": "full", "quick": true,
        "before": {"load": 0.1, "line": [35, true]}, "after": {"load": 0.75, "line": [120, false]},
        "records": [
            {"size": 8, "system": "oikaze", "value": 5.0, "unit": "us", "rounds": [4.0, 5.0]},
            {"size": 8, "system": "udp", "value": 10.0, "unit": "us", "rounds": [10.0]},
            {"size": 4096, "system": "oikaze", "value": 30.0, "unit": "us", "rounds": [30.0]},
            {"size": 4096, "system": "udp", "value": 20.0, "unit": "us", "rounds": [20.0]},
            {"size": 8, "system": "other", "value": 1.0, "unit": "us", "rounds": [1.0]}]}"#;

    #[test]
    fn row_tells_conditions_and_ratios() {
        let row = table(&[(figure(NEWER), PathBuf::from("/no/such/f.json"))]);
        let row = row.lines().last().expect("a row");
        assert_eq!(
            row,
            "| f: figure 1 ([data](f-figure-1.json)) | 2026-11-29, 2 rounds, seal full, worth little: fewer than 5 rounds, other work, load 0.75 | a \\| b | \
             oikaze 5.00 (0.50 × udp) at 8 B to 30.0 (1.50 × udp), udp 20.0 µs at 4 KiB |"
        );
    }

    #[test]
    fn what_was_not_recorded_is_said() {
        let older = figure(r#"{"table": "t", "date": "2026-11-23", "rows": []}"#);
        assert!(older.conditions().ends_with("not recorded"));
        assert_eq!(older.found(), "see the page");
    }

    #[test]
    fn remark_at_the_end_is_left_out() {
        assert_eq!(without_remark("a (b) c (no numbers)"), "a (b) c");
        assert_eq!(without_remark("a (b) c"), "a (b) c");
        assert_eq!(without_remark("UDP (sent)"), "UDP (sent)");
    }

    #[test]
    fn page_of_the_repository_has_the_table_of_its_data() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/papers"));
        let page = std::fs::read_to_string(folder.join(PAGE)).expect("the page");
        let made = table(&figures(folder).expect("the figures are there"));
        assert_eq!(
            with_part(&page, LINES, &made),
            Some(page.clone()),
            "run the bench with --summary"
        );
    }
}
