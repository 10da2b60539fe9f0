//! Paper 003, figure 4 and table 5: ways to find the end of a transfer, by size, with straight
//! lines through the times. Also the time of a registration (section 3.1.2).

use serde_json::{Value, json};

use super::Measuring;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::lab::Lab;
use crate::placement::cases::detect::{CASE, SIZES, WAYS, fit, round};
use crate::placement::collected::Collected;
use crate::placement::programs::{Setup, node, role};
use crate::placement::{Extent, PLACE};
use crate::process::seal;
use crate::record::Record;
use crate::suite::case::{KIB, MIB};

const MACHINE: &str = "Tender, and PM on Linux 2.0.36, on Myrinet, Pentium II 450 MHz, about 2000";
/// Time of a registration in the paper, in µs.
const REGISTERED: f64 = 0.579;
/// Sizes of registered areas.
const AREAS: [usize; 4] = [4 * KIB, 64 * KIB, MIB, 64 * MIB];
/// Ways that the paper has, and those of today beside its quickest one.
const PANELS: [&[&str]; 2] = [
    &[WAYS[0].system, WAYS[1].system, WAYS[2].system, WAYS[3].system, WAYS[4].system],
    &[WAYS[0].system, WAYS[5].system, WAYS[6].system],
];

/// Measures figure 4 and the lines of table 5.
///
/// # Errors
/// Something could not be run or written.
pub fn ends(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let mut all = Collected::new("papers");
    let extent = Extent { quick: run.rounds.quick, rounds: run.rounds.count };
    let lab = Lab::up(PLACE)?;
    for number in 1..=extent.rounds {
        eprintln!("003-figure-4, round {number} of {}", extent.rounds);
        round(&lab, &[], extent, &mut all);
    }
    drop(lab);
    let fits: Vec<(String, Value)> = WAYS
        .iter()
        .filter_map(|way| {
            let now = fit(&all, way.system)?;
            let then = way.then.map(|(_, then)| then.to_string());
            let text = match &then {
                Some(then) => format!("{}: {now} (then {then})", way.system),
                None => format!("{}: {now}", way.system),
            };
            Some((text, json!({ "way": way.system, "now": now.to_string(), "then": then })))
        })
        .collect();
    let texts: Vec<&str> = fits.iter().map(|(text, _)| text.as_str()).collect();
    let then = WAYS.iter().filter_map(|way| way.then).map(|(name, then)| Line {
        name,
        points: SIZES.map(|size| (size as f64, then.at(size as f64))).into(),
    });
    let figure = Figure {
        name: "003-figure-4",
        title: "Paper 003, figure 4 and table 5, measured again: ways to find the end of a transfer",
        across: "bytes of a transfer",
        up: "us",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, one core each; puts there and back, all turns by the clock, one way. Bounce: received elsewhere and copied (OIKAZE_WITHOUT=direct-placement). Second message: the sender looks every 10 µs for the completion, then tells the receiver, which polls. Lines in µs for x bytes: {}.",
            texts.join("; ")
        ),
        then: "1 (in place, interrupt, in the kernel) is 1.3 to 8.7 µs quicker than 5 at every size; polling (3) is quicker than interrupts (2) up to 1 KB; drawn from the lines of table 5",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: then.collect(),
        panels: &PANELS,
        base: WAYS[0].system,
    };
    let records: Vec<Record> = all
        .records(CASE)
        .into_iter()
        .map(|record| Record { case: figure.name, ..record })
        .collect();
    let notes = all.finish().2;
    if let Some(note) = notes.first().filter(|_| records.is_empty()) {
        return Err(Error::new(note.clone()));
    }
    let fits: Vec<Value> = fits.into_iter().map(|(_, fit)| fit).collect();
    figure.save_with(run, &records, json!({ "table 5": fits, "notes": notes }))?;
    Ok(records)
}

/// Measures registrations of memory.
///
/// # Errors
/// Something could not be run or written.
pub fn registration(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "003-registration",
        title: "Paper 003, section 3.1.2, measured again: registration of an area",
        across: "bytes of an area",
        up: "us",
        scale: Scale::Logarithmic,
        now: "Job::register of memory that is there, median of 1000 on a node of a job of two."
            .into(),
        then: "0.579 µs for one entry of the communication path table, which is written and never read",
        then_machine: MACHINE,
        seal: None,
        then_lines: vec![Line {
            name: "about 2000",
            points: AREAS.map(|size| (size as f64, REGISTERED)).into(),
        }],
        panels: &[&["oikaze"]],
        base: "oikaze",
    };
    let lab = Lab::up(PLACE)?;
    let setup = Setup { engines: "inline", waits: "adaptive", without: None };
    let records = figure.measure(run, None, &AREAS, |size| {
        let values = node(&lab, &setup, &role("register", &[("size", size), ("times", 1000)]))?;
        Ok(vec![("oikaze", values.get("register")?)])
    })?;
    drop(lab);
    figure.save(run, &records)?;
    Ok(records)
}
