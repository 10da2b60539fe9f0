//! Ceilings of measures of the tree that may only fall (`xtask/ceilings.txt`).
//!
//! A line of the file says what is measured, of what, and the value: `circle crates/oikaze 48`. The
//! file holds only values above the limit that the measure has everywhere else. A change that makes
//! a value smaller writes the new value, or removes the line. No change makes a value greater.

use crate::command::{Step, root};
use std::collections::BTreeMap;
use std::fs;

/// File of the ceilings, from the root of the repository.
const FILE: &str = "xtask/ceilings.txt";

/// Values by what is measured, and of what.
type Ceilings = BTreeMap<(String, String), usize>;

/// Measure of the tree, such as the length of circles.
pub struct Measure<'a> {
    /// First word of its lines in the file.
    pub name: &'a str,
    /// Words behind a value, such as "files in the largest circle".
    pub unit: &'a str,
    /// Limit for everything that has no line in the file.
    pub limit: usize,
}

impl Measure<'_> {
    /// Compares what was found with the ceilings.
    ///
    /// # Errors
    /// The file cannot be read, a value is above its ceiling, or a ceiling can fall.
    pub fn check(&self, found: &BTreeMap<String, usize>) -> Result<(), String> {
        let wrong = self.compare(&parse(&read()?)?, found);
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n    ")) }
    }

    fn compare(&self, ceilings: &Ceilings, found: &BTreeMap<String, usize>) -> Vec<String> {
        let Measure { name, unit, limit } = self;
        let ceiling = |of: &str| ceilings.get(&((*name).to_owned(), of.to_owned())).copied();
        let above = found.iter().filter_map(|(of, value)| match ceiling(of) {
            None if value > limit => Some(format!("{of}: {value} {unit}, where {limit} may be")),
            Some(ceiling) if *value > ceiling => {
                Some(format!("{of}: {value} {unit}, and the ceiling is {ceiling}"))
            }
            _ => None,
        });
        let rows = ceilings.iter().filter(|((measure, _), _)| measure == name);
        let below = rows.filter_map(|((_, of), ceiling)| {
            let value = found.get(of).copied().unwrap_or(0);
            if value <= *limit {
                Some(format!("{of}: {value} {unit}: remove its line `{name} {of}` from {FILE}"))
            } else if value < *ceiling {
                Some(format!("{of}: {value} {unit}: write `{name} {of} {value}` in {FILE}"))
            } else {
                None
            }
        });
        above.chain(below).collect()
    }
}

/// Checks that no commit has raised a ceiling. A shallow clone knows only some commits.
///
/// # Errors
/// Git cannot be asked, or a ceiling was raised.
pub fn history() -> Result<(), String> {
    let mut newer = parse(&read()?)?;
    let commits = Step::new("git").args(["log", "--format=%H", "--", FILE]).output()?;
    for commit in commits.lines() {
        let shown = Step::new("git").args(["show", &format!("{commit}:{FILE}")]).output()?;
        let older = parse(&shown)?;
        if let Some(raised) = raised(&older, &newer) {
            return Err(format!("{FILE}: `{raised}` is above the ceiling of commit {commit}"));
        }
        newer = older;
    }
    Ok(())
}

/// Returns a line whose value is greater in the newer file. A new measure may begin with any
/// values. A crate that was split off another may begin with any value below the other's, if the
/// other's has fallen with it.
fn raised(older: &Ceilings, newer: &Ceilings) -> Option<String> {
    let is_known = |measure: &str| older.keys().any(|(known, _)| known == measure);
    let is_split_off = |measure: &str, value: usize| {
        older.iter().any(|(key, before)| {
            key.0 == measure && value < *before && newer.get(key).is_none_or(|now| now < before)
        })
    };
    newer.iter().find_map(|((measure, of), value)| {
        let before = older.get(&(measure.clone(), of.clone()));
        let is_new = || is_known(measure) && !is_split_off(measure, *value);
        let is_raised = before.map_or_else(is_new, |before| value > before);
        is_raised.then(|| format!("{measure} {of} {value}"))
    })
}

fn read() -> Result<String, String> {
    fs::read_to_string(root().join(FILE)).map_err(|why| format!("{FILE}: {why}"))
}

fn parse(text: &str) -> Result<Ceilings, String> {
    let row = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (measure, of) = (words.next()?, words.next()?);
        let value = words.next()?.parse().ok()?;
        words.next().is_none().then_some(((measure, of), value))
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| row(line).ok_or_else(|| format!("{FILE}: {line:?} is not a row"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCLES: Measure<'_> = Measure { name: "circle", unit: "files", limit: 1 };

    fn compare(ceilings: &str, found: &[(&str, usize)]) -> Vec<String> {
        let found = found.iter().map(|(of, value)| ((*of).to_owned(), *value)).collect();
        CIRCLES.compare(&parse(ceilings).unwrap(), &found)
    }

    #[test]
    fn value_at_its_ceiling_passes() {
        assert!(compare("# Why.\n\ncircle a 3\nother b 9\n", &[("a", 3), ("b", 1)]).is_empty());
    }

    #[test]
    fn value_above_its_ceiling_or_the_limit_is_refused() {
        let wrong = compare("circle a 3\n", &[("a", 4), ("b", 2)]);
        assert_eq!(wrong, ["a: 4 files, and the ceiling is 3", "b: 2 files, where 1 may be"]);
    }

    #[test]
    fn ceiling_that_can_fall_is_named() {
        let wrong = compare("circle a 3\ncircle b 2\n", &[("a", 2), ("b", 1)]);
        assert!(wrong[0].contains("write `circle a 2`"), "{wrong:?}");
        assert!(wrong[1].contains("remove its line `circle b`"), "{wrong:?}");
    }

    #[test]
    fn raised_ceiling_is_found_but_a_new_measure_is_not() {
        let raised = |older: &str, newer: &str| {
            super::raised(&parse(older).unwrap(), &parse(newer).unwrap())
        };
        assert_eq!(raised("circle a 3\n", "circle a 2\nfiles b 20\n"), None);
        assert_eq!(raised("circle a 3\n", "circle a 4\n").unwrap(), "circle a 4");
        assert_eq!(raised("circle a 3\n", "circle a 3\ncircle b 2\n").unwrap(), "circle b 2");
        assert_eq!(raised("circle a 3\n", "circle a 2\ncircle b 3\n").unwrap(), "circle b 3");
    }

    #[test]
    fn crate_split_off_another_may_have_circles_shorter_than_the_others_was() {
        let raised = |older: &str, newer: &str| {
            super::raised(&parse(older).unwrap(), &parse(newer).unwrap())
        };
        assert_eq!(raised("circle a 9\n", "circle a 7\ncircle b 4\n"), None);
    }

    #[test]
    fn line_without_a_number_is_refused() {
        assert!(parse("circle a many\n").is_err() && parse("circle a\n").is_err());
    }
}
