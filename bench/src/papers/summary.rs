//! Table of all figures in a directory, made from their data and written into its `README.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use oikaze_os::replace_file::{self, FileRights};
use serde::Deserialize;

use crate::error::{Error, Tried};
use crate::suite::surroundings::Surroundings;

/// Page that has the table between these lines. What stands around them is kept.
const PAGE: &str = "README.md";
const BEGIN: &str = "<!-- table: made by `cargo xtask bench papers --summary` -->";
const END: &str = "<!-- end of the table -->";
/// Page of a directory that has none.
const NEW: &str = "# The papers' figures, measured again\n";

/// Data of a figure, as far as the table tells them. Earlier benches did not record all.
#[derive(Deserialize)]
struct Figure {
    #[serde(alias = "table")]
    figure: String,
    title: Option<String>,
    date: String,
    then: Option<PaperResult>,
    base: Option<String>,
    #[serde(default)]
    panels: Vec<Vec<String>>,
    seal: Option<String>,
    #[serde(default)]
    quick: bool,
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
    let reading = || format!("reading {}", page.display());
    let text = if page.exists() {
        std::fs::read_to_string(&page).tried(reading())?
    } else {
        format!("{NEW}\n{BEGIN}\n{END}\n")
    };
    let text = with_table(&text, &table(&figures(folder)?)).ok_or_else(|| {
        Error::new(format!("{}: it has no line {BEGIN} with a line {END} after it", reading()))
    })?;
    let writing = format!("writing {}", page.display());
    replace_file::write(&page, text.as_bytes(), FileRights::Kept).tried(writing)?;
    println!("{}", page.display());
    Ok(())
}

/// Returns the page with this table in place of its table.
fn with_table(page: &str, table: &str) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{table}{END}{tail}"))
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
        let then = figure.then.as_ref().map_or("", |then| &then.found);
        let cells = [figure.name(file), figure.conditions(), then.to_owned(), figure.found()];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

impl Figure {
    /// Returns the name with links to the picture, or the page, and to the data.
    fn name(&self, file: &Path) -> String {
        let picture = ["svg", "md"].into_iter().find(|ending| file.with_extension(ending).exists());
        let name = &self.figure;
        let title = self.title.as_deref().unwrap_or(name);
        let title = match picture {
            Some(ending) => format!("[{title}]({name}.{ending})"),
            None => title.to_owned(),
        };
        format!("{title} ([data]({name}.json))")
    }

    /// Returns when and how the figure was measured.
    fn conditions(&self) -> String {
        let mut text = self.date.clone();
        let rounds = self.records.iter().map(|value| value.rounds.len()).max().unwrap_or(0);
        match rounds {
            0 => {}
            1 => text += ", 1 round",
            _ => _ = write!(text, ", {rounds} rounds"),
        }
        if self.quick {
            text += ", quick";
        }
        // A figure without conditions was measured before they were recorded.
        let Some(before) = &self.before else {
            return text + "; seal, cores and load not recorded";
        };
        let seal = self.seal.as_ref().map(|seal| format!("seal {seal}"));
        text += &format!("; {}", seal.as_deref().unwrap_or("nothing sent"));
        let states = || [Some(before), self.after.as_ref()].into_iter().flatten();
        let loads = || states().filter_map(|state| state.load);
        if let Some(most) = loads().reduce(f64::max) {
            let _ = write!(text, ", load {} to {most}", loads().fold(most, f64::min));
        }
        let mut near = states().filter_map(|state| state.line).map(|(_, is_near)| is_near);
        text += match (near.next(), near.next()) {
            (Some(true), None | Some(true)) => ", near cores",
            (Some(false), None | Some(false)) => ", far cores",
            (Some(_), Some(_)) => ", cores near and far",
            (None, _) => "",
        };
        text
    }

