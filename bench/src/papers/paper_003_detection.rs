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
/// All ways. The paper's lines stand in a panel of their own.
const PANELS: [&[&str]; 1] =
    [&[WAYS[0].system, WAYS[1].system, WAYS[2].system, WAYS[3].system, WAYS[4].system]];

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
            let then: Vec<String> =
                way.then.iter().map(|(name, then)| format!("{name}: {then}")).collect();
            let text = match then.as_slice() {
                [] => format!("{}: {now}", way.system),
                then => format!("{}: {now} ({})", way.system, then.join(", ")),
            };
            Some((text, json!({ "way": way.system, "now": now.to_string(), "then": then })))
        })
        .collect();
    let texts: Vec<&str> = fits.iter().map(|(text, _)| text.as_str()).collect();
    let then = WAYS.iter().flat_map(|way| way.then).map(|&(name, then)| Line {
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
            "Two network namespaces joined by veth, {PLACE}, one core each; puts there and back, all turns by the clock, one way. Up to these sizes a put is one datagram, which is received elsewhere and copied, so in place and bounce are the same here (003-placement compares them). Second message: the sender looks every 10 µs for the completion, then tells the receiver, which polls. Lines in µs for x bytes: {}.",
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

/// Sizes of transfers that take several datagrams, which may be received in place.
const PLACED: [usize; 6] = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB];
const QUICK_PLACED: [usize; 3] = [64 * KIB, 512 * KIB, 2 * MIB];
/// Bytes that one measurement of a size moves each way, in a quick run and in a full one.
const PLACED_VOLUME: [usize; 2] = [256 * MIB, 1024 * MIB];

/// Measures transfers that are received in place, and that are received elsewhere and copied: the
/// paper's cases 1 and 2, at sizes at which they differ here.
///
/// # Errors
/// Something could not be run or written.
pub fn placement(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let seal = seal();
    let figure = Figure {
        name: "003-placement",
        title: "Paper 003, figure 4, at larger sizes: received in place, and by a bounce buffer",
        across: "bytes of a transfer",
        up: "us",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, one core each; puts there and back, all turns by the clock, one way. Bounce: received elsewhere and copied (OIKAZE_WITHOUT=direct-placement). With the seals full and integrity every datagram is received elsewhere."
        ),
        then: "up to 4 KiB: in place with an interrupt (case 1) 33 µs quicker than by a bounce buffer (case 2), and 6 ns a byte",
        then_machine: MACHINE,
        seal: Some(seal),
        then_lines: Vec::new(),
        panels: &[&["in place, spin", "bounce, spin", "in place, block", "bounce, block"]],
        base: "bounce, spin",
    };
    let sizes: &[usize] = if run.rounds.quick { &QUICK_PLACED } else { &PLACED };
    let volume = PLACED_VOLUME[usize::from(!run.rounds.quick)];
    figure.measure_in_lab(run, PLACE, sizes, |lab, size| {
        let bounces = Some("direct-placement");
        let ways = [("spin", None), ("spin", bounces), ("block", None), ("block", bounces)];
        let role = role("ping", &[("size", size), ("turns", volume / size)]);
        let one = |(system, (waits, without))| {
            let setup = Setup { engines: "inline", waits, without };
            Ok((system, node(lab, &setup, &role)?.get("one_way")?))
        };
        figure.systems().zip(ways).map(one).collect()
    })
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
