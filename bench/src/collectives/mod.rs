//! Bench of collectives, beside those of Open MPI, and their growth with the number of nodes.
//!
//! Both programs measure in the same way ([`system`]). All systems of a case take turns within each
//! round, and one run measures all sizes. Growth up to 1,024 nodes comes from a [`model`].

mod case;
mod goals;
mod model;
mod system;

use clap::{Args, ValueEnum};

use self::case::{Case, Mode};
use self::system::{ALL, Measurement, System};
use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::record::{OVERSUBSCRIBED, Record, median, table};
use crate::suite::case::MIB;
use crate::suite::cores::Cores;
use crate::suite::selection::Selection;
use crate::suite::{Rounds, goals as bounds, machine, once_more, warn_if_busy};

/// Settings of the bench.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    selection: Selection<Case, System>,
    /// Only these sizes, in bytes.
    #[arg(long, value_delimiter = ',')]
    size: Vec<usize>,
    /// Only these places of the nodes.
    #[arg(long, value_delimiter = ',', value_enum)]
    mode: Vec<Mode>,
    /// Numbers of nodes: 2 on the wire, 2 to 8 on one machine, 2 to 1024 simulated.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=1024))]
    nodes: Vec<u32>,
}

/// Sizes of the model, of the sizes of a case.
const MODELLED: [usize; 3] = [0, 8, MIB];

impl Run {
    fn sizes(&self, case: Case, mode: Mode) -> Vec<usize> {
        let wanted = |size: &usize| match self.size.as_slice() {
            [] => mode != Mode::Simulated || MODELLED.contains(size),
            sizes => *size == 0 || sizes.contains(size),
        };
        case.sizes().iter().copied().filter(wanted).collect()
    }

    /// Returns all series of a mode, case by case.
    fn series(&self, mode: Mode) -> Vec<Series> {
        if !self.mode.is_empty() && !self.mode.contains(&mode) {
            return Vec::new();
        }
        let nodes = match self.nodes.as_slice() {
            [] => mode.nodes(self.rounds.quick),
            nodes => nodes,
        };
        let cases = Case::value_variants().iter().copied();
        let mut all = Vec::new();
        for case in cases.filter(|case| self.selection.has_case(case)) {
            let sizes = self.sizes(case, mode);
            for &nodes in nodes.iter().filter(|&&nodes| mode.takes(nodes) && !sizes.is_empty()) {
                for system in self.selection.systems(ALL).filter(|system| system.has(mode)) {
                    let what = Measurement { case, mode, nodes };
                    let sizes = sizes.iter().map(|&size| (size, Vec::new())).collect();
                    all.push(Series { what, system, sizes, failed: None });
                }
            }
        }
        all
    }
}

/// One system's part in one case, over all rounds.
struct Series {
    what: Measurement,
    system: System,
    /// Times in µs of all rounds, by size.
    sizes: Vec<(usize, Vec<f64>)>,
    /// Cause for which the series ended early.
    failed: Option<String>,
}

/// Runs the bench.
///
/// # Errors
/// Open MPI is missing (the error names its packages), or the user is not root. A system that fails
/// in a case is left out there and noted. If that system is Oikaze, the bench fails after all
/// others have been measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let mut modes = [Mode::Wire, Mode::Machine, Mode::Simulated].map(|mode| run.series(mode));
    if modes.iter().all(Vec::is_empty) {
        return Err(Error::new("none of these systems has such a case; `--help` lists both"));
    }
    let measured = modes.iter().flatten().map(|one| one.system);
    let systems: Vec<System> =
        ALL.into_iter().filter(|&it| measured.clone().any(|one| one == it)).collect();
    systems.iter().try_for_each(|system| system.prepare())?;
    let before = warn_if_busy();
    let mut cores = Cores::new(run.selection.cores);
    let [wire, here, simulated] = &mut modes;
    let places =
        [(Place::Wire { mtu: run.selection.mtu, mode: WireMode::Wire }, wire), (Place::Here, here)];
    for (place, series) in places.into_iter().filter(|(_, series)| !series.is_empty()) {
        let lab = Lab::up(place)?;
        in_lab(&lab, run, series, &mut cores);
    }
    for one in simulated.iter_mut() {
        let what = one.what;
        for (size, rounds) in &mut one.sizes {
            rounds.push(model::time(what.case, *size, what.nodes)?);
        }
    }
    let series: Vec<Series> = modes.into_iter().flatten().collect();
    let complete = series.iter().filter(|one| one.failed.is_none());
    let records: Vec<Record> = complete.flat_map(|one| one.records(run)).collect();
    run.rounds.write(&records, before)?;
    print!("{}", table(&records, System::Mpi.name()));
    print!("{}", bounds::table(goals::goals(&records)));
    println!("\nWhat these figures are:\n- {}\n- {cores}", machine());
    systems.iter().for_each(|system| println!("- {}", system.note()));
    if records.iter().any(|record| record.oversubscribed) {
        println!("- {OVERSUBSCRIBED}");
    }
    let failures: Vec<&Series> = series.iter().filter(|one| one.failed.is_some()).collect();
    failures.iter().for_each(|one| println!("- left out: {}", one.failure()));
    let ours = failures.iter().find(|one| one.system != System::Mpi);
    ours.map_or(Ok(()), |one| Err(Error::new(one.failure())))
}

