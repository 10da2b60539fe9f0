//! Report of a paper's figure beside the same figure of today. The bench measures it in rounds,
//! writes it as JSON and draws it as SVG.

use oikaze_os::replace_file::{self, FileRights};

use serde_json::{Value, json};

use super::Measuring;
use super::plot::{LINES_MAX, Line, Measured, Panel, Plot, Scale};
use crate::date::today;
use crate::error::{Error, Tried};
use crate::lab::{Lab, Place};
use crate::record::{Record, median, table};
use crate::suite::cores::Cores;
use crate::suite::machine;
use crate::suite::surroundings::{Surroundings, doubts, states_text};

/// Description of a figure, and the paper's result for it.
pub struct Figure {
    /// Name of the figure and its file: `004-figure-6`.
    pub name: &'static str,
    pub title: &'static str,
    pub across: &'static str,
    pub up: &'static str,
    pub scale: Scale,
    /// Description of today's measurement.
    pub now: String,
    /// Description of the paper's result.
    pub then: &'static str,
    /// Machine of the paper.
    pub then_machine: &'static str,
    /// Seal of the datagrams, if any are sent.
    pub seal: Option<String>,
    /// Lines of the paper, as far as its text has numbers, in the unit of `up`. They stand in the
    /// first panel, or in one of their own if it has no room.
    pub then_lines: Vec<Line>,
    /// Today's lines, panel by panel, in the order in which they are drawn.
    pub panels: &'static [&'static [&'static str]],
    /// System that the table compares with.
    pub base: &'static str,
}

impl Figure {
    /// Measures all sizes in a lab at a place, and writes the figure. `one` returns each system's
    /// value at a size.
    ///
    /// # Errors
    /// Something could not be run or written.
    pub fn measure_in_lab(
        &self,
        run: &Measuring<'_>,
        place: Place,
        sizes: &[usize],
        mut one: impl FnMut(&Lab, usize) -> Result<Vec<(&'static str, f64)>, Error>,
    ) -> Result<Vec<Record>, Error> {
        let lab = Lab::up(place)?;
        let records = self.measure(run, Some(place), sizes, |size| one(&lab, size))?;
        drop(lab);
        self.save(run, &records)?;
        Ok(records)
    }

    /// Measures all sizes in each round. `one` returns each system's value at a size. On a wire, a
    /// size is measured again if the hypervisor has moved the cores meanwhile.
    ///
    /// # Errors
    /// `one` fails, or the cores do not reach the wanted distance in time.
    pub fn measure(
        &self,
        run: &Measuring<'_>,
        place: Option<Place>,
        sizes: &[usize],
        mut one: impl FnMut(usize) -> Result<Vec<(&'static str, f64)>, Error>,
    ) -> Result<Vec<Record>, Error> {
        let mut records = self.blank(place, sizes);
        let mut cores = Cores::new(run.cores);
        for round in 1..=run.rounds.count {
            eprintln!("{}, round {round} of {}", self.name, run.rounds.count);
            for &size in sizes {
                let found = match place {
                    Some(_) => cores.steady(|| one(size))?,
                    None => one(size)?,
                };
                for (system, value) in found {
                    let same =
                        |record: &&mut Record| (record.size, record.system) == (size, system);
                    records
                        .iter_mut()
                        .find(same)
                        .into_iter()
                        .for_each(|record| record.rounds.push(value));
                }
            }
        }
        if place.is_some() {
            eprintln!("{}: {cores}", self.name);
        }
        // A system may lack some sizes.
        Ok(records
            .into_iter()
            .filter_map(|record| Some(Record { value: median(&record.rounds)?, ..record }))
            .collect())
    }

    /// Returns the names of all lines of today.
    pub fn systems(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.panels.iter().copied().flatten().copied()
    }

    fn blank(&self, place: Option<Place>, sizes: &[usize]) -> Vec<Record> {
        let wire = place.and_then(Place::wire);
        let record = |size, system| Record {
            bench: "papers",
            case: self.name,
            size,
            system,
            unit: self.up,
            mtu: wire.map(|(mtu, _)| mtu),
            mode: wire.map(|(_, mode)| mode.name()),
            ..Record::default()
        };
        sizes
            .iter()
            .flat_map(|&size| self.systems().map(move |system| record(size, system)))
            .collect()
    }

    /// Prints the table. Writes the picture, and one JSON object with all that a reader must know.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, run: &Measuring<'_>, records: &[Record]) -> Result<(), Error> {
        self.save_with(run, records, Value::Null)
    }

    /// Saves as [`Figure::save`] does, with further values for the JSON object.
    ///
    /// # Errors
    /// As [`Figure::save`].
    pub fn save_with(
        &self,
        run: &Measuring<'_>,
        records: &[Record],
        more: Value,
    ) -> Result<(), Error> {
        print!("{}", table(records, self.base));
        let (date, machine) = (today(), machine());
        let then_lines: Vec<_> = self
            .then_lines
            .iter()
            .map(|line| json!({ "name": line.name, "points": line.points }))
            .collect();
        let rounds = records.iter().map(|record| record.rounds.len()).max().unwrap_or(0);
        let (before, after) = (&run.before, Surroundings::now());
        let seal = self.seal.as_deref();
        let mut all = json!({
            "figure": self.name, "title": self.title, "date": date, "machine": machine, "now": self.now,
            "then": { "found": self.then, "machine": self.then_machine, "unit": self.up, "lines": then_lines },
            "base": self.base, "panels": self.panels, "seal": seal, "rounds": rounds,
            "quick": run.rounds.quick, "before": before, "after": after, "records": records,
        });
        if !more.is_null() {
            all["more"] = more;
        }
        if let Some(note) = &run.note {
            all["note"] = json!(note);
        }
        let text = serde_json::to_string_pretty(&all)
            .map_err(|why| Error::new(format!("writing JSON: {why}")))?;
        let plot = Plot {
            title: self.title,
            across: self.across,
            up: self.up,
            scale: self.scale,
            notes: [
                format!("Now ({date}): {machine} {}", self.now),
                conditions(seal, rounds, run.rounds.quick, &[before, &after]),
                format!("Then ({}): {}.", self.then_machine, self.then),
            ]
            .into_iter()
            .chain(run.note.iter().map(|note| format!("Note: {note}")))
            .collect(),
            panels: self.panels(records),
        };
        for (ending, text) in [("json", text + "\n"), ("svg", plot.svg()?)] {
            let file = run.out.join(format!("{}.{ending}", self.name));
            replace_file::write(&file, text.as_bytes(), FileRights::Kept)
                .tried(format!("writing {}", file.display()))?;
            println!("{}", file.display());
        }
        Ok(())
    }

    fn panels(&self, records: &[Record]) -> Vec<Panel> {
        let line = |&name: &&'static str| {
            let of_system = || records.iter().filter(|record| record.system == name);
            let least = |record: &Record| record.rounds.iter().copied().fold(f64::MAX, f64::min);
            let most = |record: &Record| record.rounds.iter().copied().fold(0.0, f64::max);
            Measured {
                line: Line {
                    name,
                    points: of_system().map(|record| (record.size as f64, record.value)).collect(),
                },
                spread: of_system().map(|record| (least(record), most(record))).collect(),
            }
        };
        let mut panels: Vec<Panel> = self
            .panels
            .iter()
            .map(|systems| Panel {
                // The legend has no line without points.
                lines: systems.iter().map(line).filter(|one| !one.spread.is_empty()).collect(),
                then_lines: Vec::new(),
            })
            .filter(|panel| !panel.lines.is_empty())
            .collect();
        let then_lines = self.then_lines.clone();
        match panels.first_mut() {
            _ if then_lines.is_empty() => {}
            Some(first) if first.lines.len() + then_lines.len() <= LINES_MAX => {
                first.then_lines = then_lines;
            }
            _ => panels.insert(0, Panel { lines: Vec::new(), then_lines }),
        }
        panels
    }
}

/// Returns the note on the conditions of a measurement.
fn conditions(seal: Option<&str>, rounds: usize, quick: bool, states: &[&Surroundings]) -> String {
    let seal = match seal {
        Some(seal) => format!("seal {seal}"),
        None => "nothing is sent".to_owned(),
    };
    let quick = if quick { ", quick" } else { "" };
    let doubts = doubts(rounds, states);
    let doubts = doubts.map_or_else(String::new, |why| format!(" Worth little: {why}."));
    let rounds = match rounds {
        1 => "one round".to_owned(),
        _ => format!("{rounds} rounds, of which the points are the medians and the bars the rest"),
    };
    format!("Conditions: {seal}; {rounds}{quick}; {}.{doubts}", states_text(states))
}
