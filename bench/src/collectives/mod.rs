//! Bench of collectives, beside those of Open MPI, and their growth with the number of nodes.
//!
//! Both programs measure in the same way ([`system`]). All systems of a case take turns within each
//! round, and one run measures all sizes. Growth up to 1,024 nodes comes from a [`model`].

mod case;
mod goals;
mod model;
mod system;

use std::iter;

use clap::{Args, ValueEnum};

use self::case::{Case, Mode};
use self::system::{ALL, Measurement, System};
use crate::error::Error;
use crate::lab::{Place, WireMode};
use crate::record::Record;
use crate::suite::case::MIB;
use crate::suite::cores::Cores;
use crate::suite::selection::Selection;
use crate::suite::series::{AllSeries, Part};
use crate::suite::{Rounds, once_more, warn_if_busy};

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

    /// Returns all parts of a mode, case by case.
    fn parts(&self, mode: Mode) -> Vec<CollectivePart> {
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
                    all.push(CollectivePart { what, system, sizes: sizes.clone() });
                }
            }
        }
        all
    }
}

/// One system's part in one case.
struct CollectivePart {
    what: Measurement,
    system: System,
    /// Sizes in bytes, which one run measures.
    sizes: Vec<usize>,
}

/// Runs the bench.
///
/// # Errors
/// Open MPI is missing (the error names its packages), or the user is not root. A system that fails
/// in a case is left out there and noted. If that system is Oikaze, the bench fails after all
/// others have been measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let modes = [Mode::Wire, Mode::Machine, Mode::Simulated];
    let mut all = AllSeries::new(modes.into_iter().flat_map(|mode| run.parts(mode)))?;
    let measured = |system: &System| all.parts().any(|one| one.system == *system);
    let systems: Vec<System> = ALL.into_iter().filter(measured).collect();
    systems.iter().try_for_each(|system| system.prepare())?;
    let before = warn_if_busy();
    let mut cores = Cores::new(run.selection.cores);
    let wire = Place::Wire { mtu: run.selection.mtu, mode: WireMode::Wire };
    let is_at = |one: &CollectivePart, place| match one.what.mode {
        Mode::Wire => place == wire,
        Mode::Machine => place == Place::Here,
        Mode::Simulated => false,
    };
    let quick = run.rounds.quick;
    all.run(&run.rounds, &[wire, Place::Here], is_at, |one, lab| {
        let measure = || one.system.measure(lab, one.what, &one.sizes, quick);
        let found = cores.steady(|| once_more(&one.name(), measure))?;
        Ok(found.into_iter().map(|(size, us)| one.record(size, us, run.selection.mtu)).collect())
    })?;
    // The model tells the same time in each round.
    all.round(
        1,
        |one| one.what.mode == Mode::Simulated,
        |one| {
            let time = |&size| {
                let us = model::time(one.what.case, size, one.what.nodes)?;
                Ok(one.record(size, us, run.selection.mtu))
            };
            one.sizes.iter().map(time).collect()
        },
    );
    let notes = systems.iter().map(|system| system.note().to_owned());
    let notes = iter::once(cores.to_string()).chain(notes);
    all.report(&run.rounds, before, System::Mpi.name(), goals::goals, notes)
}

impl Part for CollectivePart {
    fn name(&self) -> String {
        let (Measurement { case, mode, nodes }, system) = (self.what, self.system.name());
        format!("{system}, {}, {}, {nodes} nodes", case.name(), mode.name())
    }

    fn is_ours(&self) -> bool {
        self.system != System::Mpi
    }
}

impl CollectivePart {
    /// Returns the record of a round for this size, on a wire of this MTU if there is one.
    fn record(&self, size: usize, us: f64, mtu: u16) -> Record {
        let what = self.what;
        Record {
            bench: "collectives",
            case: what.case.name(),
            size,
            system: self.system.name(),
            value: us,
            unit: "us",
            mtu: (what.mode == Mode::Wire).then_some(mtu),
            mode: Some(what.mode.name()),
            nodes: Some(what.nodes),
            oversubscribed: what.is_oversubscribed(),
            ..Record::default()
        }
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
        let wire = asked.parts(Mode::Wire);
        let names: Vec<&str> = wire.iter().map(|one| one.system.name()).collect();
        assert_eq!(names, ["mpi", "oikaze-full", "oikaze"]);
        assert_eq!(wire[0].sizes, [8, 4 * KIB]);
        assert_eq!(asked.parts(Mode::Simulated)[0].system.name(), "model");
        assert!(run(&["--mode", "machine"]).parts(Mode::Wire).is_empty());
        assert!(run(&["--nodes", "16"]).parts(Mode::Machine).is_empty());
        assert!(run(&["--system", "model"]).parts(Mode::Wire).is_empty());
        let count = |arguments: &[&str]| run(arguments).parts(Mode::Machine).len();
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