/// Runs all rounds in one place.
fn in_lab(lab: &Lab, run: &Run, series: &mut [Series], cores: &mut Cores) {
    run.rounds.run(lab.place, |round| {
        for one in series.iter_mut().filter(|one| one.failed.is_none()) {
            if let Err(why) = one.measure(lab, run.rounds.quick, cores) {
                one.failed = Some(format!("round {round}: {why}"));
                eprintln!("warning: {}", one.failure());
            }
        }
    });
}

impl Series {
    /// Measures one round. Repeats a run that failed once.
    fn measure(&mut self, lab: &Lab, quick: bool, cores: &mut Cores) -> Result<(), Error> {
        let sizes: Vec<usize> = self.sizes.iter().map(|(size, _)| *size).collect();
        let what = format!("{}, {}", self.system.name(), self.what.case.name());
        let found = cores
            .steady(|| once_more(&what, || self.system.measure(lab, self.what, &sizes, quick)))?;
        for ((_, rounds), (_, us)) in self.sizes.iter_mut().zip(found) {
            rounds.push(us);
        }
        Ok(())
    }

    fn failure(&self) -> String {
        let Measurement { case, mode, nodes } = self.what;
        format!(
            "{}, {}, {}, {nodes} nodes: {}",
            self.system.name(),
            case.name(),
            mode.name(),
            self.failed.as_deref().unwrap_or("not measured")
        )
    }

    /// Returns the records of the series, one for each size.
    fn records(&self, run: &Run) -> impl Iterator<Item = Record> {
        let what = self.what;
        let mtu = (what.mode == Mode::Wire).then_some(run.selection.mtu);
        self.sizes.iter().filter_map(move |(size, rounds)| {
            Some(Record {
                bench: "collectives",
                case: what.case.name(),
                size: *size,
                system: self.system.name(),
                value: median(rounds)?,
                unit: "us",
                rounds: rounds.clone(),
                mtu,
                mode: Some(what.mode.name()),
                nodes: Some(what.nodes),
                oversubscribed: what.is_oversubscribed(),
                ..Record::default()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::suite::case::KIB;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: Run,
    }

    fn run(arguments: &[&str]) -> Run {
        let words = ["collectives"].iter().chain(arguments);
        Command::try_parse_from(words).expect("the arguments are right").run
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let asked = run(&["--case", "all_reduce", "--size", "8,4096", "--nodes", "2"]);
        let wire = asked.series(Mode::Wire);
        let names: Vec<&str> = wire.iter().map(|one| one.system.name()).collect();
        assert_eq!(names, ["mpi", "oikaze-full", "oikaze"]);
        let sizes: Vec<usize> = wire[0].sizes.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [8, 4 * KIB]);
        assert_eq!(asked.series(Mode::Simulated)[0].system.name(), "model");
        assert!(run(&["--mode", "machine"]).series(Mode::Wire).is_empty());
        assert!(run(&["--nodes", "16"]).series(Mode::Machine).is_empty());
        assert!(run(&["--system", "model"]).series(Mode::Wire).is_empty());
        let count = |arguments: &[&str]| run(arguments).series(Mode::Machine).len();
        assert_eq!(
            [count(&[]), count(&["--quick"])],
            [3, 2].map(|times| times * count(&["--nodes=8"]))
        );
    }

    #[test]
    fn more_processes_than_cores_are_marked() {
        let what = |mode, nodes| Measurement { case: Case::Barrier, mode, nodes };
        let fits = |nodes: &u32| !what(Mode::Machine, *nodes).is_oversubscribed();
        let bound = (1..=1024).take_while(fits).count();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert!(bound <= cores, "{bound} processes are said to have a core each");
        assert!(!what(Mode::Simulated, 1024).is_oversubscribed());
    }
}
