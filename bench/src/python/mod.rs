//! Bench of the Python binding: what Python adds to a put, to a message and to collectives, beside
//! Rust; and collectives and a program over NumPy, beside mpi4py.
//!
//! `cargo xtask bench python` makes the environment with the packages, and names its interpreter in
//! [`INTERPRETER`].

use std::iter;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::dsm::mpi;
use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::peers::oikaze::{self, Seal};
use crate::process::alone;
use crate::record::Record;
use crate::suite::cores::Cores;
use crate::suite::goals::{Bound, Found, Goal};
use crate::suite::selection::Selection;
use crate::suite::series::{AllSeries, Part};
use crate::suite::{Rounds, once_more, warn_if_busy};

/// Environment variable with the interpreter that has the packages.
const INTERPRETER: &str = "OIKAZE_BENCH_PYTHON";
/// Programs in Python.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(120);
/// Nodes of all cases.
const NODES: usize = 2;
/// Name of mpi4py's module, which only installed libraries of MPI let load.
const MODULE: &str = "mpi4py.MPI";
/// Maximum of what Python may add to a put, a message or a collective, in µs.
const ADDED: f64 = 1.0;
/// Iterations of collectives, of a quick bench and of a full one.
const COLLECTIVES: [u32; 2] = [10_000, 50_000];
/// Minimum speed of Himeno over shared arrays, in times of mpi4py's.
const SPEED: f64 = 0.95;

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    selection: Selection<Case, System>,
}

named! {
    /// Figure of the bench. The name on the command line is the name in the records.
    enum Case {
        /// Put of 8 bytes into the peer's memory, one way.
        Put = "put",
        /// Message of 8 bytes, one way.
        Message = "message",
        /// Barrier of two processes of this machine.
        Barrier = "barrier",
        /// Sum of one number of each process.
        AllReduceNumber = "all_reduce_number",
        /// Sum of an array of each process.
        AllReduce = "all_reduce",
        /// Array of one process for both.
        Broadcast = "broadcast",
        /// Arrays of both processes, on both.
        AllGather = "all_gather",
        /// Himeno benchmark in slices of NumPy, 32 × 32 × 64.
        HimenoXs = "himeno_xs",
        /// Himeno benchmark in slices of NumPy, 64 × 64 × 128.
        HimenoS = "himeno_s",
        /// Himeno benchmark in slices of NumPy, 128 × 128 × 256.
        HimenoM = "himeno_m",
    }
}

named! {
    /// System that the bench measures.
    enum System {
        /// Oikaze from Rust.
        Oikaze = "oikaze",
        /// Oikaze from Python.
        Python = "oikaze-python",
        /// Oikaze from Python with the default seal, which encrypts.
        PythonFull = "oikaze-python-full",
        /// Open MPI from Python.
        Mpi4py = "mpi4py",
    }
}

const ALL: [System; 4] = [System::Oikaze, System::PythonFull, System::Python, System::Mpi4py];

/// Program that measures a case, with its iterations in a quick bench and in a full one.
enum Program {
    /// Half a round trip of 8 bytes between the lab's hosts.
    Latency,
    /// Himeno benchmark of this grid on the lab's hosts.
    Himeno { grid: &'static str, iterations: [u32; 2] },
    /// Collective of processes of this machine. `name` is that of `oikaze perf collectives`.
    Collective { name: &'static str, iterations: [u32; 2] },
}

impl Case {
    fn program(self) -> Program {
        let himeno = |grid, iterations| Program::Himeno { grid, iterations };
        match self {
            Self::Put | Self::Message => Program::Latency,
            Self::Barrier | Self::AllReduce | Self::Broadcast | Self::AllGather => {
                Program::Collective { name: self.name(), iterations: COLLECTIVES }
            }
            Self::AllReduceNumber => {
                Program::Collective { name: Self::AllReduce.name(), iterations: COLLECTIVES }
            }
            Self::HimenoXs => himeno("XS", [300, 2000]),
            Self::HimenoS => himeno("S", [50, 300]),
            Self::HimenoM => himeno("M", [6, 30]),
        }
    }

    fn unit(self) -> &'static str {
        match self.program() {
            Program::Himeno { .. } => "MFLOPS",
            Program::Latency | Program::Collective { .. } => "us",
        }
    }

    /// Returns the bytes of one operation: of a number, or of the array of one process.
    const fn size(self) -> usize {
        match self {
            Self::Put | Self::Message | Self::AllReduceNumber => 8,
            Self::AllReduce | Self::Broadcast | Self::AllGather => 256,
            Self::Barrier | Self::HimenoXs | Self::HimenoS | Self::HimenoM => 0,
        }
    }

    /// Returns `true` if the processes of the case share this machine.
    fn is_here(self) -> bool {
        matches!(self.program(), Program::Collective { .. })
    }
}

impl System {
    fn has(self, case: Case) -> bool {
        match self {
            Self::Python => true,
            // Processes of one machine seal nothing.
            Self::PythonFull => !case.is_here(),
            Self::Oikaze => !matches!(case.program(), Program::Himeno { .. }),
            Self::Mpi4py => !matches!(case.program(), Program::Latency),
        }
    }

