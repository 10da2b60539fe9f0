//! Paper 004, figure 6: throughput of TCP, UDP and Wind by size of what is sent.
//!
//! The paper measured on Pentium III machines with gigabit Ethernet, Wind's asynchronous messages that are reliable only (ours:
//! unordered). Its text gives no numbers for the figure, but what it found is plain: TCP highest nearly throughout, because it
//! packs up to the MTU and merges acknowledgements; Wind about equal to UDP as received; UDP as sent above UDP as received by
//! what was lost.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::Run;
use super::plot::{Line, Plot};
use crate::error::{Error, Tried};
use crate::lab::{Lab, Place, WireMode};
use crate::peers::oikaze::Oikaze;
use crate::peers::tcp::Tcp;
use crate::peers::{Effort, System, udp};
use crate::record::{Record, median, table, write_lines};
use crate::suite::case::{Case, Test};
use crate::suite::{machine, warn_if_busy};

/// As in the paper's table 2 (the largest is what a datagram holds).
const SIZES: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, udp::LARGEST];
const QUICK_SIZES: [usize; 5] = [64, 256, 1024, 8192, 32_768];
/// The frames of the paper's network.
const MTU: u16 = 1500;
const FIGURE: &str = "004-figure-6";
const OLD: &str = "TCP highest nearly throughout; Wind about equal to UDP (received); UDP (sent) above UDP (received)";
const OLD_MACHINE: &str = "Pentium III, gigabit Ethernet, about 2002";

/// The lines, in the order in which they are drawn.
const SYSTEMS: [&str; 5] = ["tcp", "udp-sent", "udp-received", "oikaze", "oikaze-unchecked"];

const WIND: Oikaze = Oikaze { checked: true, class: "unordered" };
const WIND_UNCHECKED: Oikaze = Oikaze { checked: false, class: "unordered" };

/// Measures and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Run) -> Result<(), Error> {
    WIND.present()?;
    warn_if_busy();
    let sizes: &[usize] = if run.quick { &QUICK_SIZES } else { &SIZES };
    let mut records = blank(sizes);
    let lab = Lab::up(Place::Wire { mtu: MTU, mode: WireMode::Wire })?;
    for round in 1..=run.rounds {
        eprintln!("paper 004, round {round} of {}", run.rounds);
        for &size in sizes {
            for (system, value) in one_round(&lab, size, run.quick)? {
                let same = |record: &&mut Record| (record.size, record.system) == (size, system);
                records.iter_mut().find(same).into_iter().for_each(|record| record.rounds.push(value));
            }
        }
    }
    drop(lab);
    for record in &mut records {
        record.value = median(&record.rounds).unwrap_or_default();
    }
    write_lines(&records, run.json.as_deref())?;
    print!("{}", table(&records, "udp-received"));
    save(run, &records)
}

fn blank(sizes: &[usize]) -> Vec<Record> {
    let record = |size, system| Record {
        bench: "papers",
        case: FIGURE,
        size,
        system,
        value: 0.0,
        unit: "GB/s",
        rounds: Vec::new(),
        mtu: Some(MTU),
        mode: Some(WireMode::Wire.name()),
        threads: None,
    };
    sizes.iter().flat_map(|&size| SYSTEMS.map(|system| record(size, system))).collect()
}

/// All systems with one size, in turn.
fn one_round(lab: &Lab, size: usize, quick: bool) -> Result<[(&'static str, f64); 5], Error> {
    let operations = if quick { 50_000 } else { 300_000 };
    let volume = (size * operations).min(if quick { 128 << 20 } else { 512 << 20 });
    let effort = Effort { volume, ..Effort::QUICK };
    let case = Case { test: Test::MessageBandwidth, size };
    let of = |system: &dyn System| -> Result<f64, Error> {
        let found = system.measure(lab, case, effort)?;
        found.first().map(|&(_, value)| value).ok_or_else(|| Error::new(format!("{} has found nothing", system.name())))
    };
    let (sent, received) = udp::flood(lab, size, Duration::from_millis(if quick { 100 } else { 300 }))?;
    let [tcp, udp_sent, udp_received, wind, unchecked] = SYSTEMS;
    Ok([(tcp, of(&Tcp)?), (udp_sent, sent), (udp_received, received), (wind, of(&WIND)?), (unchecked, of(&WIND_UNCHECKED)?)])
}

/// One JSON object with all that a reader must know, and the picture.
fn save(run: &Run, records: &[Record]) -> Result<(), Error> {
    let (date, machine) = (today(), machine());
    let all = json!({
        "paper": "004", "figure": 6, "date": date, "machine": machine,
        "wire": format!("veth between two network namespaces, MTU {MTU}, every datagram really formed"),
        "old": { "found": OLD, "machine": OLD_MACHINE },
        "records": records,
    });
    let text = serde_json::to_string_pretty(&all).map_err(|why| Error::new(format!("writing JSON: {why}")))?;
    let lines = SYSTEMS.map(|system| Line {
        name: system,
        points: records
            .iter()
            .filter(|record| record.system == system)
            .map(|record| (record.size as f64, record.value))
            .collect(),
    });
    let plot = Plot {
        title: "Paper 004, figure 6, measured again: throughput by size",
        across: "bytes of a message, datagram or call",
        up: "GB/s",
        notes: vec![format!("Now ({date}): {machine} MTU {MTU}."), format!("Then ({OLD_MACHINE}): {OLD}.")],
        lines: lines.into(),
    };
    for (ending, text) in [("json", text + "\n"), ("svg", plot.svg())] {
        let file = run.out.join(format!("{FIGURE}.{ending}"));
        std::fs::write(&file, text).tried(format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// The date in UTC, as ISO 8601 writes it.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a day counted from 1970-01-01: in years that begin in March leap days come last (Hinnant,
/// "chrono-compatible low-level date algorithms", `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(civil(365), (1971, 1, 1));
    }

    #[test]
    fn every_size_has_every_system() {
        assert_eq!(blank(&SIZES).len(), SIZES.len() * SYSTEMS.len());
        assert!(QUICK_SIZES.iter().all(|size| SIZES.contains(size)));
    }
}
