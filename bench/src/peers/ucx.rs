//! UCX over TCP and shared memory, measured by its own `ucx_perftest` (Debian package `ucx-utils`).

use std::time::Duration;

use super::{Effort, Found, System, installed};
use crate::error::Error;
use crate::lab::Lab;
use crate::process::{Ready, pair};
use crate::suite::case::{Case, Figure, Test};

const PROGRAM: &str = "ucx_perftest";
/// Line that the server of `ucx_perftest` prints once it listens.
const READY: &str = "Waiting for connection";
/// Time limit of a measurement.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum number of bytes and of operations that `oikaze perf` has in flight.
const IN_FLIGHT: (usize, usize) = (16 << 20, 1024);

/// UCX as a measured system.
pub struct Ucx {
    name: &'static str,
    transports: &'static str,
}

impl Ucx {
    /// UCX over TCP.
    pub const TCP: Self = Self { name: "ucx-tcp", transports: "tcp" };
    /// UCX over shared memory of one machine.
    pub const SHARED: Self = Self { name: "ucx-shm", transports: "shm" };
}

/// Returns the test of `ucx_perftest` for a case, and the number of repetitions.
fn arguments(case: Case, effort: Effort) -> Option<(&'static str, usize)> {
    // `ucx_perftest` is told to warm up, and does not walk through memory. Fewer large operations
    // give the same result.
    let times = (effort.volume / case.size).clamp(8, 20_000);
    Some(match case.test {
        Test::MessageLatency => ("tag_lat", effort.exchanges as usize),
        Test::PutLatency => ("ucp_put_lat", effort.exchanges as usize),
        Test::PutBandwidth => ("ucp_put_bw", times),
        Test::MessageBandwidth => ("tag_bw", times),
        Test::MessageRate => ("tag_bw", effort.operations as usize),
        Test::GetLatency => ("ucp_get", effort.exchanges as usize),
        Test::GetBandwidth => ("ucp_get", times),
        Test::FetchAdd => ("ucp_fadd", effort.exchanges as usize),
        Test::CompareSwap => ("ucp_cswap", effort.exchanges as usize),
        // `ucx_perftest` has neither blocks of rows nor arrays nor queues, and runs one operation
        // type at a time.
        Test::Strided | Test::Accumulate | Test::Fifo | Test::Consecutive | Test::Placed => {
            return None;
        }
        // It exchanges messages before it measures.
        Test::FirstMessages => return None,
        // `ucx_perftest` reports neither completions of puts nor processor time, and cannot mix or
        // compute.
        Test::PutDone | Test::Mixed | Test::Passive | Test::Processor | Test::Flood => return None,
    })
}

impl System for Ucx {
    fn name(&self) -> &'static str {
        self.name
    }

    fn present(&self) -> Result<(), Error> {
        installed(PROGRAM, "-h", "ucx-utils", self.name())
    }

    fn has(&self, case: Case) -> bool {
        arguments(case, Effort::QUICK).is_some()
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let (test, times) =
            arguments(case, effort).ok_or_else(|| Error::new("ucx_perftest has no such case"))?;
        let [_, server] = lab.place.addresses();
        let mut listening = lab.on(1, LIMIT, "stdbuf");
        listening.args(["-oL", PROGRAM]).env("UCX_TLS", self.transports);
        let mut asking = lab.on(0, LIMIT, PROGRAM);
        asking.args([server, "-t", test, "-s", &case.size.to_string(), "-n", &times.to_string()]);
        asking
            .args(["-w", &(times / 10).max(1).to_string(), "-f", "-v"])
            .env("UCX_TLS", self.transports);
        if case.test == Test::GetBandwidth {
            // By default `ucx_perftest` waits for each get, where Oikaze has this many in flight.
            // It has 32 puts or messages in flight and gains nothing by more.
            asking.args(["-O", &(IN_FLIGHT.0 / case.size).clamp(2, IN_FLIGHT.1).to_string()]);
        }
        let printed = pair(listening, Ready::Says(READY), asking)?;
        let strange = || {
            Error::new(format!("{PROGRAM} printed other columns than expected: {}", printed.trim()))
        };
        let row = Row::parse(&printed).ok_or_else(strange)?;
        let gigabytes = row.mebibytes_per_second * f64::from(1 << 20) / 1e9;
        Ok(vec![match case.test {
            Test::PutLatency => (Figure::PutLat, row.latency_us),
            Test::PutBandwidth => (Figure::PutBw, gigabytes),
            Test::MessageBandwidth => (Figure::MessageBw, gigabytes),
            Test::GetLatency => (Figure::GetLat, row.latency_us),
            Test::GetBandwidth => (Figure::GetBw, gigabytes),
            Test::FetchAdd => (Figure::FetchAdd, row.latency_us),
            Test::CompareSwap => (Figure::CompareSwap, row.latency_us),
            Test::MessageRate => (Figure::MessageRate, row.messages_per_second / 1e6),
            _ => (Figure::MessageLat, row.latency_us),
        }])
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "ucx-tcp, ucx-shm: its own ucx_perftest, which reuses one buffer and so runs hot. Messages are tag-matched.",
        )
    }
}

/// Values needed from the last row of UCX's CSV: the median latency, and the overall rates.
struct Row {
    latency_us: f64,
    /// Column that UCX calls MB, in units of 2²⁰ bytes.
    mebibytes_per_second: f64,
    messages_per_second: f64,
}

impl Row {
    fn parse(printed: &str) -> Option<Self> {
        let heading = printed.lines().find(|line| line.starts_with("iterations,"))?;
        let values: Vec<&str> =
            printed.lines().rev().find(|line| !line.trim().is_empty())?.split(',').collect();
        let column = |name: &str| -> Option<f64> {
            let place = heading.split(',').position(|column| column.trim() == name)?;
            values.get(place)?.trim().parse().ok()
        };
        Some(Self {
            latency_us: column("50.0_percentile_lat")?,
            mebibytes_per_second: column("overall_bw")?,
            messages_per_second: column("overall_mr")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    /// Output of UCX 1.13.
    const PRINTED: &str = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                           3000,2366.375,18698.386,2105.376,53.48,474.97,53,475\n";

    #[test]
    fn its_output_is_understood() {
        let row = Row::parse(PRINTED).expect("a row");
        assert_eq!(row.latency_us, 2366.375);
        assert_eq!(row.mebibytes_per_second, 474.97);
        assert_eq!(row.messages_per_second, 475.0);
        // 1 MiB per 2105.376 µs (overall_lat) is 498 MB/s, or 475 MiB/s. UCX prints 475, because
        // its MB has 2²⁰ bytes.
        assert!(
            (row.mebibytes_per_second * f64::from(1 << 20) - f64::from(1 << 20) / 2105.376e-6)
                .abs()
                < 1e4
        );
    }

    #[test]
    fn other_output_is_not() {
        for printed in [
            "",
            "iterations,overall_lat\n",
            "3000,1,2\n",
            "iterations,50.0_percentile_lat,overall_bw\nfailed\n",
        ] {
            assert!(Row::parse(printed).is_none(), "{printed:?}");
        }
    }
}