    const fn note(self) -> &'static str {
        match self {
            Self::Oikaze => "oikaze: oikaze perf, half a round trip; oikaze perf collectives.",
            Self::Python => {
                "oikaze-python: bench/python, half a round trip; Himeno with guards over shared arrays; collectives of a number and of arrays of NumPy."
            }
            Self::PythonFull => {
                "oikaze-python-full: oikaze-python with the default seal; the others have --seal crc."
            }
            Self::Mpi4py => {
                "mpi4py: Open MPI over TCP, with an exchange of halos (Sendrecv); collectives through shared memory, of a pickled number (allreduce) and of buffers (Allreduce, Bcast, Allgather)."
            }
        }
    }

    /// Checks that the system can be started.
    ///
    /// # Errors
    /// A program or a package is missing. The error names it.
    fn prepare(self) -> Result<(), Error> {
        match self {
            Self::Oikaze => oikaze::program().map(drop),
            Self::Python | Self::PythonFull => interpreter().map(drop),
            Self::Mpi4py => {
                mpi::OPEN_MPI.installed()?;
                let mut import = Command::new(interpreter()?);
                import.args(["-c", &format!("import {MODULE}")]);
                alone(import).map(drop).map_err(|why| no_module(&why))
            }
        }
    }

    /// Measures a case once: µs, or MFLOPS.
    fn measure(self, lab: &Lab, case: Case, quick: bool) -> Result<f64, Error> {
        let printed = alone(self.command(lab, case, quick)?)?;
        let keys = ["us", "latency_us", "mflops"];
        let found = printed.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line.trim()).ok()?;
            keys.iter().find_map(|key| line.get(*key)?.as_f64())
        });
        let found = found.filter(|value| value.is_finite() && *value > 0.0);
        found.ok_or_else(|| Error::new(format!("a figure is missing in: {}", printed.trim())))
    }

    fn command(self, lab: &Lab, case: Case, quick: bool) -> Result<Command, Error> {
        let mut command = self.launcher(lab)?;
        let is_rust = self == Self::Oikaze;
        if is_rust {
            command.arg(oikaze::program()?).arg("perf");
        } else {
            command.arg(interpreter()?);
        }
        let source = |name: &str| format!("{SOURCES}/{name}.py");
        let count = |[few, many]: [u32; 2]| if quick { few } else { many }.to_string();
        let library = if self == Self::Mpi4py { "mpi4py" } else { "oikaze" };
        match case.program() {
            Program::Latency if is_rust => {
                command.args([case.name(), "--only", "latency", "--json"]);
            }
            Program::Latency => {
                command.args([&source("latency"), case.name()]);
            }
            // One thread for each process: the lab gives each host one core.
            Program::Himeno { grid, iterations } => {
                command.arg(source(&format!("himeno_{library}")));
                command.args(["--size", grid, "--iterations", &count(iterations)]);
            }
            Program::Collective { name, iterations } => {
                if is_rust {
                    command.args(["collectives", "--json", "--case", name]);
                } else {
                    command.args([&source("collectives"), library, case.name()]);
                }
                // A barrier has no bytes, but Rust's option takes no 0.
                command.args(["--size", &case.size().max(8).to_string()]);
                command.args(["--iterations", &count(iterations)]);
            }
        }
        Ok(command)
    }

    /// Returns the launcher of the processes, up to the program.
    fn launcher(self, lab: &Lab) -> Result<Command, Error> {
        if self == Self::Mpi4py {
            return mpi::launcher(lab, NODES, LIMIT);
        }
        let seal = if self == Self::PythonFull { Seal::Full } else { Seal::Crc };
        let mut command = oikaze::job(lab, NODES, LIMIT, seal)?;
        command.arg("--");
        Ok(command)
    }
}

fn interpreter() -> Result<PathBuf, Error> {
    let set = std::env::var_os(INTERPRETER).map(PathBuf::from);
    set.ok_or_else(|| {
        Error::new(format!(
            "{INTERPRETER} is not set; start the bench by `cargo xtask bench python`"
        ))
    })
}

