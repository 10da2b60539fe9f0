//! Tables of results in `README.md` and `docs/BENCH.md`, made from the records of all benches in a
//! folder (`--json`).
//!
//! A table has a row for each case. Its columns are the systems of Oikaze, those with the default
//! seal first, then systems that only show what is possible, then the best of all others.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use crate::error::{Error, Tried};
use crate::page::{wrapped, write_part};
use crate::record::three_digits;
use crate::suite::case::{KIB, MIB};
use crate::suite::surroundings::{Conditions, Surroundings, doubts, states_text};

/// Lines around the tables of a page.
const LINES: (&str, &str) =
    ("<!-- results: made by `cargo xtask bench tables` -->", "<!-- end of the results -->");
/// Characters of a line of text.
const WIDTH: usize = 100;

/// Settings of the tables.
#[derive(Args)]
pub struct Run {
    /// Folder with the records: files that benches have written by `--json`.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    from: PathBuf,
    /// Folder with `README.md` and `docs/BENCH.md`.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    into: PathBuf,
}

/// Record of a file.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    bench: String,
    case: String,
    size: usize,
    system: String,
    value: f64,
    unit: String,
    rounds: Vec<f64>,
    mtu: Option<u16>,
    mode: Option<String>,
    nodes: Option<u32>,
    delivery: Option<String>,
    #[serde(default)]
    oversubscribed: bool,
    conditions: Conditions,
}

/// Benches in the order of their tables.
const BENCHES: [&str; 7] = ["wind", "seal", "remote", "shm", "dsm", "collectives", "python"];

/// Rows of the short table: what it says, bench, case, size, and mode.
const SHORT: [(&str, &str, &str, usize, Option<&str>); 12] = [
    ("message of 8 B, one way", "wind", "message_lat", 8, Some("wire")),
    ("put of 8 B, one way", "wind", "put_lat", 8, Some("wire")),
    ("puts of 1 MiB", "wind", "put_bw", MIB, Some("wire")),
    ("messages of 1 MiB", "wind", "message_bw", MIB, Some("wire")),
    ("messages of 8 B", "wind", "message_rate", 8, Some("wire")),
    ("processor time for a GiB", "wind", "cpu", MIB, Some("wire")),
    ("barrier of two hosts", "dsm", "barrier", 0, Some("wire")),
    ("LU, 1024 × 1024, two hosts", "dsm", "lu_1024", 8 * MIB, Some("wire")),
    ("Himeno S, two hosts", "dsm", "himeno_s", 4 * MIB, Some("wire")),
    ("CG class A, two hosts", "dsm", "cg_a", 14_000 * 8, Some("wire")),
    ("sum of a double over two hosts", "collectives", "all_reduce", 8, Some("wire")),
    ("put of 8 B on one machine", "shm", "put_lat", 8, None),
];

/// Writes the tables of both pages.
///
/// # Errors
/// There are no records, or a file cannot be read or written.
pub fn write(run: &Run) -> Result<(), Error> {
    let lines = lines_of(&run.from)?;
    if lines.is_empty() {
        let place = run.from.display();
        return Err(Error::new(format!("{place} has no records; write some by --json")));
    }
    for (page, part) in parts(&lines) {
        write_part(&run.into.join(page), LINES, &part)?;
    }
    Ok(())
}

/// Returns the pages with their tables.
fn parts(lines: &[Line]) -> [(&'static str, String); 2] {
    [("README.md", short_table(lines)), ("docs/BENCH.md", all_tables(lines))]
}

/// Returns the records of all files of a folder.
fn lines_of(folder: &Path) -> Result<Vec<Line>, Error> {
    let reading = format!("reading {}", folder.display());
    let entries = std::fs::read_dir(folder).tried(reading.clone())?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry.tried(reading.clone())?.path()))
        .collect::<Result<_, Error>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let what = format!("reading {}", file.display());
        let text = std::fs::read_to_string(&file).tried(what.clone())?;
        for line in text.lines() {
            let line = serde_json::from_str(line);
            lines.push(line.map_err(|why| Error::new(format!("{what}: {why}")))?);
        }
    }
    Ok(lines)
}

