//! Oikaze itself, measured by `oikaze perf` as a job of two nodes in the lab.
//!
//! The launcher runs on the first host, so that both hosts reach its store. It enters both hosts by
//! the bench's own program in place of ssh.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use oikaze_os::cpu::cpulist;
use serde::Deserialize;

use super::{Effort, Found, System, only};
use crate::error::Error;
use crate::lab::{CLIENT, Lab, Place, SERVER, core_of_each, remote_shell};
use crate::process::{alone, during, limited, own_program};
use crate::suite::case::{Case, Figure, Test};
use crate::wind::flood;

/// Time limit of a measurement.
const LIMIT: Duration = Duration::from_secs(60);

/// Protection of datagrams. The name of a system tells it in all benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// AES-128-GCM, the default of users: `oikaze-full`.
    Full,
    /// AES-128-GMAC over everything: `oikaze-integrity`.
    Integrity,
    /// CRC32C end to end: `oikaze`, because most peers encrypt nothing.
    Crc,
    /// Checksum of headers only: `oikaze-unchecked`.
    Header,
}

impl Seal {
    /// Returns the word of `oikaze run --seal`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Integrity => "integrity",
            Self::Crc => "crc",
            Self::Header => "header",
        }
    }
}

/// Oikaze as a measured system.
pub struct Oikaze {
    pub seal: Seal,
    /// Class of the messages.
    pub class: &'static str,
}

/// Line that `oikaze perf --json` prints. Values that were not measured are null.
#[derive(Deserialize)]
struct Line {
    /// Median latency in µs.
    latency_us: Option<f64>,
    percentiles_us: Option<Percentiles>,
    bandwidth_gbs: Option<f64>,
    per_second: Option<f64>,
    processor_seconds_per_gib: Option<f64>,
    other_processor_seconds_per_gib: Option<f64>,
    reference: Option<Box<Line>>,
}

#[derive(Deserialize)]
struct Percentiles {
    p99: f64,
}

/// Returns the path of the `oikaze` command, which is built beside the bench.
///
/// # Errors
/// The command is not there.
pub fn program() -> Result<PathBuf, Error> {
    let me = own_program()?;
    let oikaze = me.with_file_name("oikaze");
    if oikaze.is_file() {
        return Ok(oikaze);
    }
    Err(Error::new(format!(
        "{} is not there; build it: cargo build --release -p oikaze-cli, or pass --without oikaze,oikaze-unchecked",
        oikaze.display()
    )))
}

/// Returns the arguments for `oikaze perf`.
fn arguments(case: Case, effort: Effort, class: &str) -> Vec<String> {
    let Effort { operations, volume, costly, .. } = effort;
    let exchanges = effort.exchanges_of(case.test);
    let latency =
        vec!["--only".to_owned(), "latency".into(), "--iterations".into(), exchanges.to_string()];
    let throughput = |volume: usize| {
        vec!["--only".to_owned(), "throughput".into(), "--volume".into(), volume.to_string()]
    };
    let (test, how) = match case.test {
        Test::MessageLatency | Test::FirstMessages => ("message", latency),
        Test::PutLatency => ("put", latency),
        Test::PutDone => ("put-done", latency),
        Test::Consecutive => ("consecutive", latency),
        Test::Passive => ("passive", latency),
        Test::PutBandwidth => ("put", throughput(volume.max(4 * case.size))),
        Test::MessageBandwidth => ("message", throughput(volume.max(4 * case.size))),
        Test::MessageRate => ("message", throughput(operations as usize * case.size)),
        Test::Processor | Test::Flood | Test::Placed => ("put", throughput(costly)),
        Test::GetLatency => ("get", latency),
        Test::GetBandwidth => ("get", throughput(volume.max(4 * case.size))),
        Test::FetchAdd => ("fetch-add", latency),
        Test::CompareSwap => ("compare-swap", latency),
        Test::Strided => ("block", throughput(volume.max(4 * case.size))),
        Test::Accumulate => ("accumulate", throughput(volume.max(4 * case.size))),
        Test::Fifo => {
            ("fifo", vec!["--volume".into(), (operations as usize * case.size).to_string()])
        }
        Test::Mixed => (
            "mixed",
            vec![
                "--iterations".into(),
                exchanges.to_string(),
                "--volume".into(),
                volume.to_string(),
            ],
        ),
    };
    let mut arguments = vec![
        "perf".to_owned(),
        test.into(),
        "--json".into(),
        "--size".into(),
        case.size.to_string(),
    ];
    arguments.extend(how);
    if test == "message" {
        arguments.extend(["--class".into(), class.to_owned()]);
    }
    arguments
}