/// Returns the error of a missing module, with the last line that the interpreter printed.
fn no_module(why: &Error) -> Error {
    let why = why.to_string();
    let last = why.trim().lines().last().unwrap_or_default();
    Error::new(format!(
        "importing {MODULE}: {last}; install the Python package mpi4py (pip install mpi4py) and the Debian package openmpi-bin, or pass --without mpi4py"
    ))
}

/// One system's part in one case.
struct PythonPart {
    case: Case,
    system: System,
}

/// Runs the bench.
///
/// # Errors
/// A package or program is missing, or the user is not root. A system that fails in a case is left
/// out there and noted. If that system is Oikaze, the bench fails after all others have been
/// measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let cases = Case::value_variants().iter().copied();
    let mut all =
        AllSeries::new(cases.filter(|case| run.selection.has_case(case)).flat_map(|case| {
            let systems = run.selection.systems(ALL).filter(move |system| system.has(case));
            systems.map(move |system| PythonPart { case, system })
        }))?;
    let measured = |system: &System| all.parts().any(|one| one.system == *system);
    let systems: Vec<System> = ALL.into_iter().filter(measured).collect();
    systems.iter().try_for_each(|system| system.prepare())?;
    let before = warn_if_busy();
    let mut cores = Cores::new(run.selection.cores);
    let places = [Place::Wire { mtu: run.selection.mtu, mode: WireMode::Wire }, Place::Here];
    let is_at = |one: &PythonPart, place| one.case.is_here() == (place == Place::Here);
    all.run(&run.rounds, &places, is_at, |one, lab| {
        let measure = || one.system.measure(lab, one.case, run.rounds.quick);
        let value = cores.steady(|| once_more(&one.name(), measure))?;
        Ok(vec![one.record(value, run.selection.mtu)])
    })?;
    let notes = systems.iter().map(|system| system.note().to_owned());
    let notes = iter::once(cores.to_string()).chain(notes);
    all.report(&run.rounds, before, System::Oikaze.name(), goals, notes)
}

impl Part for PythonPart {
    fn name(&self) -> String {
        format!("{}, {}", self.system.name(), self.case.name())
    }

    fn is_ours(&self) -> bool {
        self.system != System::Mpi4py
    }
}

impl PythonPart {
    /// Returns the record of a round, on a wire of this MTU if there is one.
    fn record(&self, value: f64, mtu: u16) -> Record {
        let is_here = self.case.is_here();
        Record {
            bench: "python",
            case: self.case.name(),
            size: self.case.size(),
            system: self.system.name(),
            value,
            unit: self.case.unit(),
            mtu: (!is_here).then_some(mtu),
            mode: Some(if is_here { "machine" } else { "wire" }),
            nodes: Some(NODES as u32),
            ..Record::default()
        }
    }
}

/// Returns what Python adds to each operation, and the speed of each program beside mpi4py.
fn goals(records: &[Record]) -> Vec<Goal> {
    let of = |case: Case, system: System| {
        let wanted = (case.name(), system.name());
        records.iter().find(|record| (record.case, record.system) == wanted)
    };
    let cases = Case::value_variants().iter().copied();
    cases
        .map(|case| match case.program() {
            Program::Latency | Program::Collective { .. } => {
                let added = Found::difference((of(case, System::Python), of(case, System::Oikaze)));
                let what = format!("µs that Python adds to {}, {} bytes", case.name(), case.size());
                (what, added, Bound::AtMost(ADDED))
            }
            Program::Himeno { grid, .. } => {
                let speed = Found::ratio((of(case, System::Python), of(case, System::Mpi4py)));
                (format!("Himeno {grid} in NumPy / mpi4py"), speed, Bound::AtLeast(SPEED))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_systems_to_compare() {
        for &case in Case::value_variants() {
            let systems = ALL.iter().filter(|system| system.has(case)).count();
            assert_eq!(systems, 3, "{}", case.name());
        }
    }

    #[test]
    fn missing_module_is_named_with_its_package() {
        let printed = "Traceback:\n  line 1\nModuleNotFoundError: No module named 'mpi4py'\n";
        let error = no_module(&Error::new(printed)).to_string();
        assert!(error.starts_with("importing mpi4py.MPI: ModuleNotFoundError"), "{error}");
        assert!(error.contains("pip install mpi4py") && error.contains("--without mpi4py"));
    }

    #[test]
    fn programs_are_there() {
        let himeno = ["himeno_oikaze.py", "himeno_mpi4py.py", "himeno_kernel.py"];
        for name in ["latency.py", "collectives.py"].into_iter().chain(himeno) {
            assert!(std::path::Path::new(SOURCES).join(name).is_file(), "{name}");
        }
    }
}
