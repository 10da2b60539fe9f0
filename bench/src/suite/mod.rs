//! Runs a bench: all systems in turn, case after case and round after round, so that disturbances
//! of the machine affect all systems.

pub mod case;
pub mod cores;
pub mod goals;
mod rounds;
pub mod selection;
pub mod series;
pub mod surroundings;

use std::iter::once;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::case::{Case, Choice, Figure, chosen};
use self::cores::{Cores, Wanted};
use self::goals::{Figures, Goal};
pub use self::rounds::{Rounds, once_more, warn_if_busy};
use self::series::{AllSeries, Part};
pub use self::surroundings::machine;
use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::peers::{Effort, System};
use crate::record::Record;

/// Definition of a bench.
pub struct Suite {
    /// Name on the command line and in the records.
    pub name: &'static str,
    /// All cases of the bench.
    pub cases: &'static [Choice],
    /// Systems that take part.
    pub systems: &'static [&'static dyn System],
    /// System that the table compares with.
    pub floor: &'static str,
    /// Goals of the bench.
    pub goals: fn(&Figures<'_>) -> Vec<Goal>,
}

/// Selection of what a bench measures.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    rounds: Rounds,
    /// Only these cases; repeated, or several separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    case: Vec<Figure>,
    /// Only these sizes, in bytes.
    #[arg(long, value_delimiter = ',')]
    size: Vec<usize>,
    /// Only these systems.
    #[arg(long, value_delimiter = ',', value_parser = names())]
    system: Vec<String>,
    /// Leaves systems out.
    #[arg(long, value_delimiter = ',', value_parser = names())]
    without: Vec<String>,
    /// Measures only while the two cores have a cache in common (near), or have none (far): a
    /// hypervisor moves them.
    #[arg(long, value_enum, default_value_t)]
    cores: Wanted,
}

/// Settings of a bench between two hosts.
#[derive(Args)]
pub struct WireRun {
    #[command(flatten)]
    run: Run,
    /// MTU of the wire.
    #[arg(long, value_delimiter = ',', default_values_t = [9000, 1500], value_parser = clap::value_parser!(u16).range(1500..=9000))]
    mtu: Vec<u16>,
    /// Treatment of large buffers by the wire.
    #[arg(long, value_enum, default_value_t = WireMode::Wire)]
    mode: WireMode,
}

/// Returns a parser for the names of all systems.
fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(crate::peers::names())
}

impl Run {
    fn systems(&self, suite: &Suite) -> Vec<&'static dyn System> {
        let is_in = |list: &[String], name: &str| list.iter().any(|one| one == name);
        let wanted = |system: &&dyn System| {
            let is_asked = self.system.is_empty() || is_in(&self.system, system.name());
            is_asked && !is_in(&self.without, system.name())
        };
        suite.systems.iter().copied().filter(wanted).collect()
    }
}

impl Suite {
    /// Runs the bench between two hosts, on one wire after another.
    ///
    /// # Errors
    /// As [`Suite::bench`], or the user is not root.
    pub fn on_wires(&self, run: &WireRun) -> Result<(), Error> {
        let places: Vec<Place> =
            run.mtu.iter().map(|&mtu| Place::Wire { mtu, mode: run.mode }).collect();
        self.bench(&run.run, &places)
    }

    /// Runs the bench between two processes of this machine.
    ///
    /// # Errors
    /// As [`Suite::bench`].
    pub fn here(&self, run: &Run) -> Result<(), Error> {
        self.bench(run, &[Place::Here])
    }

    /// Runs the bench at all places.
    ///
    /// # Errors
    /// A peer is missing; the error names its package. A system that fails in a case is left out
    /// there and noted. If that system is Oikaze, the bench fails after all others have been
    /// measured and reported.
    fn bench(&self, run: &Run, places: &[Place]) -> Result<(), Error> {
        let systems = run.systems(self);
        systems.iter().try_for_each(|system| system.present())?;
        let mut all = AllSeries::new(self.parts(run, places, &systems))?;
        let before = warn_if_busy();
        let mut cores = Cores::new(run.cores);
        let effort = if run.rounds.quick { Effort::QUICK } else { Effort::THOROUGH };
        all.run(
            &run.rounds,
            places,
            |one, place| one.place == place,
            |one, lab| one.measure(lab, effort, &mut cores),
        )?;
        let notes = systems.iter().filter_map(|system| system.note()).map(str::to_owned);
        let notes = once(cores.to_string()).chain(notes);
        let goals = |records: &[Record]| (self.goals)(&Figures(records));
        all.report(&run.rounds, before, self.floor, goals, notes)
    }

    /// Returns the parts of the bench, place by place.
    fn parts(
        &self,
        run: &Run,
        places: &[Place],
        systems: &[&'static dyn System],
    ) -> Vec<SystemPart> {
        let mut parts = Vec::new();
        for &place in places {
            for case in chosen(self.cases, &run.case, &run.size, place.mtu(), run.rounds.quick) {
                let taking = systems.iter().filter(|system| takes_part(run, **system, case));
                let bench = self.name;
                parts.extend(taking.map(|&system| SystemPart { bench, place, case, system }));
            }
        }
        parts
    }
}

/// One system's part in one case at one place.
struct SystemPart {
    bench: &'static str,
    place: Place,
    case: Case,
    system: &'static dyn System,
}

/// Returns `true` if the system takes part in the case. In a quick bench, the user must name the
/// system, or the system must count the case among its quick ones ([`System::is_quick`]).
fn takes_part(run: &Run, system: &dyn System, case: Case) -> bool {
    system.has(case) && (!run.rounds.quick || !run.system.is_empty() || system.is_quick(case))
}

impl Part for SystemPart {
    fn name(&self) -> String {
        let (Case { test, size }, system) = (self.case, self.system.name());
        format!("{system}, {test:?} of {size} bytes, {}", self.place)
    }

    fn is_ours(&self) -> bool {
        self.system.name().starts_with("oikaze")
    }
}

impl SystemPart {
    /// Measures one round. Repeats a failed measurement once.
    fn measure(&self, lab: &Lab, effort: Effort, cores: &mut Cores) -> Result<Vec<Record>, Error> {
        let measure = || self.system.measure(lab, self.case, effort);
        let found = cores.steady(|| once_more(&self.name(), measure))?;
        Ok(found.into_iter().map(|(figure, value)| self.record(figure, value)).collect())
    }

    fn record(&self, figure: Figure, value: f64) -> Record {
        Record {
            bench: self.bench,
            case: figure.name(),
            size: self.case.size,
            system: self.system.name(),
            value,
            unit: figure.unit(),
            mtu: self.place.wire().map(|(mtu, _)| mtu),
            mode: self.place.wire().map(|(_, mode)| mode.name()),
            ..Record::default()
        }
    }
}
