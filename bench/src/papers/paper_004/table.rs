//! Paper 004, table 2: numbers of small and of bulk messages of LU and Himeno on 8 nodes.
//!
//! The paper counts the packets of Fagus: control messages of at most 256 B, and bulk of one size
//! for each program. Its numbers fit one node's share. For LU these are 7 × n / 8 + 5 control
//! messages and n / 8 rows of 8 n bytes. For Himeno XS with 200 iterations they are 8 × 200 + 5 and
//! 400 halos.

use oikaze_os::replace_file::{self, FileRights};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::date::today;
use crate::dsm::program;
use crate::error::{Error, Tried};
use crate::lab::{Lab, Place};
use crate::page::wrapped;
use crate::papers::Measuring;
use crate::peers::oikaze;
use crate::process::{alone, limited, seal};
use crate::record::Record;
use crate::suite::machine;

/// Number of nodes, as in the paper.
const NODES: u32 = 8;
/// Time limit of one job. Eight nodes share this machine's cores.
const LIMIT: Duration = Duration::from_secs(900);
/// Name of the table and its files.
const NAME: &str = "004-table-2";

/// Program of the table, with the paper's numbers.
struct Row {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Bytes of the shared data.
    size: usize,
    /// Messages of at most 256 B, in the paper.
    small: u64,
    /// Bulk messages in the paper, and the maximum size of one.
    bulk: (u64, &'static str),
    /// Set if a quick run has the row.
    is_quick: bool,
}

/// LU of an n × n matrix.
const fn lu(
    name: &'static str,
    arguments: &'static [&'static str],
    n: usize,
    small: u64,
    bulk: (u64, &'static str),
) -> Row {
    Row { name, program: "lu", arguments, size: n * n * 8, small, bulk, is_quick: n < 4096 }
}

const ROWS: [Row; 4] = [
    lu("LU 1024", &["--n", "1024"], 1024, 901, (128, "8 KiB")),
    lu("LU 2048", &["--n", "2048"], 2048, 1797, (256, "16 KiB")),
    lu("LU 4096", &["--n", "4096"], 4096, 3589, (512, "32 KiB")),
    Row {
        name: "Himeno XS, 200 iterations",
        program: "himeno",
        arguments: &["--size", "XS", "--iterations", "200"],
        size: 32 * 32 * 64 * 4,
        small: 1605,
        bulk: (400, "16 KiB"),
        is_quick: true,
    },
];

/// Nodes that the table shows: the root of barriers, which also has an edge of Himeno's field, and
/// one of the others, which most nodes resemble.
const SHOWN: [(usize, &str); 2] = [(0, "0 (root)"), (3, "3")];

/// Columns of the table, the purposes that each one counts, and the names of the records of the
/// nodes in [`SHOWN`]. The last column counts all other purposes.
const GROUPS: [(&str, &[&str], [&str; 2]); 5] = [
    ("requests", &["fetch request"], ["requests", "requests, node 3"]),
    ("pages and diffs", &["pages", "diff"], ["pages and diffs", "pages and diffs, node 3"]),
    ("updates", &["update"], ["updates", "updates, node 3"]),
    ("barriers", &["barrier"], ["barriers", "barriers, node 3"]),
    ("others", &[], ["others", "others, node 3"]),
];

/// Messages of one node, of one group of purposes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    /// Messages of at most 256 B.
    small: u64,
    bulk: u64,
    bytes: u64,
}

/// Counts the messages of all programs, and writes the table. Numbers of messages depend little on
/// the machine's speed, so one run of each program suffices.
///
/// # Errors
/// A program fails, or something could not be written.
pub fn messages(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    // Holds the lock of the benches. The launcher makes the namespaces.
    let lab = Lab::up(Place::Here)?;
    let (mut records, mut rows) = (Vec::new(), Vec::new());
    let mut text = String::from("| program | then: at most 256 B | then: bulk | now: node |");
    for (group, ..) in GROUPS {
        let _ = write!(text, " now: {group} |");
    }
    let _ = writeln!(text, " now: sent |\n|{}", "---|".repeat(GROUPS.len() + 5));
    for row in ROWS.iter().filter(|row| row.is_quick || !run.rounds.quick) {
        eprintln!("{NAME}, {}", row.name);
        let mut reports = reports(row, &run.out)?;
        reports.sort_by_key(|report| report["node"].as_u64());
        let (then, size) = row.bulk;
        let mut now = serde_json::Map::new();
        for (at, (node, told)) in SHOWN.into_iter().enumerate() {
            let report = reports
                .get(node)
                .ok_or_else(|| Error::new(format!("{} has no report of node {node}", row.name)))?;
            let counts = counts(report);
            let paper = [row.name, &row.small.to_string(), &format!("{then} × {size}")].join(" | ");
            let _ = write!(text, "| {} | {told} |", if at == 0 { &paper } else { " | | " });
            let mut of_node = serde_json::Map::new();
            for (count, (group, _, systems)) in counts.iter().zip(GROUPS) {
                let Count { small, bulk, bytes } = count;
                let _ = write!(text, " {small} + {bulk} |");
                let value = json!({ "at_most_256": small, "bulk": bulk, "bytes": bytes });
                of_node.insert(group.to_owned(), value);
                let messages = (small + bulk) as f64;
                records.push(Record {
                    bench: "papers",
                    case: NAME,
                    size: row.size,
                    system: systems[at],
                    value: messages,
                    unit: "messages",
                    rounds: vec![messages],
                    nodes: Some(NODES),
                    ..Record::default()
                });
            }
            let bytes: u64 = counts.iter().map(|count| count.bytes).sum();
            let _ = writeln!(text, " {} KiB |", bytes >> 10);
            now.insert(format!("node {node}"), Value::Object(of_node));
        }
        rows.push(json!({
            "program": row.name,
            "then": { "at_most_256": row.small, "bulk": then, "bulk_size": size },
            "now": now,
            "nodes": reports,
        }));
    }
    drop(lab);
    save(run, &rows, &text)?;
    Ok(records)
}

