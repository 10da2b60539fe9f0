//! Oikaze itself, by `oikaze perf`, as a job of two nodes in the lab.
//!
//! The launcher runs on the first host, so that its store is reached from both, and enters both by the bench's own
//! stand-in for ssh.

use std::path::PathBuf;

use serde::Deserialize;

use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, Lab};
use crate::process::alone;

/// What `oikaze perf` is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// Messages, one way, in µs.
    MessageLatency,
    /// Puts, one way, in µs.
    PutLatency,
    /// Puts, in GB/s.
    PutBandwidth,
}

/// The line `oikaze perf --json` prints.
#[derive(Deserialize)]
struct Line {
    /// Median of one way, in µs, if latency was measured.
    latency_us: Option<f64>,
    /// In GB/s, if bandwidth was measured.
    bandwidth_gbs: Option<f64>,
}

/// The command, built beside the bench.
///
/// # Errors
/// It is not there.
pub fn program() -> Result<PathBuf, Error> {
    let me = std::env::current_exe().tried("finding the bench's own program")?;
    let oikaze = me.with_file_name("oikaze");
    if oikaze.is_file() {
        return Ok(oikaze);
    }
    Err(Error::new(format!(
        "{} is not there; build it: cargo build --release -p oikaze-cli, or pass --without oikaze",
        oikaze.display()
    )))
}

/// Runs one test in the lab.
///
/// # Errors
/// It failed, or printed what was not expected.
pub fn measure(lab: &Lab, test: Test, size: usize, iterations: u32) -> Result<f64, Error> {
    let me = std::env::current_exe().tried("finding the bench's own program")?;
    let oikaze = program()?;
    let operation = match test {
        Test::MessageLatency => "message",
        Test::PutLatency | Test::PutBandwidth => "put",
    };
    let mut command = lab.on(0, &oikaze);
    command.env("OIKAZE_RSH", format!("{} enter", me.display()));
    command.args(["run", "--no-prefix", "--hosts", &ADDRESSES.join(","), "--"]).arg(oikaze);
    command.args(["perf", operation, "--size", &size.to_string(), "--iterations", &iterations.to_string(), "--json"]);
    let printed = alone(command)?;
    let line =
        printed.lines().find_map(|line| line.find('{').and_then(|start| serde_json::from_str::<Line>(&line[start..]).ok()));
    let value = line.and_then(|line| match test {
        Test::MessageLatency | Test::PutLatency => line.latency_us,
        Test::PutBandwidth => line.bandwidth_gbs,
    });
    value.ok_or_else(|| Error::new(format!("oikaze perf {operation} printed no such figure: {}", printed.trim())))
}
