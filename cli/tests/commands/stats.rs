//! Tests `oikaze run --stats`: what the nodes of a job have sent, by purpose, size and array.

use crate::support::{OIKAZE, Shell, finish, oikaze, run_script};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// File of a test, removed with it.
struct Lines(PathBuf);

impl Lines {
    fn new(test: &str) -> Self {
        let name = format!("oikaze-stats-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn option(&self) -> String {
        format!("--stats={}", self.0.display())
    }

    fn read(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn count(report: &Value, purpose: &str, class: usize) -> u64 {
    report["purposes"][purpose]["messages"][class].as_u64().unwrap_or(0)
}

/// Twenty turns of two nodes, after 16 to warm up: up to 36 updates from each node to the other.
/// The first part may be fetched, because its pages are not valid before.
const UPDATES: [&str; 8] =
    [OIKAZE, "perf", "barrier-update", "--size", "16K", "--iterations", "40", "--json"];

#[test]
fn lines_of_json_have_each_node_and_the_sum() {
    let lines = Lines::new("json");
    let mut run = oikaze(&["run", "-n", "2", "--no-prefix", &lines.option(), "--"]);
    // Nodes that map one memory send no updates.
    let (status, out, err) = finish(run.args(UPDATES).env("OIKAZE_WITHOUT", "segment"));
    assert_eq!(status, Some(0), "{err}");
    let perf: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
    assert_eq!(perf["test"], "barrier-update");
    assert!(!err.contains("messages sent"), "the tables are not asked for: {err}");
    let reports = lines.read();
    let nodes: Vec<Option<u64>> = reports.iter().map(|report| report["node"].as_u64()).collect();
    assert_eq!(nodes, [Some(0), Some(1), None]);
    for report in &reports[..2] {
        // Bodies of 16 KiB are of the fourth class, without their heads.
        let updates = count(report, "update", 3);
        assert!((35..=36).contains(&updates), "{report}");
        let array = &report["arrays"]["perf barrier-update"];
        assert_eq!(array["updates"], updates, "{report}");
        assert_eq!(array["update_bytes"], updates * 16_384, "{report}");
        assert!(count(report, "barrier", 0) >= 72, "{report}");
        assert_eq!(report["purposes"]["message"], Value::Null, "{report}");
    }
    for purpose in ["update", "barrier", "fetch request", "subscription"] {
        for class in 0..5 {
            let of = |report| count(report, purpose, class);
            assert_eq!(of(&reports[2]), of(&reports[0]) + of(&reports[1]), "{purpose}, {class}");
        }
    }
}

#[test]
fn tables_are_printed_when_the_job_has_ended() {
    let mut run = oikaze(&["run", "-n", "2", "--stats", "--"]);
    let (status, out, err) = finish(run.args([OIKAZE, "perf", "message", "--iterations", "50"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(!out.contains("messages sent"), "standard output is the program's: {out}");
    for part in ["node 0: messages sent", "node 1: messages sent", "all 2 nodes: messages sent"] {
        assert!(err.contains(part), "no {part:?} in:\n{err}");
    }
    let row = err.lines().find(|line| line.starts_with("  message ")).expect("a row of messages");
    let small: u64 = row.split_whitespace().nth(1).expect("a count").parse().expect("a number");
    assert!(small >= 50, "messages by the fast path count, too: {row}");
}

#[test]
fn node_that_is_killed_has_no_report() {
    let lines = Lines::new("killed");
    let script = format!("[ $OIKAZE_RANK = 1 ] && kill -9 $$; exec {OIKAZE} hello");
    let (status, ..) =
        finish(&mut run_script(&["-n", "2", "--failure-time", "200", &lines.option()], &script));
    assert_eq!(status, Some(137));
    // Node 0 may have ended before it reported. There is always the sum.
    let reports = lines.read();
    assert_eq!(reports.last().expect("the sum")["node"], Value::Null);
    assert!(reports.iter().all(|report| report["node"] != 1), "{reports:?}");
    let (_, _, err) = finish(&mut run_script(&["--stats"], "exit 0"));
    assert!(err.contains("node 0 has ended without a report"), "{err}");
}

#[test]
fn nodes_on_other_hosts_report_too() {
    let lines = Lines::new("hosts");
    let shell = Shell::new("stats", "shift; exec /bin/sh -c \"$*\"");
    let mut run = oikaze(&["run", "--hosts", "a,b", &lines.option(), "--"]);
    let (status, _, err) = finish(run.args(UPDATES).env("OIKAZE_RSH", shell.command()));
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(lines.read().len(), 3);
}

#[test]
fn file_that_cannot_be_made_is_an_error_before_the_job() {
    let (status, out, err) =
        finish(&mut run_script(&["--stats=/no/such/folder/file"], "echo started"));
    assert_eq!(status, Some(125), "{err}");
    assert!(err.contains("/no/such/folder/file") && !out.contains("started"), "{err}");
    assert!(!Path::new("/no").exists());
}
