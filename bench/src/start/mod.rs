//! Bench of the start of a job on this machine: the time from the launcher's command to its end,
//! for nodes that join, meet at one barrier, and leave (LAUNCH-9, LAUNCH-10).

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::dsm::mpi::{self, MPICH, OPEN_MPI};
use crate::error::Error;
use crate::lab::{Place, core_of_each};
use crate::node;
use crate::peers::oikaze;
use crate::process::{alone, limited, own_program, seal};
use crate::record::Record;
use crate::suite::goals::{Bound, Found, Goal};
use crate::suite::selection::SystemSelection;
use crate::suite::series::{AllSeries, Part};
use crate::suite::{Rounds, once_more, warn_if_busy};

/// Time limit of one job.
const LIMIT: Duration = Duration::from_secs(60);
/// Program of MPI.
const PROGRAM: &str = "start";
/// Port of the store of torchrun. Oikaze's store is on one of the ports behind it.
const TORCH_PORT: &str = "29571";

named! {
    /// Launcher, and the nodes that it starts.
    pub enum System {
        /// Nodes of Oikaze under `oikaze run`.
        Run = "oikaze",
        /// Nodes of Oikaze under `mpirun` of Open MPI (PMIx).
        Mpirun = "oikaze-mpirun",
        /// Nodes of Oikaze under `mpiexec` of MPICH (PMI-1).
        Mpiexec = "oikaze-mpiexec",
        /// Nodes of Oikaze under `torchrun`.
        Torchrun = "oikaze-torchrun",
        /// Processes of MPICH under `oikaze run` (PMI-1).
        MpichOfRun = "mpich-oikaze-run",
        /// Processes of Open MPI under its own `mpirun`.
        OpenMpi = "openmpi",
        /// Processes of MPICH under its own `mpiexec`.
        Mpich = "mpich",
    }
}

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    systems: SystemSelection<System>,
    /// Number of nodes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=128))]
    nodes: u16,
}

impl System {
    /// Returns `true` if the system is left out where it is not installed.
    fn is_optional(self) -> bool {
        // 200 MB, and not needed for anything else.
        self == Self::Torchrun
    }

    fn present(self) -> Result<(), Error> {
        match self {
            Self::Run => oikaze::program().map(drop),
            Self::Mpirun => OPEN_MPI.installed(),
            Self::Mpiexec => MPICH.installed(),
            Self::Torchrun => {
                let help = Command::new("torchrun").arg("--help").output();
                match help.is_ok_and(|help| help.status.success()) {
                    true => Ok(()),
                    false => Err(Error::new("torchrun does not run; install python3-torch")),
                }
            }
            Self::OpenMpi => OPEN_MPI.build(PROGRAM).map(drop),
            Self::Mpich | Self::MpichOfRun => MPICH.build(PROGRAM).map(drop),
        }
    }