/// Returns the figures of a test from the line, if the line has them.
fn figures(test: Test, line: &Line) -> Option<Found> {
    let reference = line.reference.as_deref();
    Some(match test {
        Test::MessageLatency => vec![(Figure::MessageLat, line.latency_us?)],
        Test::FirstMessages => vec![(Figure::FirstLat, line.latency_us?)],
        Test::PutLatency => vec![(Figure::PutLat, line.latency_us?)],
        Test::PutDone => vec![(Figure::PutDone, line.latency_us?)],
        Test::Consecutive => vec![(Figure::ConsecutiveLat, line.latency_us?)],
        Test::PutBandwidth => vec![(Figure::PutBw, line.bandwidth_gbs?)],
        Test::MessageBandwidth => vec![(Figure::MessageBw, line.bandwidth_gbs?)],
        Test::MessageRate => vec![(Figure::MessageRate, line.per_second? / 1e6)],
        Test::Processor => vec![(Figure::Cpu, line.processor_seconds_per_gib?)],
        Test::Placed => vec![(Figure::PlacedCpu, line.other_processor_seconds_per_gib?)],
        // The caller knows which of the three figures of a flood this is.
        Test::Flood => vec![(Figure::FloodBw, line.bandwidth_gbs?)],
        Test::GetLatency => vec![(Figure::GetLat, line.latency_us?)],
        Test::GetBandwidth => vec![(Figure::GetBw, line.bandwidth_gbs?)],
        Test::FetchAdd => vec![(Figure::FetchAdd, line.latency_us?)],
        Test::CompareSwap => vec![(Figure::CompareSwap, line.latency_us?)],
        Test::Strided => vec![(Figure::Strided, line.bandwidth_gbs?)],
        Test::Accumulate => vec![(Figure::Accumulate, line.bandwidth_gbs?)],
        Test::Fifo => vec![(Figure::Fifo, line.per_second? / 1e6)],
        Test::Passive => vec![
            (Figure::Passive, line.latency_us?),
            (Figure::PassiveDriven, reference?.latency_us?),
        ],
        Test::Mixed => vec![
            (Figure::MixedLat, line.latency_us?),
            (Figure::MixedLatP99, line.percentiles_us.as_ref()?.p99),
            (Figure::MixedBw, line.bandwidth_gbs?),
            (Figure::MixedIdleLat, reference?.latency_us?),
            (Figure::MixedAloneBw, reference?.bandwidth_gbs?),
        ],
    })
}