impl Line {
    /// Returns what all records of one table have in common.
    fn table(&self) -> (usize, &str, Option<&str>, Option<u16>) {
        let bench = BENCHES.iter().position(|bench| *bench == self.bench);
        // Large frames first.
        let mtu = self.mtu.map(|mtu| u16::MAX - mtu);
        (bench.unwrap_or(BENCHES.len()), &self.bench, self.mode.as_deref(), mtu)
    }

    /// Returns what all records of one row have in common.
    fn row(&self) -> impl PartialEq {
        (self.case.as_str(), self.size, self.nodes, self.delivery.as_deref())
    }

    fn role(&self) -> Role {
        match self.system.as_str() {
            "oikaze-get" | "oikaze-message" => Role::Reference,
            system if system.ends_with("-full") => Role::Default,
            "oikaze" => Role::Checked,
            system if system.starts_with("oikaze") => Role::Ours,
            system if system.starts_with("floor") => Role::Reference,
            // Nothing protects what it sends.
            "tcp" if self.bench == "seal" => Role::Reference,
            _ => Role::Other,
        }
    }

    /// Returns `true` if less is better.
    fn is_cost(&self) -> bool {
        ["us", "ms", "s/GiB", "MiB", "sleeps", "%"].contains(&self.unit.as_str())
    }

    /// Returns how many times as good as another value this one is.
    fn times(&self, other: &Line) -> f64 {
        if self.is_cost() { other.value / self.value } else { self.value / other.value }
    }

    /// Returns the value with its unit.
    fn text(&self) -> String {
        let unit = if self.unit == "us" { "µs" } else { &self.unit };
        format!("{} {unit}", three_digits(self.value))
    }

    /// Returns the case of the row in words.
    fn label(&self) -> String {
        let mut label = self.case.clone();
        if self.size > 0 {
            let _ = write!(label, ", {}", size_text(self.size));
        }
        let others = self.nodes.filter(|&nodes| nodes != 2);
        label += &others.map_or_else(String::new, |nodes| format!(", {nodes} nodes"));
        label += &self.delivery.as_ref().map_or_else(String::new, |how| format!(", {how}"));
        label + if self.oversubscribed { " (more than cores)" } else { "" }
    }
}

/// Part of a system in the comparison, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// Oikaze with the default seal.
    Default,
    /// Oikaze with `--seal crc`, or between processes of one machine, where nothing is sealed.
    Checked,
    /// Oikaze in other ways.
    Ours,
    /// A system that shows what is possible.
    Reference,
    /// A system that Oikaze is compared with.
    Other,
}

/// Returns one table for each bench, mode and MTU.
fn all_tables(lines: &[Line]) -> String {
    // The serial program, and one node, only show that kernels are equal. Models have no peers.
    let shown = |line: &&Line| {
        line.nodes != Some(1)
            && line.system != "serial"
            && line.mode.as_deref() != Some("simulated")
    };
    let mut lines: Vec<&Line> = lines.iter().filter(shown).collect();
    lines.sort_by(|one, other| one.table().cmp(&other.table()));
    let mut text = String::new();
    for of_table in lines.chunk_by(|one, other| one.table() == other.table()) {
        let Some(first) = of_table.first() else { continue };
        let _ = write!(text, "\n### `{}`", first.bench);
        let _ = match (first.mtu, first.mode.as_deref()) {
            (Some(mtu), Some("wire")) => write!(text, ", MTU {mtu}"),
            (Some(mtu), Some(mode)) => write!(text, ", {mode}, MTU {mtu}"),
            (_, Some("machine")) | (None, None) => write!(text, ", one machine"),
            (_, Some(mode)) => write!(text, ", {mode}"),
            (Some(mtu), None) => write!(text, ", MTU {mtu}"),
        };
        let rows = rows(of_table);
        let _ = write!(text, "\n\n{}\n{}", table(&rows), conditions(&rows.concat()));
    }
    text + "\n"
}

