//! Series of a bench: what each system measures in each case, over all rounds.

use super::goals::{Goal, table as goal_table};
use super::rounds::Rounds;
use super::surroundings::{Surroundings, machine};
use crate::error::Error;
use crate::lab::{Lab, Place};
use crate::record::{OVERSUBSCRIBED, Record, median, table};

/// One system's part in one case.
pub trait Part {
    /// Returns the names of the system and the case, and what else tells the part from others.
    fn name(&self) -> String;

    /// Returns `true` if the system is Oikaze. The bench fails if such a part has failed.
    fn is_ours(&self) -> bool;
}

/// A part's records of all rounds so far.
struct Series<P> {
    part: P,
    /// One record for each figure of the part. Its rounds grow, and its value is not known yet.
    records: Vec<Record>,
    /// Cause for which the series ended early.
    failed: Option<String>,
}

/// All parts of a bench, in the order of their records.
pub struct AllSeries<P>(Vec<Series<P>>);

impl<P: Part> AllSeries<P> {
    /// Makes a series of each part.
    ///
    /// # Errors
    /// There are no parts: the user has asked for systems that have none of the cases.
    pub fn new(parts: impl IntoIterator<Item = P>) -> Result<Self, Error> {
        let of = |part| Series { part, records: Vec::new(), failed: None };
        let all: Vec<_> = parts.into_iter().map(of).collect();
        if all.is_empty() {
            return Err(Error::new("none of these systems has such a case; `--help` lists both"));
        }
        Ok(Self(all))
    }

    /// Returns all parts.
    pub fn parts(&self) -> impl Iterator<Item = &P> {
        self.0.iter().map(|one| &one.part)
    }

    /// Measures a round of the parts that `takes_part` names, in turn. A part that has failed stays
    /// out. `measure` returns a record for each figure, whose value is that of this round.
    pub fn round(
        &mut self,
        round: u32,
        takes_part: impl Fn(&P) -> bool,
        mut measure: impl FnMut(&P) -> Result<Vec<Record>, Error>,
    ) {
        let goes_on = |one: &&mut Series<P>| one.failed.is_none() && takes_part(&one.part);
        for one in self.0.iter_mut().filter(goes_on) {
            match measure(&one.part) {
                Ok(found) => found.into_iter().for_each(|figure| one.add(figure)),
                Err(why) => {
                    let failure = format!("{}: round {round}: {why}", one.part.name());
                    eprintln!("warning: {failure}");
                    one.failed = Some(failure);
                }
            }
        }
    }

    /// Runs all rounds at each of these places where a part is measured.
    ///
    /// # Errors
    /// A place cannot be set up.
    pub fn run(
        &mut self,
        rounds: &Rounds,
        places: &[Place],
        is_at: impl Fn(&P, Place) -> bool,
        mut measure: impl FnMut(&P, &Lab) -> Result<Vec<Record>, Error>,
    ) -> Result<(), Error> {
        for &place in places {
            if !self.parts().any(|one| is_at(one, place)) {
                continue;
            }
            let lab = Lab::up(place)?;
            rounds.run(place, |round| {
                self.round(round, |one| is_at(one, place), |one| measure(one, &lab));
            });
        }
        Ok(())
    }

    /// Returns the records of the parts that have all rounds. The median of fewer rounds would
    /// cover other minutes than the medians of the other systems.
    fn records(&self) -> Vec<Record> {
        let complete = self.0.iter().filter(|one| one.failed.is_none());
        let found = complete.flat_map(|one| &one.records);
        let with_value = |one: &Record| Some(Record { value: median(&one.rounds)?, ..one.clone() });
        found.filter_map(with_value).collect()
    }

