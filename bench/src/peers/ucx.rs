//! UCX over TCP, by its own `ucx_perftest` (Debian package `ucx-utils`).

use std::process::Command;

use crate::error::Error;
use crate::lab::{ADDRESSES, Lab};
use crate::process::pair;

const PROGRAM: &str = "ucx_perftest";
/// What its server says, once it listens.
const READY: &str = "Waiting for connection";

/// A test of `ucx_perftest`.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// Tag-matched messages, one way, in µs.
    TagLatency,
    /// Puts, one way, in µs.
    PutLatency,
    /// Puts, in GB/s.
    PutBandwidth,
}

impl Test {
    const fn name(self) -> &'static str {
        match self {
            Self::TagLatency => "tag_lat",
            Self::PutLatency => "ucp_put_lat",
            Self::PutBandwidth => "ucp_put_bw",
        }
    }
}

/// Is the program there?
///
/// # Errors
/// It is not; names the package.
pub fn present() -> Result<(), Error> {
    let found = Command::new(PROGRAM).arg("-h").output();
    found
        .map(drop)
        .map_err(|why| Error::new(format!("{PROGRAM}: {why}; install the Debian package ucx-utils, or pass --without ucx-tcp")))
}

/// Runs one test in the lab.
///
/// # Errors
/// It failed, or printed what was not expected.
pub fn measure(lab: &Lab, test: Test, size: usize, iterations: u32) -> Result<f64, Error> {
    let [_, server] = ADDRESSES;
    let mut listening = lab.on(1, "stdbuf");
    listening.args(["-oL", PROGRAM]).env("UCX_TLS", "tcp");
    let mut asking = lab.on(0, PROGRAM);
    asking.args([server, "-t", test.name(), "-s", &size.to_string(), "-n", &iterations.to_string()]);
    asking.args(["-w", &(iterations / 10).to_string(), "-f", "-v"]).env("UCX_TLS", "tcp");
    let printed = pair(listening, READY, asking)?;
    let strange = || Error::new(format!("{PROGRAM} printed no 50.0_percentile_lat and overall_bw: {}", printed.trim()));
    let row = Row::parse(&printed).ok_or_else(strange)?;
    Ok(match test {
        Test::TagLatency | Test::PutLatency => row.latency_us,
        Test::PutBandwidth => row.mebibytes_per_second * f64::from(1 << 20) / 1e9,
    })
}

/// What we need of its CSV: the median latency, and `overall_bw`, of the last row.
struct Row {
    latency_us: f64,
    /// It says MB and divides by 2²⁰.
    mebibytes_per_second: f64,
}

impl Row {
    fn parse(printed: &str) -> Option<Self> {
        let heading = printed.lines().find(|line| line.starts_with("iterations,"))?;
        let values: Vec<&str> = printed.lines().rev().find(|line| !line.trim().is_empty())?.split(',').collect();
        let column = |name: &str| -> Option<f64> {
            let place = heading.split(',').position(|column| column.trim() == name)?;
            values.get(place)?.trim().parse().ok()
        };
        Some(Self { latency_us: column("50.0_percentile_lat")?, mebibytes_per_second: column("overall_bw")? })
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    /// As UCX 1.13 prints it.
    const PRINTED: &str = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                           3000,2366.375,18698.386,2105.376,53.48,474.97,53,475\n";

    #[test]
    fn its_output_is_understood() {
        let row = Row::parse(PRINTED).expect("a row");
        assert_eq!((row.latency_us, row.mebibytes_per_second), (2366.375, 474.97));
        // 1 MiB each 2105.376 µs (its overall_lat) are 498 MB/s, or 475 MiB/s: so its MB are 2²⁰ bytes.
        assert!((row.mebibytes_per_second * f64::from(1 << 20) - f64::from(1 << 20) / 2105.376e-6).abs() < 1e4);
    }

    #[test]
    fn other_output_is_not() {
        for printed in ["", "iterations,overall_lat\n", "3000,1,2\n", "iterations,50.0_percentile_lat,overall_bw\nfailed\n"] {
            assert!(Row::parse(printed).is_none(), "{printed:?}");
        }
    }
}
