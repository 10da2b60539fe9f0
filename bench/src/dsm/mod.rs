//! Bench of whole programs over shared arrays, beside the same programs in C over MPI.
//!
//! All systems of a case take turns within each round. A program measures its own time, between two
//! barriers, so that its start does not count. The bench compares the results of all systems, and
//! leaves out a system whose result differs.

mod c_program;
mod case;
mod goals;
pub mod mpi;
mod plain;
mod system;

pub use self::case::{DELIVERIES, UPDATE_SIZES};
pub use self::system::program;

use std::iter;

use clap::Args;
use serde_json::Value;

use self::case::{Case, Mode, Unit};
use self::system::{ALL, Measurement, System, agree};
use crate::error::Error;
use crate::lab::{Lab, core_of_each};
use crate::record::{Record, median};
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
    /// Numbers of nodes. Unless it is asked, a quick bench measures one node of `oikaze` and `mpi`
    /// only, which shows whether their kernels are equally fast, and two nodes of all systems. The
    /// serial program always has one. The cases `lock_4` and `memory` have four nodes, and
    /// `lock_page` has three.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=2))]
    nodes: Vec<u32>,
    /// Place of the nodes.
    #[arg(long, value_enum, default_value_t = Mode::Wire)]
    mode: Mode,
}

impl Run {
    fn cases(&self) -> Vec<Case> {
        use clap::ValueEnum;
        let wanted = |case: &Case| {
            let is_default = self.selection.case.is_empty();
            self.selection.has_case(case) && !(is_default && self.rounds.quick && !case.is_quick())
        };
        let all = Case::value_variants().iter().copied();
        all.filter(|case| case.is_in(self.mode)).filter(wanted).collect()
    }

    /// Returns the systems that the user wants, of those in the mode.
    fn systems(&self) -> impl Iterator<Item = System> {
        self.selection.systems(ALL).filter(|system| system.is_in(self.mode))
    }

    /// Returns the numbers of nodes on which a system runs.
    fn nodes_of(&self, system: System) -> Vec<u32> {
        let shows_kernels = matches!(system, System::Mpi | System::Oikaze);
        let wanted = match self.nodes.as_slice() {
            [] if self.rounds.quick && !shows_kernels => &[2],
            [] => [1, 2].as_slice(),
            wanted => wanted,
        };
        match system {
            System::Serial => vec![1],
            _ => wanted.iter().copied().filter(|&nodes| system.runs_on(nodes)).collect(),
        }
    }

    /// Returns all parts of the bench, case by case.
    fn parts(&self) -> Vec<ProgramPart> {
        let mut all = Vec::new();
        for case in self.cases() {
            for system in self.systems().filter(|&system| case.has(system)) {
                // A barrier of one node does nothing, and a node fetches nothing from itself.
                let alone = matches!(case.unit(), Unit::Mflops | Unit::Mops);
                let nodes = case.nodes().map_or_else(|| self.nodes_of(system), |nodes| vec![nodes]);
                let nodes = nodes.into_iter().filter(|&nodes| nodes > 1 || alone);
                all.extend(nodes.flat_map(|nodes| self.parts_of(case, system, nodes)));
            }
        }
        all
    }

    /// Returns the parts of one system in a case: one for each size and delivery.
    fn parts_of(&self, case: Case, system: System, nodes: u32) -> Vec<ProgramPart> {
        let deliveries = case.deliveries(system, self.mode, self.rounds.quick);
        let of = |size| {
            deliveries.iter().map(move |&delivery| {
                let what = Measurement { case, size, nodes, delivery };
                ProgramPart { what, system }
            })
        };
        case.sizes(self.rounds.quick).into_iter().flat_map(of).collect()
    }
}

/// One system's part in one case.
struct ProgramPart {
    what: Measurement,
    system: System,
}

