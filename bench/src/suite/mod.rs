//! Runs a bench: all systems in turn, case after case and round after round, so that disturbances
//! of the machine affect all systems.

pub mod case;
pub mod cores;
pub mod goals;
pub mod selection;
pub mod surroundings;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::case::{Case, Choice, Figure, chosen};
use self::cores::{Cores, Wanted};
use self::goals::{Figures, Goal};
pub use self::surroundings::machine;
use self::surroundings::{BUSY, Conditions, Surroundings};
use crate::error::Error;
use crate::lab::{Lab, Place, WireMode};
use crate::peers::{Effort, System};
use crate::record::{Record, median, table, write_lines};

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

/// Amount of measurement and its output, the same for every bench.
#[derive(Args)]
pub struct Rounds {
    /// Fewer sizes, smaller volumes: minutes instead of half an hour.
    #[arg(long)]
    pub quick: bool,
    /// Alternating rounds; the median is reported.
    #[arg(long = "rounds", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub count: u32,
    /// Writes the JSON lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Rounds {
    /// Writes the records of a bench, whose surroundings were these before it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, records: &[Record], before: Surroundings) -> Result<(), Error> {
        write_lines(records, &Conditions::since(before, self.quick), self.json.as_deref())
    }

    /// Runs all rounds in one place, and tells the user of each. `round` gets its number.
    pub fn run(&self, place: Place, mut round: impl FnMut(u32)) {
        let begun = Instant::now();
        for number in 1..=self.count {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{place}, round {number} of {} ({seconds:.0} s)", self.count);
            round(number);
        }
    }
}

/// Measures once, and once more if that fails.
///
/// # Errors
/// It has failed twice.
pub fn once_more<T>(what: &str, measure: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    measure().or_else(|why| {
        eprintln!("warning: {what} has failed and is tried once more: {why}");
        measure()
    })
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
        let before = warn_if_busy();
        let (mut records, mut failures) = (Vec::new(), Vec::new());
        let mut cores = Cores::new(run.cores);
        for &place in places {
            let cases = chosen(self.cases, &run.case, &run.size, place.mtu(), run.rounds.quick);
            if cases.iter().any(|&case| systems.iter().any(|&system| takes_part(run, system, case)))
            {
                let lab = Lab::up(place)?;
                records.extend(self.in_lab(
                    &lab,
                    run,
                    &systems,
                    &cases,
                    (&mut cores, &mut failures),
                ));
            }
        }
        if records.is_empty() && failures.is_empty() {
            return Err(Error::new("none of these systems has such a case; `--help` lists both"));
        }
        run.rounds.write(&records, before)?;
        print!("{}", table(&records, self.floor));
        print!("{}", goals::table((self.goals)(&Figures(&records))));
        println!("\nWhat these figures are:\n- {}\n- {cores}", machine());
        systems.iter().filter_map(|system| system.note()).for_each(|note| println!("- {note}"));
        failures.iter().for_each(|failure| println!("- left out: {failure}"));
        match failures.iter().find(|failure| failure.starts_with("oikaze")) {
            Some(failure) => Err(Error::new(failure.clone())),
            None => Ok(()),
        }
    }

    /// Runs all rounds in one place.
    fn in_lab(
        &self,
        lab: &Lab,
        run: &Run,
        systems: &[&'static dyn System],
        cases: &[Case],
        (cores, failures): (&mut Cores, &mut Vec<String>),
    ) -> Vec<Record> {
        let effort = if run.rounds.quick { Effort::QUICK } else { Effort::THOROUGH };
        let mut series: Vec<Series> = cases
            .iter()
            .flat_map(|&case| {
                systems
                    .iter()
                    .filter(move |system| takes_part(run, **system, case))
                    .map(move |&system| (case, system))
            })
            .map(|(case, system)| Series {
                bench: self.name,
                case,
                system,
                records: Vec::new(),
                failed: false,
            })
            .collect();
        run.rounds.run(lab.place, |round| {
            for one in series.iter_mut().filter(|one| !one.failed) {
                if let Err(why) = one.measure(lab, effort, cores) {
                    let (test, size, system) = (one.case.test, one.case.size, one.system.name());
                    let failure = format!(
                        "{system}: {test:?} of {size} bytes, round {round}, {}: {why}",
                        lab.place
                    );
                    eprintln!("warning: {failure}");
                    failures.push(failure);
                    one.failed = true;
                }
            }
        });
        // Drops a series with missing rounds. Its median would cover other minutes than the medians
        // of the other systems.
        let complete = series.into_iter().filter(|one| !one.failed).flat_map(|one| one.records);
        complete
            .filter_map(|record| Some(Record { value: median(&record.rounds)?, ..record }))
            .collect()
    }
}

/// Returns the state of the machine. Warns if other processes run, because the systems need both
/// cores for themselves.
pub fn warn_if_busy() -> Surroundings {
    let before = Surroundings::now();
    if let Some(load) = before.load.filter(|&load| load > BUSY) {
        eprintln!("warning: the machine is busy (load {load}); the figures will be worth little");
    }
    before
}

/// One system's part in one case, over all rounds.
struct Series {
    bench: &'static str,
    case: Case,
    system: &'static dyn System,
    records: Vec<Record>,
    failed: bool,
}

/// Returns `true` if the system takes part in the case. In a quick bench, the user must name the
/// system, or the system must count the case among its quick ones ([`System::is_quick`]).
fn takes_part(run: &Run, system: &dyn System, case: Case) -> bool {
    system.has(case) && (!run.rounds.quick || !run.system.is_empty() || system.is_quick(case))
}

impl Series {
    /// Measures one round. Repeats a failed measurement once.
    fn measure(&mut self, lab: &Lab, effort: Effort, cores: &mut Cores) -> Result<(), Error> {
        let found = cores.steady(|| {
            once_more(self.system.name(), || self.system.measure(lab, self.case, effort))
        })?;
        for (figure, value) in found {
            let known = self.records.iter().position(|record| record.case == figure.name());
            let at = known.unwrap_or_else(|| {
                self.records.push(self.record(lab, figure));
                self.records.len() - 1
            });
            self.records[at].rounds.push(value);
        }
        Ok(())
    }

    fn record(&self, lab: &Lab, figure: Figure) -> Record {
        Record {
            bench: self.bench,
            case: figure.name(),
            size: self.case.size,
            system: self.system.name(),
            unit: figure.unit(),
            mtu: lab.place.wire().map(|(mtu, _)| mtu),
            mode: lab.place.wire().map(|(_, mode)| mode.name()),
            ..Record::default()
        }
    }
}
