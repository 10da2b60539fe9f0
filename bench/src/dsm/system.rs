//! Systems of the bench: Oikaze with guards, with plain loads and stores, and without segments,
//! MPI, and one processor alone.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use oikaze_os::features::Feature;
use oikaze_os::memory::{collapses_files, huge_page};
use serde::Deserialize;
use serde_json::Value;

use super::case::{Case, Mode, Unit};
use super::{mpi, plain};
use crate::error::Error;
use crate::lab::{CLIENT, Lab};
use crate::peers::oikaze;
use crate::peers::oikaze::Seal;
use crate::process::{alone, own_program};

/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(60);

named! {
    /// System that the bench measures.
    pub enum System {
        /// Oikaze, with guards that fetch ahead.
        Oikaze = "oikaze",
        /// The same with the default seal, which encrypts.
        OikazeFull = "oikaze-full",
        /// Oikaze, with plain loads and stores that fault.
        OikazePlain = "oikaze-plain",
        /// Oikaze, with guards over arrays whose homes the program does not declare, so that homes
        /// move.
        OikazeHomes = "oikaze-homes",
        /// Oikaze from C, with plain pointers, by the programs of `bench/plain`.
        OikazeC = "oikaze-c",
        /// Oikaze on one machine without segments: each node keeps pages of its own.
        OikazePages = "oikaze-pages",
        /// Oikaze on one machine with arrays in small pages.
        OikazeSmall = "oikaze-small",
        /// Oikaze's one-sided reads, beside which fetches stand: of 8 bytes for the time of one, of
        /// the same size for the bandwidth.
        OikazeGet = "oikaze-get",
        /// Oikaze's messages of 8 bytes, one way, beside which barriers stand.
        OikazeMessage = "oikaze-message",
        /// Open MPI over TCP or shared memory, with the C programs of `bench/mpi`.
        Mpi = "mpi",
        /// The serial program, without Oikaze.
        Serial = "serial",
    }
}

/// All systems, the baseline first.
pub const ALL: [System; 11] = [
    System::Mpi,
    System::OikazeFull,
    System::Oikaze,
    System::OikazePlain,
    System::OikazeHomes,
    System::OikazeC,
    System::OikazePages,
    System::OikazeSmall,
    System::OikazeGet,
    System::OikazeMessage,
    System::Serial,
];

/// Measurement that a system takes in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    pub case: Case,
    /// Size in bytes ([`Case::sizes`]).
    pub size: usize,
    pub nodes: u32,
    /// Delivery of updates; the runtime's choice if absent.
    pub delivery: Option<&'static str>,
}

/// Result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Figure in the unit of the case.
    pub value: f64,
    /// Check value of the program's result, if it has one.
    pub check: Option<Value>,
}

/// Line of JSON that every program prints. Each has a rate or a time, and a check value.
#[derive(Deserialize)]
struct Line {
    mflops: Option<f64>,
    mops: Option<f64>,
    us: Option<f64>,
    /// Median of `oikaze perf`.
    latency_us: Option<f64>,
    /// Throughput of `oikaze perf`.
    bandwidth_gbs: Option<f64>,
    mib: Option<f64>,
    check: Option<Value>,
    /// Check value of `himeno` and `lu`.
    hash: Option<Value>,
}

impl System {
    /// Returns `true` if the system is measured there.
    pub fn is_in(self, mode: Mode) -> bool {
        match self {
            Self::OikazeC | Self::OikazePages | Self::OikazeSmall => mode == Mode::Machine,
            Self::OikazeFull | Self::OikazeGet | Self::OikazeMessage | Self::OikazeHomes => {
                mode != Mode::Machine
            }
            _ => true,
        }
    }

    /// Returns `true` if the system runs on this many nodes.
    pub const fn runs_on(self, nodes: u32) -> bool {
        nodes == 1 || !matches!(self, Self::Serial)
    }

    /// Checks that the program of a case can be started, and builds the C programs.
    ///
    /// # Errors
    /// A compiler or a program is missing. The error names it and its package.
    pub fn prepare(self, case: Case) -> Result<(), Error> {
        match self {
            Self::Mpi => mpi::OPEN_MPI.build(case.program()).map(drop),
            Self::OikazeC => plain::build(case.program()).map(drop),
            Self::OikazeSmall if huge_page().is_none() || collapses_files().is_err() => {
                Err(Error::new(
                    "this machine has no huge pages for arrays to compare small ones with (`oikaze doctor` says why); leave them out by --without oikaze-small",
                ))
            }
            _ if case.is_app() => program(case.program()).map(drop),
            _ => oikaze::program().map(drop),
        }
    }

    /// Runs a series once on hosts of the lab or on this machine, with one core for each node.
    ///
    /// # Errors
    /// The program fails, its result is wrong, or its output has no figure.
    pub fn measure(self, lab: &Lab, what: Measurement, quick: bool) -> Result<Found, Error> {
        let printed = alone(self.command(lab, what, quick)?)?;
        let case = what.case;
        found(case.unit(), &printed).ok_or_else(|| {
            let name = case.name();
            Error::new(format!("{name} printed no figure in {:?}: {}", case.unit(), printed.trim()))
        })
    }