/// Result of each case: that of the first system which has computed it.
type Results = Vec<(Case, &'static str, Value)>;

/// Runs the bench.
///
/// # Errors
/// Open MPI is missing (the error names its packages), or the user is not root. A system that fails
/// in a case is left out there and noted. If that system is Oikaze, the bench fails after all
/// others have been measured and reported.
pub fn bench(run: &Run) -> Result<(), Error> {
    let mut all = AllSeries::new(run.parts())?;
    all.parts().try_for_each(|one| one.system.prepare(one.what.case))?;
    let before = warn_if_busy();
    let mut cores = Cores::new(run.selection.cores);
    let mut results = Results::new();
    let place = run.mode.place(run.selection.mtu);
    all.run(
        &run.rounds,
        &[place],
        |_, _| true,
        |one, lab| {
            let value = one.measure(lab, run.rounds.quick, &mut cores, &mut results)?;
            Ok(vec![one.record(run, value)])
        },
    )?;
    let notes = run.systems().map(|system| system.note(run.mode).to_owned());
    let notes = iter::once(cores.to_string()).chain(notes);
    all.report(&run.rounds, before, System::Mpi.name(), goals::goals, notes)
}

impl Part for ProgramPart {
    fn name(&self) -> String {
        let Measurement { case, nodes, delivery, .. } = self.what;
        format!(
            "{}, {}{}, {nodes} node{}",
            self.system.name(),
            case.name(),
            delivery.map_or_else(String::new, |delivery| format!(" by {delivery}")),
            if nodes == 1 { "" } else { "s" },
        )
    }

    fn is_ours(&self) -> bool {
        !matches!(self.system, System::Mpi | System::Serial)
    }
}

impl ProgramPart {
    /// Measures one round. Repeats a run that failed once.
    fn measure(
        &self,
        lab: &Lab,
        quick: bool,
        cores: &mut Cores,
        results: &mut Results,
    ) -> Result<f64, Error> {
        let mut values = Vec::new();
        for _ in 0..self.what.case.runs(quick) {
            let measure = || self.system.measure(lab, self.what, quick);
            let found = cores.steady(|| once_more(&self.name(), measure))?;
            self.compare(found.check, results)?;
            values.push(found.value);
        }
        median(&values).ok_or_else(|| Error::new("the case has no runs"))
    }

    /// Compares a check value with that of the other systems of the case.
    fn compare(&self, check: Option<Value>, results: &mut Results) -> Result<(), Error> {
        let Some(check) = check.filter(|check| !check.is_null()) else { return Ok(()) };
        let known = results.iter().find(|(case, ..)| *case == self.what.case);
        match known {
            Some((_, system, known)) if !agree(known, &check) => Err(Error::new(format!(
                "wrong result: check value {check}, but {system} has computed {known}"
            ))),
            Some(_) => Ok(()),
            None => {
                results.push((self.what.case, self.system.name(), check));
                Ok(())
            }
        }
    }

    /// Returns the record of a round.
    fn record(&self, run: &Run, value: f64) -> Record {
        Record {
            bench: "dsm",
            case: self.what.case.name(),
            size: self.what.size,
            system: self.system.name(),
            value,
            unit: self.what.case.unit().name(),
            mtu: (run.mode != Mode::Machine).then_some(run.selection.mtu),
            mode: Some(run.mode.name()),
            nodes: Some(self.what.nodes),
            oversubscribed: (run.mode == Mode::Machine || self.what.nodes > 2)
                && core_of_each(self.what.nodes as usize).is_none(),
            delivery: self.what.delivery,
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: Run,
    }

    fn parts(arguments: &[&str]) -> Vec<ProgramPart> {
        let words = ["dsm"].iter().chain(arguments);
        Command::try_parse_from(words).map(|command| command.run.parts()).unwrap_or_default()
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let names = |arguments: &[&str]| -> Vec<(&str, &str, u32)> {
            let each =
                |one: &ProgramPart| (one.what.case.name(), one.system.name(), one.what.nodes);
            parts(arguments).iter().map(each).collect()
        };
        let lu = ["--quick", "--case", "lu_1024"];
        let ours = [("oikaze-full", 2), ("oikaze", 1), ("oikaze", 2)];
        let systems = [("mpi", 1), ("mpi", 2)].into_iter().chain(ours);
        let systems = systems.chain([("oikaze-homes", 2), ("serial", 1)]);
        let expected: Vec<_> = systems.map(|(system, nodes)| ("lu_1024", system, nodes)).collect();
        assert_eq!(names(&lu), expected);
        let alone = ["--case", "himeno_xs", "--nodes", "1", "--system", "mpi,oikaze-plain"];
        assert_eq!(names(&alone), [("himeno_xs", "mpi", 1), ("himeno_xs", "oikaze-plain", 1)]);
        let barriers = ["--case", "barrier"];
        let systems = ["mpi", "oikaze-full", "oikaze", "oikaze-message"];
        assert_eq!(names(&barriers), systems.map(|system| ("barrier", system, 2)));
        let updates = ["--quick", "--case", "barrier_update"];
        let of_mpi = |one: &&ProgramPart| one.system == System::Mpi;
        assert_eq!(parts(&updates).iter().filter(of_mpi).count(), 3, "one for each size");
        assert_eq!(parts(&updates).len(), 2 * 3 + 3 * 3, "and three deliveries of Oikaze");
        let fetches = ["oikaze-full", "oikaze", "oikaze-get"].map(|system| ("fetch", system, 2));
        assert_eq!(names(&["--quick", "--case", "fetch"]), fetches);
        let here = ["--quick", "--mode", "machine", "--case", "heat_1024,fetch"];
        let systems = [("mpi", 1), ("mpi", 2), ("oikaze", 1), ("oikaze", 2)];
        let others = ["oikaze-plain", "oikaze-pages", "oikaze-small"].map(|name| (name, 2));
        let expected = systems.into_iter().chain(others).chain([("serial", 1)]);
        let expected: Vec<_> =
            expected.map(|(system, nodes)| ("heat_1024", system, nodes)).collect();
        assert_eq!(names(&here), expected, "nothing is fetched on one machine");
        let own = ["--mode", "machine", "--case", "guard,lock,lock_4,memory"];
        let expected = [("guard", 2), ("lock", 2), ("lock_4", 4), ("memory", 4)]
            .map(|(case, nodes)| ["oikaze", "oikaze-pages"].map(|system| (case, system, nodes)));
        assert_eq!(names(&own), expected.concat());
        assert!(names(&["--nodes", "3"]).is_empty() && names(&["--case", "none"]).is_empty());
        assert!(parts(&[]).len() > parts(&["--quick"]).len());
    }

    #[test]
    fn records_say_where_the_nodes_were() {
        for (mode, mtu) in [("wire", Some(9000)), ("whole", Some(9000)), ("machine", None)] {
            let words = ["dsm", "--mode", mode, "--quick", "--case", "heat_1024"];
            let run = Command::try_parse_from(words).expect("the arguments are right").run;
            let record = run.parts()[0].record(&run, 1.0);
            assert_eq!((record.mode, record.mtu, record.nodes), (Some(mode), mtu, Some(1)));
        }
    }

    #[test]
    fn wrong_result_fails_the_system_that_has_it() {
        let of = |case, system| {
            let what = Measurement { case, size: 0, nodes: 2, delivery: None };
            ProgramPart { what, system }
        };
        let one = |system| of(Case::HimenoXs, system);
        let mut results = Vec::new();
        let check = |text: &str| Some(Value::from(text));
        assert!(one(System::Mpi).compare(check("ab"), &mut results).is_ok());
        assert!(one(System::Oikaze).compare(check("ab"), &mut results).is_ok());
        let error = one(System::OikazePlain).compare(check("cd"), &mut results);
        let error = error.expect_err("the results differ").to_string();
        assert!(error.contains("\"cd\"") && error.contains("mpi has computed"), "{error}");
        assert!(one(System::Serial).compare(None, &mut results).is_ok());
        let other = of(Case::HimenoS, System::Serial);
        assert!(other.compare(check("cd"), &mut results).is_ok(), "another case");
    }
}
