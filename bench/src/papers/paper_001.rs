//! Paper 001, figures 5 and 6: throughput and latency of memory-based communication by size, within
//! a page.
//!
//! The paper wrote into the memory of another SparcStation 20 through a gigabit channel. Its
//! figures have no numbers, but its text explains them. Each transfer costs about 210 µs of SunOS
//! and goes on at 24 MB/s. The paper's lines are drawn from these two values. The same text expects
//! at most 5 µs from the authors' own operating system.

use super::Run;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::lab::{Place, WireMode};
use crate::peers::System;
use crate::peers::floor::Floor;
use crate::peers::oikaze::Oikaze;
use crate::peers::ucx::Ucx;
use crate::record::Record;
use crate::suite::case::Test;

const SIZES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
const QUICK_SIZES: [usize; 4] = [64, 256, 1024, 4096];
const PLACE: Place = Place::Wire { mtu: 9000, mode: WireMode::Wire };
const OIKAZE: Oikaze = Oikaze { seal: "crc", class: "unordered" };
const FLOOR: Floor = Floor { checked: false };
const MACHINE: &str = "SparcStation 20, gigabit channel on SBus, SunOS, 1997";

/// Fixed cost of a transfer in the paper, in µs.
const OVERHEAD: f64 = 210.0;
/// Rate of a transfer in the paper, in bytes per µs.
const RATE: f64 = 24.0;

/// Measures figure 5: throughput by size.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "001-figure-5",
        title: "Paper 001, figure 5, measured again: throughput of remote writes by size",
        across: "bytes of a transfer",
        up: "GB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; many writes in flight; one of then at a time."
        ),
        then: "the smaller a transfer, the lower: about 210 µs of SunOS each, then 24 MB/s (drawn from these)",
        then_machine: MACHINE,
        then_lines: vec![then(|size| size / took_then(size) / 1e3)],
        systems: &["oikaze", "ucx-tcp"],
        base: "ucx-tcp",
    };
    draw(run, &figure, &[&OIKAZE, &Ucx::TCP], Test::PutBandwidth)
}

/// Measures figure 6: latency by size.
///
/// # Errors
/// Something could not be run or written.
pub fn latency(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "001-figure-6",
        title: "Paper 001, figure 6, measured again: latency of a remote write by size",
        across: "bytes of a transfer",
        up: "us",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; half of a write and the write that answers it."
        ),
        then: "about 210 µs and 1 µs for each 24 bytes (drawn from these); 5 µs at most were expected without SunOS",
        then_machine: MACHINE,
        then_lines: vec![then(took_then)],
        systems: &["oikaze", "ucx-tcp", "floor-udp"],
        base: "floor-udp",
    };
    draw(run, &figure, &[&OIKAZE, &Ucx::TCP, &FLOOR], Test::PutLatency)
}

/// Returns the paper's time for a transfer, in µs.
fn took_then(size: f64) -> f64 {
    OVERHEAD + size / RATE
}

fn then(value: impl Fn(f64) -> f64) -> Line {
    Line {
        name: "1997",
        points: SIZES.iter().map(|&size| (size as f64, value(size as f64))).collect(),
    }
}

fn draw(
    run: &Run,
    figure: &Figure,
    systems: &[&'static dyn System],
    test: Test,
) -> Result<Vec<Record>, Error> {
    let sizes: &[usize] = if run.rounds.quick { &QUICK_SIZES } else { &SIZES };
    figure.compare(run, (PLACE, sizes), (systems, test), 200_000, |_, value| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_then_gives_its_lines() {
        // 4096 bytes: 210 µs and 170.7 µs, which is 10.8 MB/s.
        assert!((took_then(4096.0) - 380.67).abs() < 0.01);
        let line = then(|size| size / took_then(size));
        assert!((line.points[7].1 - 10.76).abs() < 0.01);
    }

    #[test]
    fn a_quick_run_has_some_of_the_sizes() {
        assert!(QUICK_SIZES.iter().all(|size| SIZES.contains(size)));
    }
}
