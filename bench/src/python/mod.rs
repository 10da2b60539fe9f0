//! Bench of the Python binding: what Python adds to a put and to a message, beside Rust; and a
//! program over NumPy, beside the same one over mpi4py.
//!
//! `cargo xtask bench python` makes the environment with the packages, and names its interpreter in
//! [`INTERPRETER`].

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::dsm::mpi;
use crate::error::Error;
use crate::lab::{CLIENT, Lab, Place, WireMode, remote_shell};
use crate::peers::oikaze;
use crate::process::{alone, seal};
use crate::record::{Record, median, table, write_lines};
use crate::suite::cores::Cores;
use crate::suite::goals::{self, Bound, Found, Goal};
use crate::suite::selection::Selection;
use crate::suite::{Rounds, machine, once_more, warn_if_busy};

/// Environment variable with the interpreter that has the packages.
const INTERPRETER: &str = "OIKAZE_BENCH_PYTHON";
/// Programs in Python.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum of what Python may add to a put and to a message, in µs.
const ADDED: f64 = 1.0;
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
        /// Open MPI from Python.
        Mpi4py = "mpi4py",
    }
}

const ALL: [System; 3] = [System::Oikaze, System::Python, System::Mpi4py];

impl Case {
    /// Returns the grid of Himeno and its iterations, of a quick bench and of a full one.
    const fn grid(self) -> Option<(&'static str, [u32; 2])> {
        match self {
            Self::HimenoXs => Some(("XS", [300, 2000])),
            Self::HimenoS => Some(("S", [50, 300])),
            Self::HimenoM => Some(("M", [6, 30])),
            Self::Put | Self::Message => None,
        }
    }

    const fn unit(self) -> &'static str {
        if self.grid().is_some() { "MFLOPS" } else { "us" }
    }
}

impl System {
    fn has(self, case: Case) -> bool {
        match self {
            Self::Python => true,
            Self::Oikaze => case.grid().is_none(),
            Self::Mpi4py => case.grid().is_some(),
        }
    }

    const fn note(self) -> &'static str {
        match self {
            Self::Oikaze => "oikaze: oikaze perf, half a round trip.",
            Self::Python => {
                "oikaze-python: bench/python, half a round trip; Himeno with guards over shared arrays."
            }
            Self::Mpi4py => "mpi4py: Open MPI over TCP, with an exchange of halos (Sendrecv).",
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
        let (enter, hosts) = (remote_shell()?, lab.place.addresses());
        let mut command = if self == Self::Mpi4py {
            let mut command = lab.on(CLIENT, LIMIT, mpi::LAUNCHER);
            command.args(mpi::launch(&hosts, &enter));
            command
        } else {
            let mut command = oikaze::launcher(lab, LIMIT, &seal())?;
            command.arg("--");
            command
        };
        if self == Self::Oikaze {
            command.arg(oikaze::program()?);
            command.args(["perf", case.name(), "--only", "latency", "--json"]);
            return Ok(command);
        }
        // One thread for each process: the lab gives each host one core.
        let program = match (self, case.grid()) {
            (Self::Mpi4py, _) => "himeno_mpi4py.py",
            (_, Some(_)) => "himeno_oikaze.py",
            (_, None) => "latency.py",
        };
        command.arg(interpreter()?).arg(format!("{SOURCES}/{program}"));
        match case.grid() {
            Some((grid, [few, many])) => {
                let iterations = if quick { few } else { many }.to_string();
                command.args(["--size", grid, "--iterations", &iterations]);
            }
            None => {
                command.arg(case.name());
            }
        }
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

/// One system's part in one case.
struct Series {
    case: Case,
    system: System,
    rounds: Vec<f64>,
    /// Cause for which the series ended early.
    failed: Option<String>,
}

/// Runs the bench.
///
/// # Errors
/// A package or program is missing, or the user is not root. A system that fails in a case is left
/// out there and noted. If that system is Oikaze, the bench fails after all others have been
/// measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let mut series: Vec<Series> = Vec::new();
    for &case in Case::value_variants() {
        let is_asked = run.selection.has_case(&case);
        for system in run.selection.systems(ALL).filter(|one| is_asked && one.has(case)) {
            series.push(Series { case, system, rounds: Vec::new(), failed: None });
        }
    }
    if series.is_empty() {
        return Err(Error::new("none of these systems has such a case; `--help` lists both"));
    }
    interpreter()?;
    warn_if_busy();
    let mut cores = Cores::new(run.selection.cores);
    let lab = Lab::up(Place::Wire { mtu: run.selection.mtu, mode: WireMode::Wire })?;
    run.rounds.run(lab.place, |round| {
        for one in series.iter_mut().filter(|one| one.failed.is_none()) {
            one.measure(&lab, round, run.rounds.quick, &mut cores);
        }
    });
    let records: Vec<Record> =
        series.iter().filter_map(|one| one.record(run.selection.mtu)).collect();
    write_lines(&records, run.rounds.json.as_deref())?;
    print!("{}", table(&records, System::Oikaze.name()));
    print!("{}", goals::table(goals(&records)));
    println!("\nWhat these figures are:\n- {}\n- {cores}", machine());
    for system in ALL.iter().filter(|it| series.iter().any(|one| one.system == **it)) {
        println!("- {}", system.note());
    }
    let failures = || series.iter().filter_map(Series::failure);
    failures().for_each(|failure| println!("- left out: {failure}"));
    let ours = series.iter().filter(|one| one.system != System::Mpi4py).find_map(Series::failure);
    ours.map_or(Ok(()), |failure| Err(Error::new(failure)))
}

impl Series {
    /// Measures one round. Repeats a run that failed once.
    fn measure(&mut self, lab: &Lab, round: u32, quick: bool, cores: &mut Cores) {
        let (case, system) = (self.case, self.system);
        let what = format!("{}, {}", system.name(), case.name());
        match cores.steady(|| once_more(&what, || system.measure(lab, case, quick))) {
            Ok(found) => self.rounds.push(found),
            Err(why) => {
                self.failed = Some(format!("round {round}: {why}"));
                eprintln!("warning: {}", self.failure().unwrap_or_default());
            }
        }
    }

    fn failure(&self) -> Option<String> {
        let why = self.failed.as_ref()?;
        Some(format!("{}, {}: {why}", self.system.name(), self.case.name()))
    }

    fn record(&self, mtu: u16) -> Option<Record> {
        if self.failed.is_some() {
            return None;
        }
        Some(Record {
            bench: "python",
            case: self.case.name(),
            size: if self.case.grid().is_some() { 0 } else { 8 },
            system: self.system.name(),
            value: median(&self.rounds)?,
            unit: self.case.unit(),
            rounds: self.rounds.clone(),
            mtu: Some(mtu),
            mode: Some("wire"),
            nodes: Some(2),
            ..Record::default()
        })
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
        .map(|case| match case.grid() {
            None => {
                let added = Found::difference((of(case, System::Python), of(case, System::Oikaze)));
                let what = format!("µs that Python adds to a {} of 8 bytes", case.name());
                (what, added, Bound::AtMost(ADDED))
            }
            Some((grid, _)) => {
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
    fn every_case_has_two_systems_to_compare() {
        for &case in Case::value_variants() {
            assert_eq!(ALL.iter().filter(|system| system.has(case)).count(), 2, "{}", case.name());
        }
    }

    #[test]
    fn programs_are_there() {
        for name in ["latency.py", "himeno_oikaze.py", "himeno_mpi4py.py", "himeno_kernel.py"] {
            assert!(std::path::Path::new(SOURCES).join(name).is_file(), "{name}");
        }
    }
}
