//! Bench of one node that sends the same to several: with multicast, with unicast, and Open MPI.
//!
//! Each node is a host of its own. A switch joins the hosts, and each port carries a rate in each
//! direction. So the bytes that a node sends decide on the time, as on a cable, and not the cores
//! that the hosts share. All systems run between hosts that were made in the same way.

use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::dsm::mpi;
use crate::error::Error;
use crate::lab::{Lab, Place, remote_shell};
use crate::peers::oikaze;
use crate::process::{alone, limited, seal};
use crate::record::Record;
use crate::suite::case::{KIB, MIB};
use crate::suite::goals::{Bound, Found, Goal};
use crate::suite::selection::Selection;
use crate::suite::series::{AllSeries, Part};
use crate::suite::{Rounds, once_more, warn_if_busy};
use crate::switch::Switch;

/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(60);
/// Rate of each port in each direction, as `oikaze run --rate` reads it.
const RATE: &str = "1gbit";
/// The same in bytes per second.
const RATE_BYTES: u64 = 125_000_000;

named! {
    /// Figure of the bench.
    pub enum Case {
        /// Broadcast of a vector, with another root each time.
        Broadcast = "broadcast",
        /// Barriers that each bring an update of one node to all others.
        BarrierUpdate = "barrier_update",
        /// Bytes that all nodes send for a broadcast, in times of its bytes.
        BroadcastBytes = "broadcast_bytes",
    }
}

named! {
    /// System that the bench measures.
    pub enum System {
        /// Open MPI over TCP.
        Mpi = "mpi",
        /// Oikaze with multicast.
        Oikaze = "oikaze",
        /// Oikaze with its defaults: the sender sends to each receiver.
        Unicast = "oikaze-unicast",
    }
}

/// All systems, the baseline first.
const ALL: [System; 3] = [System::Mpi, System::Unicast, System::Oikaze];

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    selection: Selection<Case, System>,
}

impl Case {
    /// Returns the pairs of size in bytes and number of nodes.
    const fn points(self) -> &'static [(usize, u32)] {
        match self {
            Self::Broadcast | Self::BroadcastBytes => &[(MIB, 4), (MIB, 8)],
            Self::BarrierUpdate => &[(64 * KIB, 4)],
        }
    }

    /// Returns the name of the program of `bench/mpi`, and its arguments before those of the size.
    const fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Broadcast | Self::BroadcastBytes => ("collectives", &["--case", "broadcast"]),
            Self::BarrierUpdate => ("barrier_update", &[]),
        }
    }

    /// Returns `true` if the system prints the figure.
    fn is_printed_by(self, system: System) -> bool {
        self != Self::BroadcastBytes || system != System::Mpi
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Broadcast | Self::BarrierUpdate => "us",
            Self::BroadcastBytes => "copies",
        }
    }

    /// Returns the figure from what a program printed.
    fn figure(self, printed: &str, size: usize) -> Option<f64> {
        match self {
            Self::Broadcast | Self::BarrierUpdate => field(printed, &["us", "latency_us"]),
            Self::BroadcastBytes => {
                field(printed, &["sent_bytes"]).map(|bytes| bytes / size as f64)
            }
        }
    }

    /// Returns the arguments of `oikaze perf` before those of the size.
    const fn perf(self) -> &'static [&'static str] {
        match self {
            Self::Broadcast | Self::BroadcastBytes => &["collectives", "--case", "broadcast"],
            Self::BarrierUpdate => &["barrier-update"],
        }
    }

    fn size_arguments(self, size: usize, quick: bool, mpi: bool) -> Vec<String> {
        let times = if quick { 40 } else { 160 };
        let mut arguments = match (self, mpi) {
            (Self::Broadcast | Self::BroadcastBytes, true) => {
                vec!["--sizes".to_owned(), size.to_string()]
            }
            _ => vec!["--size".to_owned(), size.to_string()],
        };
        arguments.extend(["--iterations".to_owned(), times.to_string()]);
        if self != Self::BarrierUpdate {
            arguments.extend(["--volume".to_owned(), (times * size).to_string()]);
        }
        arguments
    }
}

