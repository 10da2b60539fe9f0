//! Output of a bench: one JSON line for each case of each system, and a table for people.

use oikaze_os::replace_file::{self, FileRights};
use oikaze_os::standard_output;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Tried};

/// Result of one case of one system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// Name of the bench.
    pub bench: &'static str,
    /// Name of the case.
    pub case: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Name of the measured system.
    pub system: &'static str,
    /// Median of the rounds.
    pub value: f64,
    /// Unit of the values.
    pub unit: &'static str,
    /// Values of the rounds.
    pub rounds: Vec<f64>,
    /// MTU of the wire, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Mode of the wire, if there is one. With `wire`, the kernel forms every datagram and segment.
    /// With `whole`, it may pass larger buffers. Without a wire, the bench defines the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// Number of busy threads of the process, if the case depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Number of nodes, if the case depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Delivery by which transfers of shared memory end, if the case depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<&'static str>,
    /// `true` if there were more processes than cores.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oversubscribed: bool,
}

impl Record {
    /// Returns the case, with nodes and delivery if the case depends on them, and with threads and
    /// a mode that is not that of the wire.
    fn label(&self) -> String {
        match (self.threads, self.mode, self.nodes) {
            (Some(threads), Some(mode), _) => format!("{} {mode} {threads}", self.case),
            (_, _, Some(nodes)) => {
                let delivery = self.delivery.map(|delivery| format!(" {delivery}"));
                let mark = if self.oversubscribed { " >cores" } else { "" };
                format!("{} {nodes}{}{mark}", self.case, delivery.unwrap_or_default())
            }
            (_, Some(mode), _) if !["wire", "whole"].contains(&mode) => {
                format!("{} {mode}", self.case)
            }
            _ => self.case.to_owned(),
        }
    }

    /// Returns the key of the measurement, which is the same for all systems.
    pub fn what(&self) -> impl PartialEq {
        ((self.case, self.size, self.mtu, self.mode), (self.threads, self.nodes, self.delivery))
    }
}

/// Note on the mark of records with more processes than cores.
pub const OVERSUBSCRIBED: &str = ">cores: more processes than cores, which take turns.";

/// Returns the middle value, or the mean of the two middle values.
pub fn median(rounds: &[f64]) -> Option<f64> {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some((sorted[middle - 1] + upper) / 2.0) }
}

/// Writes one line of JSON for each record, with its conditions, to `file` or standard output.
///
/// # Errors
/// The file cannot be written.
pub fn write_lines(
    records: &[Record],
    conditions: &impl Serialize,
    file: Option<&Path>,
) -> Result<(), Error> {
    /// A record that says by itself when and where it was measured.
    #[derive(Serialize)]
    struct Line<'l, C: Serialize> {
        #[serde(flatten)]
        record: &'l Record,
        conditions: &'l C,
    }
    let mut lines = String::new();
    for record in records {
        let line = serde_json::to_string(&Line { record, conditions })
            .map_err(|why| Error::new(format!("writing a line of JSON: {why}")))?;
        lines += &line;
        lines.push('\n');
    }
    match file {
        Some(file) => replace_file::write(file, lines.as_bytes(), FileRights::Kept)
            .tried(format!("writing {}", file.display())),
        None => standard_output::print(&lines).tried("writing standard output"),
    }
}

/// Returns the table of each case's systems, with the ratio to the floor of the same case, wire and
/// size.
pub fn table(records: &[Record], floor: &str) -> String {
    let mut text = format!(
        "{:<22}{:>9}{:>6}  {:<27}{:>9} {:<6}{:>8}   rounds\n",
        "case", "size", "mtu", "system", "value", "unit", "× floor"
    );
    for record in records {
        let base =
            records.iter().find(|other| other.system == floor && other.what() == record.what());
        let ratio =
            base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}", record.value / base.value));
        let (low, high) = record
            .rounds
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), &r| (low.min(r), high.max(r)));
        text += &format!(
            "{:<22}{:>9}{:>6}  {:<27}{:>9} {:<6}{:>8}   {} to {}\n",
            record.label(),
            record.size,
            record.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            record.system,
            three_digits(record.value),
            record.unit,
            ratio,
            three_digits(low),
            three_digits(high)
        );
    }
    text
}

/// Formats a value with three significant digits, but all digits before the decimal point.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        ..0.1 => 4,
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
impl Record {
    /// Makes a record for tests, which change the fields that matter to them.
    pub fn example(case: &'static str, size: usize) -> Self {
        let (mtu, mode) = (Some(9000), Some("wire"));
        Self {
            bench: "wind",
            case,
            size,
            system: "oikaze",
            value: 1.0,
            unit: "us",
            rounds: vec![1.0],
            mtu,
            mode,
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        assert_eq!(
            [0.0123, 0.5, 4.2, 12.34, 1234.5].map(three_digits),
            ["0.0123", "0.500", "4.20", "12.3", "1234"]
        );
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn the_table_compares_with_the_floor_of_the_same_case() {
        let record = |case, system, value, mtu| Record {
            system,
            value,
            mtu: Some(mtu),
            ..Record::example(case, 8)
        };
        let records = [
            record("a", "floor", 2.0, 9000),
            record("a", "other", 5.0, 9000),
            record("a", "other", 7.0, 1500),
        ];
        let table = table(&records, "floor");
        let ratios: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6)).collect();
        assert_eq!(ratios, ["1.00", "2.50", "-"]);
    }
}
