//! Paper 002, figure 5: time of 100 sends while a second application sends throughout, with
//! communication on cores of its own or on those of the applications.
//!
//! The paper had links of 100 Mbit/s and more cores than applications and servers. Here are two
//! cores, so every form shares some of them. The second figure has unshaped links, and the third
//! one computing threads on both cores.

use super::Measuring;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::placement::Extent;
use crate::placement::cases::form::{CASE, MTU, QUICK_FORMS, RATES, measure, series};
use crate::placement::collected::Collected;
use crate::process::seal;
use crate::record::Record;
use crate::suite::case::KIB;

const MACHINE: &str = "AnT and Linux 3.10 on Core i7-2600, 100 Mbit/s Ethernet, 2019";
/// Forms by who communicates: the applications themselves, a thread, and a server. Each panel also
/// has the kernel's form on the same cores.
const PANELS: [&[&str]; 3] = [
    &["inline c/c app 0,0", "inline d/d app 0,1", "udp c/c app 0,0", BASE],
    &[
        "thread c/c app 0,0 eng 0,0",
        "thread c/c app 0,0 eng 1,1",
        "thread c/d app 0,0 eng 0,1",
        "thread d/c app 0,1 eng 1,1",
        "thread d/d app 0,1 eng 0,1",
        "thread d/d app 0,1 eng 1,0",
    ],
    &[
        "process c/c app 0,0 eng 0,0",
        "process c/c app 0,0 eng 1,1",
        "process c/d app 0,0 eng 0,1",
        "process d/c app 0,1 eng 1,1",
        "process d/d app 0,1 eng 0,1",
        BASE,
    ],
];
/// The forms of a quick run fit into one panel.
const QUICK_PANELS: [&[&str]; 1] = [&QUICK_FORMS];
/// Form that the tables compare with: the kernel's.
const BASE: &str = "udp d/d app 0,1";

/// Measures the figure: at 100 Mbit/s, unshaped, and on loaded cores.
///
/// # Errors
/// Something could not be run or written.
pub fn forms(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let mut all = Collected::new("papers");
    measure(Extent { quick: run.rounds.quick, rounds: run.rounds.count }, &mut all)?;
    let records = all.records(CASE);
    let notes = all.finish().2;
    let [(shaped, _), (unshaped, _)] = RATES;
    let then = vec![
        Line { name: "2019, AnT", points: vec![(KIB as f64, 12.0), (5.0 * KIB as f64, 56.0)] },
        Line { name: "2019, Linux", points: vec![(5.0 * KIB as f64, 93.0)] },
    ];
    let figures = [
        ("002-figure-5", "links of 100 Mbit/s", then, (shaped, 0)),
        ("002-figure-5-unshaped", "unshaped links", Vec::new(), (unshaped, 0)),
        (
            "002-loaded",
            "a computing thread on each core, unshaped links",
            Vec::new(),
            (unshaped, 1),
        ),
    ];
    let mut found = Vec::new();
    for (name, how, then_lines, (mode, threads)) in figures {
        let records = select(&records, mode, (threads > 0).then_some(threads));
        let of_figure: Vec<&String> =
            notes.iter().filter(|note| note.contains(&series(mode, threads))).collect();
        let figure = Figure {
            name,
            title: "Paper 002, figure 5, measured again: 100 sends beside a second application",
            across: "bytes of a send",
            up: "ms",
            scale: Scale::Logarithmic,
            now: now(how, &of_figure),
            then: "AnT 12 ms at 1 KB and 56 ms at 5 KB, Linux 93 ms at 5 KB and faster than AnT at 1 and 3 KB; as the system's part grows, Linux's time grows and AnT's hardly does, the more so on loaded cores",
            then_machine: MACHINE,
            seal: Some(seal()),
            then_lines,
            panels: if run.rounds.quick { &QUICK_PANELS } else { &PANELS },
            base: BASE,
        };
        let records: Vec<Record> =
            records.into_iter().map(|record| Record { case: name, ..record }).collect();
        if !records.is_empty() {
            figure.save(run, &records)?;
        }
        found.extend(records);
    }
    Ok(found)
}

/// Describes the measurement.
fn now(how: &str, notes: &[&String]) -> String {
    let notes = notes.iter().map(|note| format!(" {note}.")).collect::<String>();
    format!(
        "A host with two network cards and a receiving host at each (network namespaces, mtu {MTU}), {how}; 100 messages and an answer of application 1 while application 2 sends without end. c: concentrated, d: distributed, of applications / communication, with the cores (app: applications 1 and 2, eng: their engines). Two cores: both receivers share core 1 and sleep while nothing comes; engines, and the servers that nodes start, have a nice value of -10. UDP: 64 KiB go as two datagrams.{notes}"
    )
}

/// Returns the records of a rate with this many computing threads.
fn select(records: &[Record], mode: &str, threads: Option<u32>) -> Vec<Record> {
    let wanted = |record: &&Record| record.mode == Some(mode) && record.threads == threads;
    records.iter().filter(wanted).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::plot::LINES_MAX;
    use super::*;
    use crate::placement::cases::form::FORMS;
    use std::collections::BTreeSet;

    #[test]
    fn pictures_do_not_mix_rates_or_loads() {
        let record =
            |mode, threads| Record { mode: Some(mode), threads, ..Record::example("f", 8) };
        let records = [record("unshaped", None), record("unshaped", Some(1)), record("100", None)];
        assert_eq!(select(&records, "unshaped", None).len(), 1);
        assert_eq!(select(&records, "unshaped", Some(1)).len(), 1);
    }

    #[test]
    fn every_form_is_drawn() {
        let drawn: BTreeSet<&str> = PANELS.iter().copied().flatten().copied().collect();
        assert_eq!(drawn, FORMS.iter().map(|form| form.system).collect());
        assert!(PANELS.iter().chain(&QUICK_PANELS).all(|panel| panel.len() <= LINES_MAX));
    }
}
