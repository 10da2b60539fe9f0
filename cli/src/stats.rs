//! `oikaze run --stats`: prints what the nodes of a job have sent, when the job has ended.

use oikaze::observe::TrafficReport;
use oikaze_os::replace_file::Output;
use oikaze_protocol::traffic::{MessagePurpose, SIZE_CLASS_LIMITS};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Column headings of the size classes.
const CLASSES: [&str; SIZE_CLASS_LIMITS.len() + 1] =
    ["<= 256 B", "<= 1 KiB", "<= 4 KiB", "<= 16 KiB", "above"];

/// Destination of the report.
pub enum Destination {
    /// Tables on standard error.
    Tables,
    /// Lines of JSON in a file.
    Lines(Output),
}

/// Writes the reports of all nodes, and their sum.
///
/// # Errors
/// The file cannot be written.
pub fn write(to: Destination, traffic: &[Option<Vec<u8>>]) -> io::Result<()> {
    let reports: Vec<Option<TrafficReport>> = traffic
        .iter()
        .map(|report| report.as_ref().and_then(|report| serde_json::from_slice(report).ok()))
        .collect();
    let sum = TrafficReport::sum(reports.iter().flatten());
    match to {
        Destination::Lines(output) => {
            for report in reports.iter().flatten().chain([&sum]) {
                let mut line = serde_json::to_string(report)?;
                line.push('\n');
                output.file().write_all(line.as_bytes())?;
            }
            output.publish()?;
        }
        // Standard error may be closed, which is not an error of the job.
        Destination::Tables => _ = io::stderr().write_all(tables(&reports, &sum).as_bytes()),
    }
    Ok(())
}

/// Returns one table for each node, and one of the sum.
fn tables(reports: &[Option<TrafficReport>], sum: &TrafficReport) -> String {
    let mut text = String::new();
    for (rank, report) in reports.iter().enumerate() {
        match report {
            Some(report) => text += &table(&format!("node {rank}"), report),
            None => {
                let _ = writeln!(text, "node {rank} has ended without a report");
            }
        }
    }
    let reporters = reports.iter().flatten().count();
    if reporters > 1 {
        text += &table(&format!("all {reporters} nodes"), sum);
    }
    text
}

fn table(name: &str, report: &TrafficReport) -> String {
    let mut text = format!("\n{:<26}", format!("{name}: messages sent"));
    CLASSES.iter().for_each(|class| _ = write!(text, "{class:>11}"));
    let _ = writeln!(text, "{:>11}{:>10}", "all", "bytes");
    // In the order of the purposes, and not of their names.
    let rows = MessagePurpose::ALL
        .iter()
        .filter_map(|purpose| report.purposes.get_key_value(purpose.name()));
    for (purpose, counts) in rows {
        let _ = write!(text, "  {purpose:<24}");
        counts.messages.iter().for_each(|count| _ = write!(text, "{count:>11}"));
        let (messages, bytes) = (total(&counts.messages), total(&counts.bytes));
        let _ = writeln!(text, "{messages:>11}{:>10}", short(bytes));
    }
    if report.arrays.values().any(|traffic| *traffic != Default::default()) {
        let _ = writeln!(
            text,
            "  {:<24}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>10}{:>11}",
            "array",
            "fetches",
            "pages in",
            "pages out",
            "diffs",
            "bytes",
            "updates",
            "bytes",
            "homes in"
        );
    }
    for (name, traffic) in &report.arrays {
        if *traffic == Default::default() {
            continue;
        }
        // Names come from other programs, and go to a terminal.
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let _ = writeln!(
            text,
            "  {name:<24}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>10}{:>11}",
            traffic.fetches,
            traffic.pages_fetched,
            traffic.pages_served,
            traffic.diffs,
            short(traffic.diff_bytes),
            traffic.updates,
            short(traffic.update_bytes),
            traffic.homes_moved
        );
    }
    let datagrams = &report.datagrams;
    let _ = writeln!(
        text,
        "  datagrams: {} sent, {} received; sent {} acknowledgements, {} pings, {} for handshakes, {} again; {} sent in all, also through shared memory",
        datagrams.sent,
        datagrams.received,
        datagrams.acknowledgements_sent,
        datagrams.pings_sent,
        datagrams.handshakes_sent,
        datagrams.sent_again,
        short(datagrams.bytes_sent)
    );
    text
}

fn total(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Formats a number of bytes in at most four digits and a unit.
fn short(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let decimals = usize::from(unit != "B" && value < 100.0);
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze::observe::{ArrayTraffic, SizeCounts};

    #[test]
    fn bytes_are_short() {
        let shorts = [0, 1023, 1024, 150 << 10, 5 << 40].map(short);
        assert_eq!(shorts, ["0 B", "1023 B", "1.0 KiB", "150 KiB", "5.0 TiB"]);
    }

    #[test]
    fn tables_have_each_node_and_the_sum() {
        let counts = SizeCounts { messages: [7, 0, 0, 0, 2], bytes: [224, 0, 0, 0, 65_536] };
        let traffic = ArrayTraffic { updates: 5, ..ArrayTraffic::default() };
        let one = TrafficReport {
            node: Some(0),
            purposes: [("update".to_owned(), counts)].into(),
            arrays: [("a\u{1b}b".to_owned(), traffic)].into(),
            ..TrafficReport::default()
        };
        let reports = [Some(one.clone()), None, Some(one)];
        let text = tables(&reports, &TrafficReport::sum(reports.iter().flatten()));
        for part in ["node 0: messages sent", "node 1 has ended", "all 2 nodes", "a?b", "64.2 KiB"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("  update ")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        let sum: Vec<&str> = rows[2].split_whitespace().collect();
        assert_eq!(sum, ["update", "14", "0", "0", "0", "4", "18", "128", "KiB"]);
    }
}