    /// Returns the values at the least and the greatest size of each line of the first panel, and
    /// their ratios to those of the base.
    fn found(&self) -> String {
        let Some(unit) = self.records.first().map(|value| &value.unit) else {
            return "see the page".to_owned();
        };
        let mut systems: Vec<&str> = Vec::new();
        for value in &self.records {
            if !systems.contains(&value.system.as_str()) {
                systems.push(&value.system);
            }
        }
        if let Some(panel) = self.panels.first() {
            systems.retain(|system| panel.iter().any(|name| name == system));
        }
        let lines = systems.iter().filter_map(|system| {
            let of_system = || self.records.iter().filter(|value| value.system == *system);
            let first = of_system().min_by_key(|value| value.size)?;
            let last = of_system().max_by_key(|value| value.size)?;
            let ends = if first.size == last.size { vec![first] } else { vec![first, last] };
            let texts: Vec<String> = ends.into_iter().map(|value| self.point(value)).collect();
            Some(format!("{system} {}", texts.join(", ")))
        });
        format!("{unit}: {}", lines.collect::<Vec<_>>().join("; "))
    }

    /// Returns a value with its size, and its ratio to that of the base.
    fn point(&self, value: &Value) -> String {
        let is_base =
            |other: &&Value| Some(&other.system) == self.base.as_ref() && other.size == value.size;
        let base = self.records.iter().find(is_base).filter(|base| base.value > 0.0);
        let ratio = base.filter(|base| base.system != value.system);
        let ratio =
            ratio.map(|base| format!(" ({} × {})", digits(value.value / base.value), base.system));
        format!("{} at {}{}", digits(value.value), value.size, ratio.unwrap_or_default())
    }
}

/// Formats a value with three digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(text: &str) -> Figure {
        serde_json::from_str(text).expect("a figure")
    }

    const NEWER: &str = r#"{"figure": "f", "title": "T", "date": "2026-11-29", "then": {"found": "a | b"}, "base": "udp",
        "panels": [["oikaze", "udp"], ["other"]], "seal": "full", "quick": true,
        "before": {"load": 0.1, "line": [35, true]}, "after": {"load": 0.4, "line": [120, false]},
        "records": [
            {"size": 8, "system": "oikaze", "value": 5.0, "unit": "us", "rounds": [4.0, 5.0]},
            {"size": 8, "system": "udp", "value": 10.0, "unit": "us", "rounds": [10.0]},
            {"size": 4096, "system": "oikaze", "value": 30.0, "unit": "us", "rounds": [30.0]},
            {"size": 8, "system": "other", "value": 1.0, "unit": "us", "rounds": [1.0]}]}"#;

    #[test]
    fn row_tells_conditions_and_ratios() {
        let row = table(&[(figure(NEWER), PathBuf::from("/no/such/f.json"))]);
        let row = row.lines().last().expect("a row");
        assert_eq!(
            row,
            "| T ([data](f.json)) | 2026-11-29, 2 rounds, quick; seal full, load 0.1 to 0.4, cores near and far | a \\| b | \
             us: oikaze 5.00 at 8 (0.500 × udp), 30.0 at 4096; udp 10.0 at 8 |"
        );
    }

    #[test]
    fn what_was_not_recorded_is_said() {
        let older = figure(r#"{"table": "t", "date": "2026-11-23", "rows": []}"#);
        assert!(older.conditions().ends_with("not recorded"));
        assert_eq!(older.found(), "see the page");
    }

    #[test]
    fn text_around_the_table_is_kept() {
        let page = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        assert_eq!(with_table(&page, "new\n"), Some(page.replace("old", "new")));
        assert_eq!(with_table("head", "new"), None);
        assert_eq!(with_table(&format!("{END}{BEGIN}"), "new"), None);
    }

    #[test]
    fn page_of_the_repository_has_the_table_of_its_data() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/papers"));
        let page = std::fs::read_to_string(folder.join(PAGE)).expect("the page");
        let made = table(&figures(folder).expect("the figures are there"));
        assert_eq!(with_table(&page, &made), Some(page.clone()), "run the bench with --summary");
    }
}