/// Writes the table, and the data with the reports of all nodes.
fn save(run: &Measuring<'_>, rows: &[Value], text: &str) -> Result<(), Error> {
    let (date, machine) = (today(), machine());
    let now = format!(
        "Messages that a node of {NODES} sends, by oikaze run --stats and with the seal {}; each node in a network namespace of its own. Node 0 is the root of barriers and has an edge of Himeno's field; node 3 has a node on either side, as the numbers of halos in the paper tell. The size is that of the body. Each cell: those of at most 256 B + the larger ones. Requests ask for pages. Updates are pages or rows that go to their readers unasked. Barriers are arrivals and ends, which tell who wrote what.",
        seal()
    );
    let all = json!({ "table": NAME, "date": date, "machine": machine, "now": now, "rows": rows });
    let data = serde_json::to_string_pretty(&all)
        .map_err(|why| Error::new(format!("writing JSON: {why}")))?;
    let told = format!("Then: Fagus over UDP, about 2002. Now ({date}): {now}");
    let told = wrapped(&told, 100).join("\n");
    let page = format!("# Paper 004, table 2, counted again\n\n{text}\n{told}\n");
    println!("{text}");
    for (ending, text) in [("json", data + "\n"), ("md", page)] {
        let file = run.out.join(format!("{NAME}.{ending}"));
        replace_file::write(&file, text.as_bytes(), FileRights::Kept)
            .tried(format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Runs a program, and returns the reports of its nodes.
fn reports(row: &Row, folder: &Path) -> Result<Vec<Value>, Error> {
    let lines = folder.join(format!("{NAME}.lines"));
    let mut command = limited(LIMIT, oikaze::program()?);
    command.args(["run", "--no-prefix", "--seal", &seal(), "--netns", "-n", &NODES.to_string()]);
    command.arg(format!("--stats={}", lines.display())).arg("--").arg(program(row.program)?);
    command.arg("--json").args(row.arguments);
    let ran = alone(command);
    let text = std::fs::read_to_string(&lines).tried(format!("reading {}", lines.display()));
    let _ = std::fs::remove_file(&lines);
    ran?;
    let reports: Vec<Value> = text?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|report| !report["node"].is_null())
        .collect();
    if reports.len() == NODES as usize {
        return Ok(reports);
    }
    Err(Error::new(format!("{}: {} of {NODES} nodes have reported", row.name, reports.len())))
}

/// Counts the messages of a report, by the groups.
fn counts(report: &Value) -> [Count; GROUPS.len()] {
    let purposes = report["purposes"].as_object();
    let mut sums = [Count::default(); GROUPS.len()];
    for (purpose, counts) in purposes.into_iter().flatten() {
        let group = GROUPS.iter().position(|(_, names, _)| names.contains(&purpose.as_str()));
        let Some(sum) = sums.get_mut(group.unwrap_or(GROUPS.len() - 1)) else { continue };
        let of = |what: &str| {
            let classes = counts[what].as_array();
            classes.into_iter().flatten().map(|count| count.as_u64().unwrap_or(0))
        };
        sum.small += of("messages").next().unwrap_or(0);
        sum.bulk += of("messages").skip(1).sum::<u64>();
        sum.bytes += of("bytes").sum::<u64>();
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_class_is_small_and_the_rest_is_bulk() {
        let report = json!({ "node": 0, "purposes": {
            "barrier": { "messages": [7, 1, 0, 0, 0], "bytes": [300, 400, 0, 0, 0] },
            "update": { "messages": [0, 0, 2, 0, 3], "bytes": [0, 0, 5000, 0, 90_000] },
            "pages": { "messages": [0, 0, 0, 1, 0], "bytes": [0, 0, 0, 4096, 0] },
            "diff": { "messages": [1, 0, 0, 0, 0], "bytes": [9, 0, 0, 0, 0] },
            "lock": { "messages": [2, 0, 0, 0, 0], "bytes": [0, 0, 0, 0, 0] },
        }});
        let count = |small, bulk, bytes| Count { small, bulk, bytes };
        let wanted = [
            count(0, 0, 0),
            count(1, 1, 4105),
            count(0, 5, 95_000),
            count(7, 1, 700),
            count(2, 0, 0),
        ];
        assert_eq!(counts(&report), wanted);
        assert_eq!(counts(&json!({})), [Count::default(); GROUPS.len()]);
    }

    #[test]
    fn names_of_purposes_exist() {
        let all = oikaze_protocol::traffic::MessagePurpose::ALL.map(|purpose| purpose.name());
        for (_, names, _) in GROUPS {
            assert!(names.iter().all(|name| all.contains(name)), "{names:?}");
        }
    }

    #[test]
    fn papers_numbers_fit_one_nodes_share() {
        for (row, n) in ROWS.iter().zip([1024, 2048, 4096]) {
            assert_eq!((row.small, row.bulk.0), (7 * n / 8 + 5, n / 8), "{}", row.name);
        }
        assert_eq!((ROWS[3].small, ROWS[3].bulk.0), (8 * 200 + 5, 2 * 200));
    }
}
