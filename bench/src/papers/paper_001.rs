//! Paper 001, figures 5 and 6: throughput and latency of memory-based communication by size, within
//! a page, one transfer at a time. Also the question that the paper leaves open: double buffering.
//!
//! The paper wrote into the memory of another SparcStation 20 through a gigabit channel. Its
//! figures have no numbers, but its text explains them. Each transfer costs about 210 µs of SunOS
//! and goes on at 24 MB/s. The paper's lines are drawn from these two values. The same text expects
//! at most 5 µs from the authors' own operating system.

use super::Measuring;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::lab::Lab;
use crate::placement::PLACE;
use crate::placement::programs::{Setup, Values, node, options, role, sockets};
use crate::process::seal;
use crate::record::Record;

const SIZES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
const QUICK_SIZES: [usize; 4] = [64, 256, 1024, 4096];
const MACHINE: &str = "SparcStation 20, gigabit channel on SBus, SunOS, 1997";
/// Transfers of which the paper gives the mean.
const TRANSFERS: usize = 1024;
/// Transfers of an operation with several under way, whose pipeline must fill.
const MANY: usize = 16 * TRANSFERS;

/// Fixed cost of a transfer in the paper, in µs.
const OVERHEAD: f64 = 210.0;
/// Rate of a transfer in the paper, in bytes per µs.
const RATE: f64 = 24.0;
/// Rate that the paper's bus permits, in bytes per µs, and that double buffering is to reach.
const BUS: f64 = 50.0;

/// Measures figure 5: throughput by size, as the mean of 1024 transfers one at a time.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "001-figure-5",
        title: "Paper 001, figure 5, measured again: throughput of remote writes by size",
        across: "bytes of a transfer",
        up: "GB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, one core each; mean of {TRANSFERS} transfers one at a time, until each put has completed at its sender; udp: a datagram and an answer of one byte. Both sides poll."
        ),
        then: "the smaller a transfer, the lower: about 210 µs of SunOS each, then 24 MB/s (drawn from these)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: vec![then("1997", |size| size / took_then(size) / 1e3)],
        panels: &[&["oikaze", "udp"]],
        base: "udp",
    };
    figure.measure_in_lab(run, PLACE, sizes(run), |lab, size| {
        let mine = transfers(lab, size, TRANSFERS, 1)?.get("each")?;
        let udp = udp(lab, size, 1)?.get("t0")?;
        let rate = |us: f64| size as f64 / us / 1e3;
        Ok(vec![("oikaze", rate(mine)), ("udp", rate(udp))])
    })
}

/// Measures figure 6: time from before the call until the end of the transfer at its receiver.
///
/// # Errors
/// Something could not be run or written.
pub fn latency(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "001-figure-6",
        title: "Paper 001, figure 6, measured again: latency of a remote write by size",
        across: "bytes of a transfer",
        up: "us",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, one core each; from before the call until the receiver sees the last word, by the clock that both share (mean of {TRANSFERS}, one at a time); udp: half of a round trip of the size. Both sides poll."
        ),
        then: "about 210 µs and 1 µs for each 24 bytes (drawn from these); 5 µs at most were expected without SunOS",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: vec![
            then("1997", took_then),
            then("1997, expected overhead", |size| 5.0 + size / RATE),
        ],
        panels: &[&["oikaze", "udp"]],
        base: "udp",
    };
    figure.measure_in_lab(run, PLACE, sizes(run), |lab, size| {
        let mine = transfers(lab, size, TRANSFERS, 1)?.get("one_way")?;
        let udp = udp(lab, size, size)?.get("t0")? / 2.0;
        Ok(vec![("oikaze", mine), ("udp", udp)])
    })
}

/// Windows of the question about double buffering, with the names of their lines.
const WINDOWS: [(usize, &str); 4] = [(1, "one"), (2, "two (double)"), (4, "four"), (16, "sixteen")];

/// Measures what the paper leaves open: throughput with two transfers under way, and with more.
///
/// # Errors
/// Something could not be run or written.
pub fn double_buffering(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "001-double-buffering",
        title: "Paper 001, open question: transfers under way at once",
        across: "bytes of a transfer",
        up: "GB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}, one core each; puts of which at most so many are under way. Both sides poll."
        ),
        then: "24 MB/s with one buffer; double buffering was to reach the 50 MB/s of the bus (drawn without the overhead of SunOS)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: vec![
            then("1997, one buffer", |_| RATE / 1e3),
            then("1997, expected of two", |_| BUS / 1e3),
        ],
        panels: &[&[WINDOWS[0].1, WINDOWS[1].1, WINDOWS[2].1, WINDOWS[3].1]],
        base: WINDOWS[0].1,
    };
    figure.measure_in_lab(run, PLACE, sizes(run), |lab, size| {
        let one = |(window, name)| {
            let each = transfers(lab, size, MANY, window)?.get("each")?;
            Ok((name, size as f64 / each / 1e3))
        };
        WINDOWS.into_iter().map(one).collect()
    })
}

/// Runs puts, at most `window` of them at once.
fn transfers(lab: &Lab, size: usize, count: usize, window: usize) -> Result<Values, Error> {
    let setup = Setup { engines: "inline", waits: "spin", without: None };
    let settings = [("size", size), ("transfers", count), ("window", window)];
    node(lab, &setup, &role("single", &settings))
}

/// Runs datagrams one at a time, each with an answer.
fn udp(lab: &Lab, size: usize, answer: usize) -> Result<Values, Error> {
    let settings = [("packets", 1), ("size", size), ("answer", answer), ("turns", TRANSFERS)];
    sockets(lab, "burst", &options(&settings))
}

fn sizes(run: &Measuring<'_>) -> &'static [usize] {
    if run.rounds.quick { &QUICK_SIZES } else { &SIZES }
}

/// Returns the paper's time for a transfer, in µs.
fn took_then(size: f64) -> f64 {
    OVERHEAD + size / RATE
}

fn then(name: &'static str, value: impl Fn(f64) -> f64) -> Line {
    Line { name, points: SIZES.iter().map(|&size| (size as f64, value(size as f64))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_then_gives_its_lines() {
        // 4096 bytes: 210 µs and 170.7 µs, which is 10.8 MB/s.
        assert!((took_then(4096.0) - 380.67).abs() < 0.01);
        let line = then("1997", |size| size / took_then(size));
        assert!((line.points[7].1 - 10.76).abs() < 0.01);
    }

    #[test]
    fn a_quick_run_has_some_of_the_sizes() {
        assert!(QUICK_SIZES.iter().all(|size| SIZES.contains(size)));
    }
}