impl System for Oikaze {
    fn name(&self) -> &'static str {
        match self.seal {
            Seal::Full => "oikaze-full",
            Seal::Integrity => "oikaze-integrity",
            Seal::Crc => "oikaze",
            Seal::Header => "oikaze-unchecked",
        }
    }

    fn present(&self) -> Result<(), Error> {
        program().map(drop)
    }

    fn has(&self, case: Case) -> bool {
        // Longer messages are not measured. A message that costs more than all credit goes alone
        // (WIND-6.7).
        !(case.test == Test::MessageBandwidth && case.size > 16 << 20)
    }

    fn is_quick(&self, case: Case) -> bool {
        // Without checksums, a quick bench measures only bulk, whose checksums take time.
        self.seal != Seal::Header
            || matches!(
                case.test,
                Test::PutBandwidth
                    | Test::MessageBandwidth
                    | Test::Processor
                    | Test::GetBandwidth
                    | Test::Strided
            )
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        match case.test {
            Test::Flood => self.flooded(lab, case, effort),
            Test::Placed => self.placed(lab, case, effort),
            _ => self.run(lab, case, effort, &[]),
        }
    }

    fn note(&self) -> Option<&'static str> {
        Some(match self.seal {
            Seal::Crc => {
                "oikaze: CRC32C end to end. Bandwidth over 512 MiB of memory walked through (in shm: one buffer, as its peer's); messages of 16 MiB at most. Run as root, it takes and sends small datagrams past the kernel's IP, which no peer does (OIKAZE_WITHOUT=tcx: by the sockets). Latencies are less what a look at the clock takes (some 25 ns of a round trip); ucx_perftest's hold its own, quicker one (11 ns)."
            }
            Seal::Header => {
                "oikaze-unchecked: checksum of headers only, as TCP on a network card that computes its own."
            }
            Seal::Integrity => "oikaze-integrity: AES-128-GMAC over everything.",
            Seal::Full => "oikaze-full: AES-128-GCM, the default of users.",
        })
    }
}

/// Returns the launcher of a job with a node on each host of the lab, up to the option `--`.
///
/// # Errors
/// The command is not built.
pub fn launcher(lab: &Lab, limit: Duration, seal: &str) -> Result<Command, Error> {
    launcher_on(lab, &lab.place.addresses(), limit, seal)
}

/// Returns the launcher of a job with a node on each of these hosts of the lab, up to the option
/// `--`.
fn launcher_on(lab: &Lab, hosts: &[&str], limit: Duration, seal: &str) -> Result<Command, Error> {
    let mut command = lab.on(CLIENT, limit, program()?);
    command.env("OIKAZE_RSH", remote_shell()?);
    command.args(["run", "--no-prefix", "--seal", seal, "--hosts", &hosts.join(",")]);
    Ok(command)
}

/// Returns the launcher of a job at the lab's place, up to the option `--`: on the first hosts of a
/// wire, one node each, or on this machine ([`launcher_here`]), where nothing is sealed.
///
/// # Errors
/// The command is not built.
pub fn job(lab: &Lab, nodes: usize, limit: Duration, seal: Seal) -> Result<Command, Error> {
    match lab.place {
        Place::Wire { mtu, .. } if nodes > lab.place.addresses().len() => {
            // More hosts than the lab has, joined by a switch.
            let mut command = limited(limit, program()?);
            command.args(["run", "--no-prefix", "--seal", seal.word(), "--netns"]);
            command.args(["--mtu", &mtu.to_string(), "-n", &nodes.to_string()]);
            Ok(command)
        }
        Place::Wire { .. } => {
            launcher_on(lab, &lab.place.first_addresses(nodes)?, limit, seal.word())
        }
        Place::Here => launcher_here(nodes, limit),
    }
}

/// Returns the launcher of a job of this machine, with the defaults of Oikaze, up to the option
/// `--`. Each node is bound to a core of its own. More nodes than cores are not bound.
///
/// # Errors
/// The command is not built.
pub fn launcher_here(nodes: usize, limit: Duration) -> Result<Command, Error> {
    let mut command = limited(limit, program()?);
    command.args(["run", "--no-prefix", "-n", &nodes.to_string()]);
    if let Some(cores) = core_of_each(nodes) {
        command.args(["--bind", &format!("app={}", cpulist(&cores))]);
    }
    Ok(command)
}

