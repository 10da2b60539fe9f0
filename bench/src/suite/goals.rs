//! Goals of a bench, beside the results of this run. The bench reports goals and never asserts
//! them, because the machine decides.

use std::fmt;

use crate::record::{Record, median, three_digits};

/// Required range of a value.
#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// The least and the largest.
    Within(f64, f64),
}

impl Bound {
    fn contains(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "≤ {bound:<5}"),
            Self::AtLeast(bound) => write!(f, "≥ {bound:<5}"),
            Self::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// Records of one run, which are found by name.
pub struct Figures<'a>(pub &'a [Record]);

impl Figures<'_> {
    /// Returns the record on a wire of this MTU, or without a wire if the MTU is 0.
    pub fn of(&self, case: &str, size: usize, mtu: u16, system: &str) -> Option<&Record> {
        let same = |record: &&Record| {
            (record.case, record.size, record.mtu.unwrap_or(0), record.system)
                == (case, size, mtu, system)
        };
        self.0.iter().find(same)
    }
}

/// Value found for a goal.
#[derive(Clone, Copy)]
pub struct Found {
    /// Figure, or ratio of two medians.
    pub value: f64,
    /// Median of the ratios of the single rounds, if the value is a ratio. A machine whose speed
    /// varies is usually fast or slow for a whole round.
    by_round: Option<f64>,
}

impl Found {
    /// Makes the value of one figure.
    pub fn value(record: Option<&Record>) -> Option<Found> {
        Some(Found { value: record?.value, by_round: None })
    }

    /// Makes the ratio of two figures, if both were measured.
    pub fn ratio((one, other): (Option<&Record>, Option<&Record>)) -> Option<Found> {
        let (one, other) = (one?, other?);
        let rounds: Vec<f64> =
            one.rounds.iter().zip(&other.rounds).map(|(one, other)| one / other).collect();
        Some(Found { value: one.value / other.value, by_round: median(&rounds) })
    }

    /// Makes the difference of two figures, if both were measured.
    pub fn difference((one, other): (Option<&Record>, Option<&Record>)) -> Option<Found> {
        let (one, other) = (one?, other?);
        let rounds: Vec<f64> =
            one.rounds.iter().zip(&other.rounds).map(|(one, other)| one - other).collect();
        Some(Found { value: one.value - other.value, by_round: median(&rounds) })
    }

    /// Returns the value multiplied by `times`.
    pub fn times(self, times: f64) -> Found {
        Found { value: self.value * times, by_round: self.by_round.map(|ratio| ratio * times) }
    }
}

/// Goal: its description, the value found, and its bound.
pub type Goal = (String, Option<Found>, Bound);

/// Returns a line for each goal that this run has measured, or nothing if there is none.
pub fn table(goals: Vec<Goal>) -> String {
    let lines: Vec<String> = goals
        .into_iter()
        .filter_map(|(what, found, bound)| {
            let found = found?;
            let verdict = if bound.contains(found.value) { "reached" } else { "not yet" };
            let (found, by_round) =
                (three_digits(found.value), found.by_round.map(three_digits).unwrap_or_default());
            Some(format!("{what:<58}{found:>9}{by_round:>10}   {bound} {verdict}\n"))
        })
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("\n{:<58}{:>9}{:>10}   goal\n{}", "goal", "found", "by round", lines.concat())
    }
}

/// Returns the values that were found, with the names of their goals.
#[cfg(test)]
pub fn values(goals: Vec<Goal>) -> Vec<(String, f64)> {
    goals.into_iter().filter_map(|(what, found, _)| Some((what, found?.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(system: &'static str, value: f64, rounds: &[f64]) -> Record {
        Record { system, value, rounds: rounds.into(), ..Record::example("put_lat", 8) }
    }

    #[test]
    fn only_what_was_measured_is_told() {
        assert_eq!(table(Vec::new()), "");
        let (one, other) =
            (record("oikaze", 3.0, &[3.0, 2.0, 4.0]), record("ucx-tcp", 6.0, &[6.0, 6.0, 6.0]));
        let goals = vec![
            ("half".into(), Found::ratio((Some(&one), Some(&other))), Bound::AtMost(0.6)),
            ("missing".into(), Found::ratio((Some(&one), None)), Bound::AtMost(0.6)),
        ];
        let table = table(goals);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines.len(), 1, "{table}");
        assert!(lines[0].contains("0.500     0.500   ≤ 0.6"), "{table}");
        assert!(lines[0].ends_with("reached"), "{table}");
    }

    #[test]
    fn goals_missed_are_said() {
        let one = record("oikaze", 1.0, &[1.0]);
        let goals = vec![("rate".into(), Found::value(Some(&one)), Bound::AtLeast(2.4))];
        assert!(table(goals).contains("not yet"));
    }

    #[test]
    fn value_outside_of_a_range_misses_the_goal_on_either_side() {
        for (value, verdict) in [(0.96, "not yet"), (0.97, "reached"), (1.04, "not yet")] {
            let one = record("mpi", value, &[value]);
            let goals = vec![("equal".into(), Found::value(Some(&one)), Bound::Within(0.97, 1.03))];
            let table = table(goals);
            assert!(table.ends_with(&format!("0.97 to 1.03 {verdict}\n")), "{table}");
        }
    }

    #[test]
    fn figures_are_found_by_wire() {
        let here = Record { mtu: None, mode: None, ..record("oikaze", 1.0, &[1.0]) };
        let records = [here, record("oikaze", 2.0, &[2.0])];
        let figures = Figures(&records);
        assert_eq!(figures.of("put_lat", 8, 0, "oikaze").map(|record| record.value), Some(1.0));
        assert_eq!(figures.of("put_lat", 8, 9000, "oikaze").map(|record| record.value), Some(2.0));
        assert!(figures.of("put_lat", 8, 1500, "oikaze").is_none());
    }
}