impl System {
    /// Checks that the programs can be started, and builds those in C.
    fn prepare(self, case: Case) -> Result<(), Error> {
        match self {
            Self::Mpi => mpi::OPEN_MPI.build(case.program().0).map(drop),
            _ => oikaze::program().map(drop),
        }
    }

    fn command(self, part: &SwitchPart, switch: &Switch, quick: bool) -> Result<Command, Error> {
        let SwitchPart { case, size, nodes, .. } = *part;
        if self == Self::Mpi {
            let (program, arguments) = case.program();
            let mut command = switch.on_first(LIMIT, mpi::LAUNCHER);
            command.args(mpi::launch(&switch.addresses(nodes), &remote_shell()?));
            // More processes than cores must not poll without a pause.
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
            command.arg(mpi::OPEN_MPI.build(program)?).args(arguments);
            command.args(case.size_arguments(size, quick, true));
            return Ok(command);
        }
        let oikaze = oikaze::program()?;
        let mut command = limited(LIMIT, &oikaze);
        if self == Self::Oikaze {
            command.env("OIKAZE_MULTICAST", "on");
        }
        command.args(["run", "--no-prefix", "--seal", &seal(), "--netns", "--rate", RATE]);
        command.args(["--mtu", &switch.mtu().to_string(), "-n", &nodes.to_string(), "--"]);
        command.arg(oikaze).arg("perf").args(case.perf()).arg("--json");
        command.args(case.size_arguments(size, quick, false));
        Ok(command)
    }
}

/// One system's part in one case.
struct SwitchPart {
    case: Case,
    size: usize,
    nodes: u32,
    system: System,
}

impl Part for SwitchPart {
    fn name(&self) -> String {
        format!("{}, {}, {} nodes", self.system.name(), self.case.name(), self.nodes)
    }

    fn is_ours(&self) -> bool {
        self.system != System::Mpi
    }
}

impl SwitchPart {
    /// Measures one round. Repeats a run that failed once.
    fn measure(&self, switch: &Switch, quick: bool) -> Result<Record, Error> {
        let run = || alone(self.system.command(self, switch, quick)?);
        let printed = once_more(&self.name(), run)?;
        let none = || Error::new(format!("no figure was printed: {}", printed.trim()));
        Ok(Record {
            bench: "multicast",
            case: self.case.name(),
            size: self.size,
            system: self.system.name(),
            value: self.case.figure(&printed, self.size).ok_or_else(none)?,
            unit: self.case.unit(),
            mtu: Some(switch.mtu()),
            mode: Some(RATE),
            nodes: Some(self.nodes),
            ..Record::default()
        })
    }
}

/// Returns the first of these fields that a program printed, if it is a positive number.
fn field(printed: &str, names: &[&str]) -> Option<f64> {
    let lines = printed.lines().filter_map(|line| {
        line.find('{').and_then(|start| serde_json::from_str::<Value>(&line[start..]).ok())
    });
    let named = |line: Value| names.iter().find_map(|name| line[*name].as_f64());
    lines.into_iter().find_map(named).filter(|figure| figure.is_finite() && *figure > 0.0)
}

impl Run {
    fn parts(&self) -> Vec<SwitchPart> {
        use clap::ValueEnum;
        let cases = Case::value_variants().iter().copied();
        let mut all = Vec::new();
        for case in cases.filter(|case| self.selection.has_case(case)) {
            for &(size, nodes) in case.points() {
                let systems = self.selection.systems(ALL);
                all.extend(
                    systems.filter(|system| case.is_printed_by(*system)).map(|system| SwitchPart {
                        case,
                        size,
                        nodes,
                        system,
                    }),
                );
            }
        }
        all
    }
}