/// Returns a table of these rows.
fn table(rows: &[Vec<&Line>]) -> String {
    let mut columns: Vec<(Role, &str)> = Vec::new();
    for line in rows.iter().flatten().filter(|line| line.role() != Role::Other) {
        let column = (line.role(), line.system.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.sort_by_key(|(role, _)| *role);
    let mut text = String::from("| case |");
    columns.iter().for_each(|(_, system)| _ = write!(text, " `{system}` |"));
    text += " best other | times as good |\n|---|";
    text += &"---|".repeat(columns.len() + 2);
    for row in rows {
        let Some(first) = row.first() else { continue };
        let _ = write!(text, "\n| {} |", first.label());
        for (_, system) in &columns {
            let found = row.iter().find(|line| line.system == *system);
            let _ = write!(text, " {} |", found.map(|line| line.text()).unwrap_or_default());
        }
        text += &comparison(row);
    }
    text + "\n"
}

/// Returns the records row by row, in the order in which the rows begin. The last record of a
/// system counts.
fn rows<'l>(lines: &[&'l Line]) -> Vec<Vec<&'l Line>> {
    let mut rows: Vec<Vec<&Line>> = Vec::new();
    for &line in lines {
        let at = rows.iter().position(|row| row.iter().any(|one| one.row() == line.row()));
        let at = at.unwrap_or_else(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        rows[at].retain(|one| one.system != line.system);
        rows[at].push(line);
    }
    rows
}

/// Returns the last two cells of a row: the best other system, and how many times as good as it
/// the first system of Oikaze is.
fn comparison(row: &[&Line]) -> String {
    let by_ratio = |one: &&&Line, other: &&&Line| {
        one.times(other).partial_cmp(&1.0).unwrap_or(Ordering::Equal)
    };
    let best = row.iter().filter(|line| line.role() == Role::Other).max_by(by_ratio);
    let ours =
        row.iter().filter(|line| line.role() < Role::Reference).min_by_key(|line| line.role());
    let Some(best) = best else { return "  |  |".to_owned() };
    let ratio = ours.map_or_else(String::new, |ours| match ours.times(best) {
        times @ 1.0.. => format!("{times:.2}"),
        times => format!("**{times:.2}**"),
    });
    format!(" {} (`{}`) | {ratio} |", best.text(), best.system)
}

/// Returns the table of the README.
fn short_table(lines: &[Line]) -> String {
    let mut text = String::from(
        "\n| | default seal | `--seal crc` | best other | times as good |\n|---|---|---|---|---|\n",
    );
    let mut told: Vec<&Line> = Vec::new();
    for (what, bench, case, size, mode) in SHORT {
        let is_of_row = |line: &&Line| {
            (line.bench.as_str(), line.case.as_str(), line.size) == (bench, case, size)
                && line.mode.as_deref() == mode
                && line.nodes.is_none_or(|nodes| nodes == 2)
                && line.mtu.is_none_or(|mtu| mtu == 9000)
        };
        let of_row: Vec<&Line> = lines.iter().filter(is_of_row).collect();
        let Some(row) = rows(&of_row).pop() else { continue };
        let _ = write!(text, "| {what} |");
        for role in [Role::Default, Role::Checked] {
            let found = row.iter().find(|line| line.role() == role);
            let _ = write!(text, " {} |", found.map(|line| line.text()).unwrap_or_default());
        }
        text += &(comparison(&row) + "\n");
        told.extend(row);
    }
    text + "\n" + &conditions(&told) + "\n"
}

