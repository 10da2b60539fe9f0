//! Values of all rounds, by case, size and system.

use crate::error::Error;
use crate::record::{Record, median};

/// Description of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    pub case: &'static str,
    pub size: usize,
    pub system: &'static str,
    pub unit: &'static str,
    pub mtu: Option<u16>,
    pub mode: Option<&'static str>,
    /// Computing threads on each core.
    pub threads: Option<u32>,
}

impl Key {
    /// Describes a value on the lab's wire.
    pub fn new(case: &'static str, size: usize, system: &'static str, unit: &'static str) -> Key {
        let (mtu, mode) = (super::PLACE.wire().map(|(mtu, _)| mtu), None);
        Key { case, size, system, unit, mtu, mode, threads: None }
    }
}

/// Values that a bench has collected so far.
pub struct Collected {
    bench: &'static str,
    values: Vec<(Key, Vec<f64>)>,
    fits: Vec<String>,
    notes: Vec<String>,
}

impl Collected {
    /// Makes an empty collection of this bench.
    pub fn new(bench: &'static str) -> Collected {
        Collected { bench, values: Vec::new(), fits: Vec::new(), notes: Vec::new() }
    }

    /// Adds the value of a round.
    pub fn add(&mut self, key: Key, value: f64) {
        match self.values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.values.push((key, vec![value])),
        }
    }

    /// Adds the values of a measurement, or the reason why there are none.
    pub fn add_all(&mut self, what: &str, found: Result<Vec<(Key, f64)>, Error>) {
        match found {
            Ok(found) => found.into_iter().for_each(|(key, value)| self.add(key, value)),
            Err(why) => {
                eprintln!("warning: {what}: {why}");
                self.note(format!("left out: {what}: {}", reason(&why)));
            }
        }
    }

    /// Adds a note for the reader, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a line about a fit of several values.
    pub fn fit(&mut self, line: String) {
        self.fits.push(line);
    }

    /// Returns the records of a case so far.
    pub fn records(&self, case: &str) -> Vec<Record> {
        let of_case = self.values.iter().filter(|(key, _)| key.case == case);
        of_case.filter_map(|(key, values)| self.record(key, values)).collect()
    }

    /// Returns the records, the lines about fits and the notes.
    pub fn finish(mut self) -> (Vec<Record>, Vec<String>, Vec<String>) {
        super::cases::detect::add_fits(&mut self);
        let records = self.values.iter().filter_map(|(key, values)| self.record(key, values));
        (records.collect(), self.fits, self.notes)
    }

    fn record(&self, key: &Key, values: &[f64]) -> Option<Record> {
        Some(Record {
            bench: self.bench,
            case: key.case,
            size: key.size,
            system: key.system,
            value: median(values)?,
            unit: key.unit,
            rounds: values.to_vec(),
            mtu: key.mtu,
            mode: key.mode,
            threads: key.threads,
            ..Record::default()
        })
    }
}

/// Returns the first line of why a measurement failed, without the command that started it: what
/// the bench's own program said, or else the first that any said.
pub fn reason(why: &Error) -> String {
    let text = why.to_string();
    let said = text.rsplit_once("\" failed (").map_or(text.as_str(), |(_, said)| said).trim();
    let own = said.split_once("bench: ").map_or(said, |(_, own)| own);
    let first = own.lines().next().unwrap_or(own).trim();
    first.strip_suffix(" Tried:").unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_what_the_node_said() {
        let of = |text: &str| reason(&Error::new(text));
        let why = "\"oikaze\" \"run\" failed (it took too long): a node was killed";
        assert_eq!(of(why), "it took too long): a node was killed");
        assert_eq!(of("lost"), "lost");
        let why = "\"oikaze\" \"run\" failed (1): bench: joining the job: no server";
        assert_eq!(of(why), "joining the job: no server");
        let why =
            "\"oikaze\" \"run\" failed (1): oikaze: a note\nbench: no way. Tried:\n  from  to";
        assert_eq!(of(why), "no way.");
        assert_eq!(of("timed out"), "timed out");
    }

    #[test]
    fn rounds_of_a_key_become_one_record() {
        let mut all = Collected::new("placement");
        let key = Key::new("post", 8, "udp", "us");
        for value in [3.0, 1.0, 2.0] {
            all.add(key, value);
        }
        all.add(Key { threads: Some(1), ..key }, 9.0);
        all.add_all("a case", Err(Error::new("lost")));
        all.add_all("a case", Err(Error::new("lost")));
        assert_eq!(all.records("post").len(), 2);
        let (records, _, notes) = all.finish();
        assert_eq!((records[0].value, records[0].rounds.len(), notes.len()), (2.0, 3, 1));
    }
}