    fn command(self, lab: &Lab, what: Measurement, quick: bool) -> Result<Command, Error> {
        let Measurement { case, size, nodes, delivery } = what;
        let arguments = case.arguments(size, quick);
        Ok(match self {
            Self::Mpi => {
                let mut command = mpi::launcher(lab, nodes as usize, LIMIT)?;
                command.arg(mpi::OPEN_MPI.build(case.program())?).args(arguments);
                command
            }
            Self::Serial => {
                let mut command = lab.on(CLIENT, LIMIT, program(case.program())?);
                command.args(["--serial", "--json"]).args(arguments);
                command
            }
            _ => {
                let oikaze = oikaze::program()?;
                let seal = if self == Self::OikazeFull { Seal::Full } else { Seal::Crc };
                let mut command = oikaze::job(lab, nodes as usize, LIMIT, seal)?;
                command.arg("--");
                command.envs(delivery.map(|delivery| ("OIKAZE_DELIVERY", delivery)));
                let without = match self {
                    Self::OikazePages => Some(Feature::Segment),
                    Self::OikazeSmall => Some(Feature::Huge),
                    _ => None,
                };
                command.envs(without.map(|feature| ("OIKAZE_WITHOUT", feature.word())));
                match case.perf() {
                    _ if self == Self::OikazeC => command.arg(plain::build(case.program())?),
                    _ if self == Self::OikazeGet => {
                        command.arg(oikaze).args(["perf", "get", "--json"]);
                        command.args(case.get_arguments(size));
                        return Ok(command);
                    }
                    _ if self == Self::OikazeMessage => {
                        command.arg(oikaze).args(["perf", "message", "--json"]);
                        command.args(["--size", "8", "--only", "latency"]);
                        return Ok(command);
                    }
                    Some(test) => command.arg(oikaze).args(["perf", test, "--json"]),
                    None => match case.node() {
                        Some(role) => command.arg(own_program()?).args(["node", role]),
                        None => command.arg(program(case.program())?).arg("--json"),
                    },
                };
                command.args(arguments);
                if self == Self::OikazePlain {
                    command.args(["--touch", "lazily"]);
                }
                if self == Self::OikazeHomes {
                    command.args(["--homes", "default"]);
                }
                command
            }
        })
    }

    /// Returns a note that a reader of the system's figures must know.
    pub const fn note(self, mode: Mode) -> &'static str {
        match self {
            Self::Oikaze if matches!(mode, Mode::Machine) => {
                "oikaze: guards over memory that all nodes map. Started by oikaze run with its defaults, each process on a core of its own."
            }
            Self::Oikaze => {
                "oikaze: guards that fetch what they cover, with --seal crc. Started by oikaze run with its defaults, one process on each host."
            }
            Self::OikazeFull => "oikaze-full: oikaze with the default seal, which encrypts.",
            Self::OikazePlain if matches!(mode, Mode::Machine) => {
                "oikaze-plain: the same programs with --touch lazily: guards show copies, and what changed is stored when they end."
            }
            Self::OikazePlain => {
                "oikaze-plain: the same programs with --touch lazily: nothing is fetched before a load or a store faults."
            }
            Self::OikazeHomes => {
                "oikaze-homes: oikaze with --homes default: homes are blocks at first, and move to where pages are written."
            }
            Self::OikazeC => {
                "oikaze-c: C programs with plain pointers, and the inner loops of the others."
            }
            Self::OikazePages => {
                "oikaze-pages: oikaze with OIKAZE_WITHOUT=segment: each node keeps pages of its own, and fetches them from the other."
            }
            Self::OikazeSmall => {
                "oikaze-small: oikaze with OIKAZE_WITHOUT=huge: arrays are in pages of 4 KiB, and otherwise in huge ones."
            }
            Self::OikazeGet => {
                "oikaze-get: one-sided reads of 8 bytes (beside fetch), or of 1 MiB, many in flight (beside fetch_bw)."
            }
            Self::OikazeMessage => {
                "oikaze-message: messages of 8 bytes, one way (beside barrier and lock_page)."
            }
            Self::Mpi if matches!(mode, Mode::Machine) => {
                "mpi: Open MPI through shared memory with its defaults, each process on a core of its own; it polls without sleeping. C with -O3 -march=native, and the kernels of apps."
            }
            Self::Mpi => {
                "mpi: Open MPI over TCP with messages of up to 1 MiB sent eagerly; it polls without sleeping, as by default. C with -O3 -march=native, and the kernels of apps."
            }
            Self::Serial => "serial: one process on one core, without Oikaze.",
        }
    }
}