    /// Returns the command that starts a job. Oikaze is told which launcher it must find.
    fn command(self, nodes: u16) -> Result<Command, Error> {
        let count = nodes.to_string();
        let mut command = match self {
            Self::Run | Self::MpichOfRun => {
                let mut command = limited(LIMIT, oikaze::program()?);
                command.args(["run", "--no-prefix", "-n", &count, "--"]);
                command
            }
            Self::Mpirun | Self::OpenMpi => mpi::launcher_here(usize::from(nodes), LIMIT),
            Self::Mpiexec | Self::Mpich => {
                let mut command = limited(LIMIT, MPICH.launcher);
                command.args(["-n", &count]);
                command
            }
            Self::Torchrun => {
                let mut command = limited(LIMIT, "torchrun");
                command.args(["--nproc_per_node", &count, "--master_port", TORCH_PORT]);
                // The torchrun of Debian 12 fails unless it is told what to redirect, for a process
                // whose number has one digit. There may be no process of this number.
                command.args(["--no_python", "-r", "9:1", "-t", "9:1"]);
                command
            }
        };
        match self {
            Self::OpenMpi => command.arg(OPEN_MPI.build(PROGRAM)?),
            Self::Mpich | Self::MpichOfRun => command.arg(MPICH.build(PROGRAM)?),
            _ => command.arg(own_program()?).args(["node", "start"]),
        };
        let foreign = match self {
            Self::Mpirun => Some("pmix"),
            Self::Mpiexec => Some("pmi"),
            Self::Torchrun => Some("torchrun"),
            _ => None,
        };
        command.envs(foreign.map(|launcher| ("OIKAZE_LAUNCHER", launcher)));
        // The nodes need no settings of their rank, and so no second start of their program.
        command.env(node::ENTERED, "1").env("OIKAZE_SEAL", seal()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Starts a job, and returns the time until the launcher has ended, in milliseconds.
    fn measure(self, nodes: u16) -> Result<f64, Error> {
        let command = self.command(nodes)?;
        let begun = Instant::now();
        let printed = alone(command)?;
        let time = begun.elapsed().as_secs_f64() * 1e3;
        // Jobs of one node each would be quicker.
        let one_job = format!("{nodes} nodes");
        match printed.matches(&one_job).count() {
            1 => Ok(time),
            _ => Err(Error::new(format!("not one job of {one_job}: {}", printed.trim()))),
        }
    }
}

/// A system's part in the bench.
struct StartPart {
    system: System,
    nodes: u16,
}

impl Part for StartPart {
    fn name(&self) -> String {
        self.system.name().to_owned()
    }

    fn is_ours(&self) -> bool {
        !matches!(self.system, System::OpenMpi | System::Mpich)
    }
}

impl StartPart {
    /// Measures one round. Repeats a run that failed once.
    fn measure(&self) -> Result<Record, Error> {
        let &Self { system, nodes } = self;
        Ok(Record {
            bench: "start",
            case: "start",
            system: system.name(),
            value: once_more(system.name(), || system.measure(nodes))?,
            unit: "ms",
            nodes: Some(u32::from(nodes)),
            oversubscribed: core_of_each(usize::from(nodes)).is_none(),
            ..Record::default()
        })
    }
}

/// Runs the bench.
///
/// # Errors
/// A peer is missing; the error names its package. A system that fails is left out and noted. If
/// its launcher or nodes are Oikaze's, the bench fails after all others have been measured and
/// reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    use clap::ValueEnum;
    let mut notes = vec!["From the launcher's command to its end: start, one barrier, end.".into()];
    let mut parts = Vec::new();
    for system in run.systems.of(System::value_variants().iter().copied()) {
        match system.present() {
            Ok(()) => parts.push(StartPart { system, nodes: run.nodes }),
            Err(why) if system.is_optional() => {
                notes.push(format!("left out: {}: {why}", system.name()));
            }
            Err(why) => return Err(why),
        }
    }
    let mut all = AllSeries::new(parts)?;
    let before = warn_if_busy();
    run.rounds.run(Place::Here, |round| {
        all.round(round, |_| true, |one| Ok(vec![one.measure()?]));
    });
    all.report(&run.rounds, before, System::Run.name(), goals, notes)
}

/// Maximum time of our own launcher and nodes, in times of a peer's own.
const OWN: f64 = 1.0;

fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |system: System| records.iter().find(|one| one.system == system.name());
    let goal = |peer: System| {
        let found = Found::ratio((of(System::Run), of(peer)));
        (format!("start, oikaze / {}", peer.name()), found, Bound::AtMost(OWN))
    };
    vec![goal(System::OpenMpi), goal(System::Mpich)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_our_own_launcher_with_the_peers_own() {
        let record = |system: System, value| Record {
            system: system.name(),
            value,
            rounds: vec![value],
            ..Record::example("start", 0)
        };
        let records = [
            record(System::Run, 100.0),
            record(System::Mpirun, 900.0),
            record(System::OpenMpi, 400.0),
        ];
        let values: Vec<_> =
            goals(&records).into_iter().map(|(_, found, _)| found.map(|one| one.value)).collect();
        assert_eq!(values, [Some(0.25), None]);
    }
}