/// Runs the bench.
///
/// # Errors
/// Open MPI is missing (the error names its packages), or the user is not root. A system that fails
/// in a case is left out there and noted. If that system is Oikaze, the bench fails after all
/// others have been measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let mut all = AllSeries::new(run.parts())?;
    all.parts().try_for_each(|one| one.system.prepare(one.case))?;
    let before = warn_if_busy();
    let hosts = all.parts().map(|one| one.nodes).max().unwrap_or(2);
    {
        // Holds the lock of the benches.
        let _lab = Lab::up(Place::Here)?;
        let switch = Switch::make(hosts, run.selection.mtu, RATE_BYTES)?;
        let measure = |one: &SwitchPart| Ok(vec![one.measure(&switch, run.rounds.quick)?]);
        run.rounds.run(Place::Here, |round| all.round(round, |_| true, measure));
    }
    let notes = [
        format!(
            "Each port of the switch carries {RATE} in each direction. Nodes share the cores of this machine."
        ),
        format!("oikaze, oikaze-unicast: --seal {}; the former with OIKAZE_MULTICAST=on.", seal()),
        "mpi: Open MPI over TCP, messages of up to 1 MiB sent eagerly; it yields while it polls."
            .to_owned(),
    ];
    all.report(&run.rounds, before, System::Mpi.name(), goals, notes)
}

/// Maximum time of a broadcast to 7 receivers, in times of unicast.
const BROADCAST: f64 = 0.6;
/// Maximum number of copies of a broadcast that all nodes send, for any number of receivers.
const COPIES: f64 = 1.1;
/// Maximum time of a barrier with an update to 3 receivers, in times of MPI.
const UPDATE: f64 = 0.6;

fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, nodes: u32, system: System| {
        let wanted = (case.name(), Some(nodes), system.name());
        records.iter().find(|one| (one.case, one.nodes, one.system) == wanted)
    };
    let beside = |case, nodes, other| {
        Found::ratio((of(case, nodes, System::Oikaze), of(case, nodes, other)))
    };
    let copies = |nodes| Found::value(of(Case::BroadcastBytes, nodes, System::Oikaze));
    vec![
        ("broadcast 1 MiB, 4 nodes: copies".to_owned(), copies(4), Bound::AtMost(COPIES)),
        ("broadcast 1 MiB, 8 nodes: copies".to_owned(), copies(8), Bound::AtMost(COPIES)),
        (
            "broadcast 1 MiB, 8 nodes / unicast".to_owned(),
            beside(Case::Broadcast, 8, System::Unicast),
            Bound::AtMost(BROADCAST),
        ),
        (
            "barrier_update 64 KiB, 4 nodes / mpi".to_owned(),
            beside(Case::BarrierUpdate, 4, System::Mpi),
            Bound::AtMost(UPDATE),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_all_programs_is_understood() {
        let us = |printed: &str| Case::Broadcast.figure(printed, MIB);
        assert_eq!(us("a warning\n{\"case\":\"broadcast\",\"us\":9.5}\n"), Some(9.5));
        assert_eq!(us("{\"latency_us\":12.5,\"us\":null}"), Some(12.5));
        assert_eq!(us("{\"us\":0.0}"), None);
        let printed = "{\"us\":9.5,\"sent_bytes\":1572864}";
        assert_eq!(Case::BroadcastBytes.figure(printed, MIB), Some(1.5));
        assert!(!Case::BroadcastBytes.is_printed_by(System::Mpi));
    }

    #[test]
    fn goals_are_ratios_of_the_systems_that_they_name() {
        let record = |case: Case, nodes, system: System, value| Record {
            system: system.name(),
            nodes: Some(nodes),
            value,
            rounds: vec![value],
            ..Record::example(case.name(), MIB)
        };
        let records = [
            record(Case::Broadcast, 8, System::Oikaze, 1.0),
            record(Case::Broadcast, 8, System::Unicast, 4.0),
            record(Case::BarrierUpdate, 4, System::Oikaze, 1.0),
            record(Case::BarrierUpdate, 4, System::Mpi, 2.0),
            record(Case::BroadcastBytes, 8, System::Oikaze, 1.0625),
        ];
        let found = |(_, found, _): Goal| found.map(|found| found.value);
        let values: Vec<_> = goals(&records).into_iter().map(found).collect();
        assert_eq!(values, [None, Some(1.0625), Some(0.25), Some(0.5)]);
        assert!(goals(&[]).into_iter().all(|goal| found(goal).is_none()));
    }
}