    /// Writes the records, and prints the tables and the notes. A part that has failed is named.
    ///
    /// # Errors
    /// The records cannot be written, or a part of Oikaze has failed.
    pub fn report(
        self,
        rounds: &Rounds,
        before: Surroundings,
        floor: &str,
        goals: impl FnOnce(&[Record]) -> Vec<Goal>,
        notes: impl IntoIterator<Item = String>,
    ) -> Result<(), Error> {
        let records = self.records();
        rounds.write(&records, before)?;
        print!("{}", table(&records, floor));
        print!("{}", goal_table(goals(&records)));
        println!("\nWhat these figures are:\n- {}", machine());
        notes.into_iter().for_each(|note| println!("- {note}"));
        if records.iter().any(|record| record.oversubscribed) {
            println!("- {OVERSUBSCRIBED}");
        }
        self.0
            .iter()
            .filter_map(|one| one.failed.as_ref())
            .for_each(|why| println!("- left out: {why}"));
        self.failure()
    }

    /// Returns the first failure of Oikaze as the bench's own.
    fn failure(self) -> Result<(), Error> {
        let mut ours = self.0.into_iter().filter(|one| one.part.is_ours());
        ours.find_map(|one| one.failed).map_or(Ok(()), |why| Err(Error::new(why)))
    }
}

impl<P> Series<P> {
    /// Adds a figure of this round to the record of the same measurement.
    fn add(&mut self, figure: Record) {
        match self.records.iter_mut().find(|one| one.what() == figure.what()) {
            Some(known) => known.rounds.push(figure.value),
            None => self.records.push(Record { rounds: vec![figure.value], ..figure }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Example {
        system: &'static str,
    }

    impl Part for Example {
        fn name(&self) -> String {
            format!("{}, put", self.system)
        }

        fn is_ours(&self) -> bool {
            self.system == "oikaze"
        }
    }

    fn all() -> AllSeries<Example> {
        let parts = ["tcp", "oikaze"].map(|system| Example { system });
        AllSeries::new(parts).unwrap_or(AllSeries(Vec::new()))
    }

    fn record(part: &Example, size: usize, value: f64) -> Record {
        Record { system: part.system, value, ..Record::example("put", size) }
    }

    #[test]
    fn figures_of_all_rounds_become_one_record_each() {
        let mut all = all();
        for (round, value) in [(1, 3.0), (2, 1.0), (3, 2.0)] {
            let found = |one: &Example| Ok([8, 64].map(|size| record(one, size, value)).into());
            all.round(round, |_| true, found);
        }
        let records = all.records();
        let of = |one: &Record| (one.system, one.size, one.value, one.rounds.clone());
        let expected = ["tcp", "oikaze"].map(|system| [8, 64].map(|size| (system, size)));
        let expected = expected.concat().into_iter();
        let expected = expected.map(|(system, size)| (system, size, 2.0, vec![3.0, 1.0, 2.0]));
        assert_eq!(records.iter().map(of).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert!(all.failure().is_ok());
    }

    #[test]
    fn part_that_has_failed_is_left_out_of_all_rounds() {
        let mut all = all();
        let mut measured = Vec::new();
        for round in 1..=3 {
            all.round(
                round,
                |_| true,
                |one| {
                    measured.push((round, one.system));
                    let is_lost = round == 2 && one.system == "tcp";
                    if is_lost { Err(Error::new("lost")) } else { Ok(vec![record(one, 8, 1.0)]) }
                },
            );
        }
        let tcp = measured.iter().filter(|(_, system)| *system == "tcp").count();
        assert_eq!((tcp, measured.len()), (2, 5));
        assert_eq!(all.records().iter().map(|one| one.system).collect::<Vec<_>>(), ["oikaze"]);
        assert_eq!(all.0[0].failed.as_deref(), Some("tcp, put: round 2: lost"));
        assert!(all.failure().is_ok(), "a peer's failure is not the bench's");
    }

    #[test]
    fn failure_of_our_part_is_that_of_the_bench() {
        let mut all = all();
        all.round(1, |one| one.is_ours(), |_| Err(Error::new("lost")));
        assert!(all.records().is_empty(), "no other part has taken its turn");
        let failure = all.failure().map_err(|error| error.to_string());
        assert_eq!(failure, Err("oikaze, put: round 1: lost".to_owned()));
    }

    #[test]
    fn bench_without_parts_is_refused() {
        let refused = AllSeries::<Example>::new([]).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|why| why.contains("--help")));
    }
}
