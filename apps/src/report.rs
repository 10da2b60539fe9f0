//! Report of a run, for people and for programs.

use std::fmt;

use serde_json::{Map, Value};

use super::nodes::NodesTable;
use super::program::RunOptions;
use super::touch::Touch;

/// Speed of a run.
#[derive(Clone, Copy, Debug)]
pub enum Rate {
    /// Millions of floating-point operations per second.
    Mflops(f64),
    /// Millions of elements or keys per second.
    Mops(f64),
    /// Millions of sorted keys per second.
    Mkeys(f64),
}

/// Report of a program about one run.
pub struct Report {
    /// Problem in words, such as "S, 100 iterations".
    pub problem: String,
    /// Speed of the timed part.
    pub rate: Rate,
    /// Seconds that the timed part took.
    pub seconds: f64,
    /// Result in words, such as "gosa 2.1e-03".
    pub result: String,
    /// Value that is equal on any number of nodes if the result is right. Empty if the run did not
    /// compute it.
    pub check: String,
    /// Further fields for JSON: the problem and the result as numbers.
    pub fields: Value,
}

/// The run that a report is about.
pub(crate) struct ReportedRun<'a> {
    /// Name of the program.
    pub name: &'a str,
    pub options: &'a RunOptions,
    /// How the program touched its shared arrays, if it has any.
    pub touch: Option<Touch>,
    pub nodes: u32,
    /// Activity of the nodes, if there were any.
    pub table: Option<&'a NodesTable>,
}

impl Report {
    /// Returns the lines of the report and, if there is one, of the table of the nodes' activity.
    pub(crate) fn lines(&self, run: &ReportedRun<'_>) -> String {
        if run.options.json {
            return format!("{}\n", self.json(run));
        }
        let (name, nodes) = (run.name, run.nodes);
        let s = if nodes == 1 { "" } else { "s" };
        let first = format!("{name} {}, {nodes} node{s}\n", self.problem);
        let second = format!("{} ({:.3} s), {}\n", self.rate, self.seconds, self.result);
        let table = run.table.map_or_else(String::new, ToString::to_string);
        first + &second + &table
    }

    /// Returns the report as one object.
    fn json(&self, run: &ReportedRun<'_>) -> Value {
        let (unit, rate) = match self.rate {
            Rate::Mflops(rate) => ("mflops", rate),
            Rate::Mops(rate) => ("mops", rate),
            Rate::Mkeys(rate) => ("mkeys", rate),
        };
        let common = serde_json::json!({
            "program": run.name, "nodes": run.nodes, "serial": run.options.serial,
            "touch": run.touch.map(Touch::name), "seconds": self.seconds, unit: rate,
            "check": self.check, "nodes_did": run.table.map(NodesTable::rows),
        });
        let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
        fields(&common).into_iter().chain(fields(&self.fields)).collect::<Map<_, _>>().into()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mflops(rate) => write!(f, "{rate:.0} MFLOPS"),
            Self::Mops(rate) => write!(f, "{rate:.1} million/s"),
            Self::Mkeys(rate) => write!(f, "{rate:.1} M keys/s"),
        }
    }
}

/// Returns the text of a fingerprint.
#[must_use]
pub fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Compares one value of a result with the expected one, and names `reference` if they differ.
///
/// # Errors
/// The values differ.
pub fn differ(what: &str, here: &str, expected: &str, reference: &str) -> Result<(), String> {
    if here == expected {
        return Ok(());
    }
    Err(format!("wrong result: {what}: this run has {here}, expected {expected} ({reference})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_common_fields_and_those_of_the_program() {
        let report = Report {
            problem: "of the test".into(),
            rate: Rate::Mops(2.5),
            seconds: 0.5,
            result: "right".into(),
            check: hex(0x2a),
            fields: serde_json::json!({ "size": 7 }),
        };
        let options = RunOptions { serial: false, verify: false, json: true, progress: false };
        let touch = Some(Touch::Lazily);
        let run = ReportedRun { name: "test", options: &options, touch, nodes: 3, table: None };
        let expected = serde_json::json!({
            "program": "test", "nodes": 3, "serial": false, "touch": "lazily", "seconds": 0.5,
            "mops": 2.5, "check": "000000000000002a", "nodes_did": null, "size": 7,
        });
        assert_eq!(report.json(&run), expected);
    }

    #[test]
    fn differing_values_are_named() {
        assert_eq!(differ("hash", "1", "1", "serial run"), Ok(()));
        let why = differ("hash", "1", "2", "serial run").expect_err("they differ");
        assert!(why.contains("this run has 1, expected 2 (serial run)"), "{why}");
    }
}