/// Returns when and how records were measured.
fn conditions(lines: &[&Line]) -> String {
    let all = || lines.iter().map(|line| &line.conditions);
    let dates = || all().map(|conditions| conditions.date.as_str());
    let (Some(first), Some(last)) = (dates().min(), dates().max()) else { return String::new() };
    let dates = if first == last { first.to_owned() } else { format!("{first} to {last}") };
    let counts = || lines.iter().map(|line| line.rounds.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let rounds = match (least, most) {
        (1, 1) => "values of one round".to_owned(),
        _ if least == most => format!("medians of {least} rounds"),
        _ => format!("medians of {least} to {most} rounds"),
    };
    let quick = if all().any(|conditions| conditions.quick) { ", `--quick`" } else { "" };
    let states: Vec<&Surroundings> =
        all().flat_map(|conditions| [&conditions.before, &conditions.after]).collect();
    let machine = all().next_back().map_or("", |conditions| &conditions.machine);
    let doubts = doubts(least, &states);
    let doubts = doubts.map_or_else(String::new, |why| format!(" Worth little: {why}."));
    let text =
        format!("Measured {dates}, {rounds}{quick}, {}.{doubts} {machine}", states_text(&states));
    wrapped(&text, WIDTH).join("\n") + "\n"
}

/// Formats a size in bytes.
pub fn size_text(size: usize) -> String {
    match size {
        MIB.. if size.is_multiple_of(MIB) => format!("{} MiB", size / MIB),
        KIB.. if size.is_multiple_of(KIB) => format!("{} KiB", size / KIB),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::with_part;

    fn line(bench: &str, case: &str, system: &str, value: f64, unit: &str) -> Line {
        let state = r#"{"load": 0.1, "line": [35, true]}"#;
        let text = format!(
            r#"{{"bench": "{bench}", "case": "{case}", "size": 8, "system": "{system}", "value": {value},
            "unit": "{unit}", "rounds": [1, 2, 3, 4, 5], "mtu": 9000, "mode": "wire", "conditions":
            {{"date": "2026-11-29", "machine": "A machine.", "quick": true, "before": {state}, "after": {state}}}}}"#
        );
        serde_json::from_str(&text).expect("a record")
    }

    fn example() -> Vec<Line> {
        let wind = |system, value| line("wind", "message_lat", system, value, "us");
        let rate = |system, value| line("wind", "message_rate", system, value, "M/s");
        vec![
            wind("floor-udp", 3.0),
            wind("tcp", 6.0),
            wind("ucx-tcp", 5.0),
            wind("oikaze", 2.5),
            wind("oikaze-full", 4.0),
            rate("ucx-tcp", 4.0),
            rate("oikaze", 2.0),
        ]
    }

    #[test]
    fn default_seal_stands_first_and_the_best_other_last() {
        let text = all_tables(&example());
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(
            lines[0],
            "| case | `oikaze-full` | `oikaze` | `floor-udp` | best other | times as good |"
        );
        assert_eq!(
            lines[2],
            "| message_lat, 8 B | 4.00 µs | 2.50 µs | 3.00 µs | 5.00 µs (`ucx-tcp`) | 1.25 |"
        );
        assert_eq!(
            lines[3],
            "| message_rate, 8 B |  | 2.00 M/s |  | 4.00 M/s (`ucx-tcp`) | **0.50** |"
        );
        assert!(text.contains("### `wind`, MTU 9000\n"), "{text}");
        let told = "Measured 2026-11-29, medians of 5 rounds, `--quick`, load 0.1, near cores. A";
        assert!(text.replace('\n', " ").contains(told), "{text}");
    }

    #[test]
    fn short_table_has_the_rows_that_were_measured() {
        let text = short_table(&example());
        assert!(text.contains(
            "| message of 8 B, one way | 4.00 µs | 2.50 µs | 5.00 µs (`ucx-tcp`) | 1.25 |"
        ));
        assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), 4, "{text}");
    }

    #[test]
    fn few_rounds_are_told_and_the_last_record_counts() {
        let older = Line { value: 9.0, rounds: vec![9.0], ..example().remove(3) };
        let text = all_tables(&[vec![older.clone()], example()].concat());
        assert!(text.contains("2.50 µs") && !text.contains("9.00 µs"), "{text}");
        assert!(text.contains("medians of 5 rounds") && !text.contains("Worth little"), "{text}");
        let text = all_tables(&[example(), vec![older]].concat()).replace('\n', " ");
        assert!(text.contains("9.00 µs") && text.contains("medians of 1 to 5 rounds"), "{text}");
        assert!(text.contains("Worth little: fewer than 5 rounds."), "{text}");
    }

    #[test]
    fn pages_of_the_repository_have_the_tables_of_their_records() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let folder = root.join("bench/results");
        let lines =
            if folder.exists() { lines_of(&folder).expect("the records") } else { Vec::new() };
        for (page, part) in parts(&lines) {
            let text = std::fs::read_to_string(root.join(page)).expect("the page");
            let made = with_part(&text, LINES, &part).expect("the lines around the tables");
            assert!(lines.is_empty() || made == text, "{page}: run cargo xtask bench tables");
        }
    }
}
