//! Repeats figure 3 of paper 000: pages that are exchanged instead of copied.
//!
//! In the operating system Tender, the paper exchanged the pages behind two ranges of virtual
//! memory. Its text gives ratios to a copy, which are drawn from today's copy. Two lines show why
//! arriving bytes and small pages of other processes are copied here: `install` maps a page that
//! has arrived, and `exchange of processes` exchanges pages of two processes.

use std::time::Duration;

use super::Measuring;
use super::paper_000_packets::MACHINE;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::exchange::pools::{Act, POOL, Pools};
use crate::peers::oikaze::program;
use crate::process::{alone, limited};
use crate::record::Record;
use crate::suite::case::{KIB, MIB};
use oikaze::memory::PageSize;

/// Sizes of figure 3. The paper's sizes end at 8 KiB.
const PAGES: [usize; 8] = [4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 8 * MIB];
/// Sizes of exchanges between two processes.
const BETWEEN: [usize; 4] = [4 * KIB, 64 * KIB, 256 * KIB, 2 * MIB];
/// Ratios of the paper: size, and how many times as fast as a copy an exchange is.
const RATIOS: [(usize, f64); 2] = [(4 * KIB, 2.8), (8 * KIB, 4.8)];
/// Time limit of exchanges between processes.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures figure 3: exchanges of pages and copies of their bytes.
///
/// # Errors
/// Something could not be run or written.
pub fn exchange(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let mut figure = Figure {
        name: "000-figure-3",
        title: "Paper 000, figure 3, measured again: exchanging pages and copying bytes",
        across: "bytes",
        up: "us",
        scale: Scale::Logarithmic,
        now: "In one process, pools of 512 MiB; one word a page is read afterwards. Why bytes that arrive are not exchanged: a page that has arrived would be mapped (install), which is slower than a copy until far beyond a page. Why small pages of two processes are not either (exchange of processes: get, put and copy below 2 MiB, remapping of huge pages from there on; median of oikaze perf exchange --shared): only whole huge pages of shared memory can change place there.".into(),
        then: "exchange 2.8 times as fast as copy at 4 KiB, 4.8 times at 8 KiB, and slower at small sizes, at a constant time within a page (no µs in the text; drawn: today's copy divided by these ratios)",
        then_machine: MACHINE,
        seal: None,
        then_lines: Vec::new(),
        panels: &[&["copy", "exchange", "exchange, huge pages", "install", "exchange of processes"]],
        base: "copy",
    };
    let (small, huge) = (Pools::new(PageSize::Small)?, Pools::new(PageSize::Huge)?);
    let volume = if run.rounds.quick { POOL / 4 } else { POOL };
    let records = figure.measure(run, None, &PAGES, |size| {
        let of = |pools: &Pools, act| {
            pools
                .measure(act, size, volume, false)
                .map_err(|why| Error::new(format!("{size} bytes: {why}")))
        };
        let mut found =
            vec![("copy", of(&small, Act::Copy)?), ("exchange", of(&small, Act::Exchange)?)];
        found.push(("install", of(&small, Act::Install)?));
        if BETWEEN.contains(&size) {
            found.push(("exchange of processes", between_processes(size)?));
        }
        if size >= 2 * MIB {
            found.push(("exchange, huge pages", of(&huge, Act::Exchange)?));
        }
        Ok(found)
    })?;
    figure.then_lines = vec![Line { name: "2010, of today's copy", points: ratios(&records) }];
    figure.save(run, &records)?;
    Ok(records)
}

/// Returns the time that an exchange would take by the paper's ratios to a copy.
fn ratios(records: &[Record]) -> Vec<(f64, f64)> {
    let copy = |size| records.iter().find(|record| (record.size, record.system) == (size, "copy"));
    let then = |(size, times): (usize, f64)| Some((size as f64, copy(size)?.value / times));
    RATIOS.into_iter().filter_map(then).collect()
}

/// Returns the µs of an exchange of pages between two processes of this machine.
fn between_processes(size: usize) -> Result<f64, Error> {
    let mut command = limited(LIMIT, program()?);
    command.args(["perf", "exchange", "--shared", "--json", "--iterations", "200"]);
    command.args(["--size", &size.to_string()]);
    let printed = alone(command)?;
    let line = printed.lines().find_map(|line| {
        serde_json::from_str::<serde_json::Value>(line.get(line.find('{')?..)?).ok()
    });
    line.and_then(|line| line["latency_us"].as_f64())
        .ok_or_else(|| Error::new(format!("oikaze perf printed no time: {}", printed.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_copy() {
        let copy = |size, value| Record { system: "copy", value, ..Record::example("a", size) };
        let found = ratios(&[copy(4096, 2.8), copy(8192, 9.6)]);
        assert_eq!(found.len(), 2);
        assert!((found[0].1 - 1.0).abs() < 1e-9 && (found[1].1 - 2.0).abs() < 1e-9);
    }
}