/// Returns the path of one of Oikaze's programs, which are built beside the bench.
///
/// # Errors
/// The program is not there.
pub fn program(name: &str) -> Result<PathBuf, Error> {
    let me = own_program()?;
    let program = me.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::new(format!(
        "{} is not there; build it: cargo build --release -p oikaze-apps",
        program.display()
    )))
}

/// Returns the figure and the check value of a program's output.
fn found(unit: Unit, printed: &str) -> Option<Found> {
    let line = printed.lines().find_map(|line| {
        line.find('{').and_then(|start| serde_json::from_str::<Line>(&line[start..]).ok())
    })?;
    let value = match unit {
        Unit::Mflops => line.mflops,
        Unit::Mops => line.mops,
        Unit::Us => line.us.or(line.latency_us),
        Unit::Gbs => line.bandwidth_gbs,
        Unit::Mib => line.mib,
    }?;
    let is_program = matches!(unit, Unit::Mflops | Unit::Mops);
    let check = if is_program { line.check.or(line.hash) } else { None };
    (value.is_finite() && value > 0.0).then_some(Found { value, check })
}

/// Maximum relative difference of two check values that are numbers. A sum depends on the order of
/// its terms, and so on the number of nodes.
const TOLERANCE: f64 = 1e-9;

/// Returns `true` if two programs have computed the same. Fingerprints must be equal. If one value
/// is a number, the other one must be close to it, also where it is a number in text.
pub fn agree(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    if one.is_string() && other.is_string() {
        return one == other;
    }
    match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_all_programs_is_understood() {
        let mpi = r#"{"mflops":6194.906,"seconds":0.028,"check":"8d5d87ddd7e48c09","gosa":2.3e-3}"#;
        let oikaze = r#"{"gosa":2.3e-3,"hash":"8d5d87ddd7e48c09","mflops":3000.0,"nodes":2,"nodes_did":[{"diffs":1}]}"#;
        let (mpi, oikaze) = (found(Unit::Mflops, mpi), found(Unit::Mflops, oikaze));
        let (Some(mpi), Some(oikaze)) = (mpi, oikaze) else { panic!("not understood") };
        assert_eq!((mpi.value, oikaze.value), (6194.906, 3000.0));
        assert_eq!(mpi.check, oikaze.check);
        let keys = found(Unit::Mops, "warning\n{\"mops\":12.5,\"check\":\"ab\"}\n");
        assert_eq!(keys.map(|found| found.value), Some(12.5));
        let perf = r#"{"latency_us":9.5,"percentiles_us":{"p99":12.0},"per_second":null}"#;
        let perf = found(Unit::Us, perf).expect("a latency");
        assert_eq!((perf.value, perf.check), (9.5, None));
        let memory = found(Unit::Mib, r#"{"mib":1030.5}"#);
        assert_eq!(memory.map(|found| found.value), Some(1030.5));
    }

    #[test]
    fn output_without_the_figure_is_refused() {
        for printed in ["", "{}", "{\"mops\":1.0}", "{\"mflops\":0.0}", "{\"mflops\":-1}", "{"] {
            assert_eq!(found(Unit::Mflops, printed), None, "{printed:?}");
        }
    }

    #[test]
    fn fingerprints_must_be_equal_and_numbers_close() {
        let text = |text: &str| Value::from(text);
        assert!(agree(&text("8d5d87ddd7e48c09"), &text("8d5d87ddd7e48c09")));
        assert!(!agree(&text("8d5d87ddd7e48c09"), &text("8d5d87ddd7e48c08")));
        assert!(agree(&17.130235054029.into(), &17.130235054031.into()));
        assert!(!agree(&17.130235054029.into(), &17.130235154029.into()));
        assert!(agree(&17.130235054029.into(), &text("17.1302350540290")));
        assert!(!agree(&17.130235054029.into(), &text("17.2302350540290")));
        assert!(!agree(&17.0.into(), &text("8d5d87ddd7e48c09")));
    }

    #[test]
    fn pages_are_compared_with_segments_where_there_are_segments() {
        let measured =
            |mode| -> Vec<System> { ALL.into_iter().filter(|system| system.is_in(mode)).collect() };
        let all = [System::Oikaze, System::OikazePlain];
        let machine = [System::OikazeC, System::OikazePages, System::OikazeSmall, System::Serial];
        let machine = [&[System::Mpi], &all[..], &machine].concat();
        let full = [System::Mpi, System::OikazeFull];
        let rest = [System::OikazeHomes, System::OikazeGet, System::OikazeMessage, System::Serial];
        let wire = [&full[..], &all, &rest].concat();
        assert_eq!(measured(Mode::Machine), machine);
        assert_eq!([measured(Mode::Wire), measured(Mode::Whole)], [wire.clone(), wire]);
    }

    #[test]
    fn serial_program_has_one_node() {
        assert!(System::Serial.runs_on(1) && !System::Serial.runs_on(2));
        assert!(System::Mpi.runs_on(1) && System::Oikaze.runs_on(2));
    }
}