impl Oikaze {
    /// Runs one job of `oikaze perf`, with these variables.
    ///
    /// # Errors
    /// The job fails, or prints no such figure.
    pub fn run(
        &self,
        lab: &Lab,
        case: Case,
        effort: Effort,
        environment: &[(&str, &str)],
    ) -> Result<Found, Error> {
        let mut command = launcher(lab, LIMIT, self.seal.word())?;
        command.envs(environment.iter().copied()).arg("--").arg(program()?);
        command.args(arguments(case, effort, self.class));
        if lab.place == Place::Here {
            // Within a machine the copy is the only cost, and a copy from a cache is many times as
            // fast. All systems reuse one buffer.
            command.args(["--hot", "--shared"]);
        }
        let printed = alone(command)?;
        let line = printed.lines().find_map(|line| {
            line.find('{').and_then(|start| serde_json::from_str::<Line>(&line[start..]).ok())
        });
        line.and_then(|line| figures(case.test, &line)).ok_or_else(|| {
            Error::new(format!("oikaze perf printed no such figure: {}", printed.trim()))
        })
    }

    /// Measures a put that is received directly into its place, and one that is copied. Returns for
    /// both the time from call to completion, and the processor time of a receiver that sleeps
    /// while nothing comes.
    fn placed(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        const SLEEPS: (&str, &str) = ("OIKAZE_WAIT", "block");
        const COPIES: (&str, &str) = ("OIKAZE_WITHOUT", "direct-placement");
        let effort = Effort { exchanges: effort.exchanges / 10, ..effort };
        let whole = Case { test: Test::PutDone, ..case };
        let of = |case, environment: &[_]| only(self.run(lab, case, effort, environment)?);
        Ok(vec![
            (Figure::Placed, of(whole, &[])?),
            (Figure::PlacedCopy, of(whole, &[COPIES])?),
            (Figure::PlacedCpu, of(case, &[SLEEPS])?),
            (Figure::PlacedCopyCpu, of(case, &[SLEEPS, COPIES])?),
        ])
    }

    /// Measures with a flood at the receiving node, with the same flood at another port of its
    /// host, and without a flood.
    fn flooded(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let me = own_program()?;
        let bandwidth = || match self.run(lab, case, effort, &[])?.first() {
            Some((_, found)) => Ok(*found),
            None => Err(Error::new("oikaze perf printed no bandwidth")),
        };
        let flooded = |aim: &[&str]| {
            // The flooder sends from the first host's end of the wire, on the core of the second
            // host.
            let mut flooder = lab.on(CLIENT, LIMIT, "taskset");
            flooder.args(["-c", &SERVER.to_string()]).arg(&me).args(["flood", "send"]).args(aim);
            let (printed, found) = during(flooder, bandwidth)?;
            let rate = flood::rate(&printed).unwrap_or(0.0);
            if rate < f64::from(flood::RATE) * 0.9 {
                return Err(Error::new(format!("the flood was only {rate:.0} datagrams a second")));
            }
            Ok(found)
        };
        let alone = bandwidth()?;
        let mut holder = lab.on(SERVER, LIMIT, &me);
        holder.args(["flood", "hold"]);
        let (_, elsewhere) =
            during(holder, || flooded(&["--port", &flood::ELSEWHERE.to_string()]))?;
        let found = flooded(&[])?;
        Ok(vec![
            (Figure::FloodBw, found),
            (Figure::FloodElsewhereBw, elsewhere),
            (Figure::FloodAloneBw, alone),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_understood() {
        let line = r#"{"latency_us":2.0,"percentiles_us":{"p50":2.0,"p99":9.0},"bandwidth_gbs":1.5,"per_second":2e6,
            "processor_seconds_per_gib":0.5,"statistics":{"barriers":5},
            "reference":{"latency_us":1.0,"bandwidth_gbs":3.0,"percentiles_us":null,"per_second":null,"processor_seconds_per_gib":null,"reference":null}}"#;
        let line: Line = serde_json::from_str(line).expect("JSON");
        assert_eq!(figures(Test::MessageRate, &line), Some(vec![(Figure::MessageRate, 2.0)]));
        assert_eq!(
            figures(Test::Passive, &line),
            Some(vec![(Figure::Passive, 2.0), (Figure::PassiveDriven, 1.0)])
        );
        assert_eq!(figures(Test::Mixed, &line).map(|found| found.len()), Some(5));
        assert!(line.reference.is_some_and(|line| figures(Test::Processor, &line).is_none()));
    }
}
