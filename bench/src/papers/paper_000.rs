//! Repeats figures 3, 5, 6 and 7 of paper 000: pages that are exchanged instead of copied, and the
//! effect on packets.
//!
//! In the operating system Tender, the paper exchanged the pages behind two ranges of virtual
//! memory. With these exchanges, it sent packets of up to 8 KiB over gigabit Ethernet. Its text
//! gives only ratios and one throughput for the figures. A result of the paper without a number is
//! quoted and not drawn.

use super::Run;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::exchange::pools::{Act, POOL, Pools};
use crate::lab::{Place, WireMode};
use crate::peers::System;
use crate::peers::floor::Floor;
use crate::peers::oikaze::Oikaze;
use crate::peers::tcp::Tcp;
use crate::record::Record;
use crate::suite::case::{KIB, MIB, Test};
use oikaze::memory::PageSize;

/// Sizes of figure 3. The paper's sizes end at 8 KiB.
const PAGES: [usize; 8] = [4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 8 * MIB];
const SIZES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];
const QUICK_SIZES: [usize; 3] = [256, 2048, 8192];
const PLACE: Place = Place::Wire { mtu: 9000, mode: WireMode::Wire };
const OIKAZE: Oikaze = Oikaze { seal: "crc", class: "unordered" };
const FLOOR: Floor = Floor { checked: false };
const MACHINE: &str = "Tender and Linux 2.6.30, gigabit Ethernet, 2010";
/// Number of packets in one measurement of the paper.
const PACKETS: usize = 128;

/// Measures figure 3: exchanges of pages and copies of their bytes.
///
/// # Errors
/// Something could not be run or written.
pub fn exchange(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-figure-3",
        title: "Paper 000, figure 3, measured again: exchanging pages and copying bytes",
        across: "bytes",
        up: "us",
        scale: Scale::Logarithmic,
        now: "In one process, pools of 512 MiB; one word a page is read afterwards.".into(),
        then: "exchange 2.8 times as fast as copy at 4 KiB, 4.8 times at 8 KiB; below a page copy is faster (no µs in the text)",
        then_machine: MACHINE,
        then_lines: Vec::new(),
        systems: &["copy", "exchange", "exchange, huge pages"],
        base: "copy",
    };
    let pools = |pages| Pools::new(pages).map_err(|why| Error::new(format!("making pools: {why}")));
    let (small, huge) = (pools(PageSize::Small)?, pools(PageSize::Huge)?);
    let volume = if run.rounds.quick { POOL / 4 } else { POOL };
    let records = figure.measure(run, None, &PAGES, |size| {
        let of = |pools: &Pools, act| {
            pools
                .measure(act, size, volume, false)
                .map_err(|why| Error::new(format!("{size} bytes: {why}")))
        };
        let mut found =
            vec![("copy", of(&small, Act::Copy)?), ("exchange", of(&small, Act::Exchange)?)];
        if size >= 2 * MIB {
            found.push(("exchange, huge pages", of(&huge, Act::Exchange)?));
        }
        Ok(found)
    })?;
    figure.save(run, &records)?;
    Ok(records)
}

/// Measures figure 5: throughput by size of a packet.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-figure-5",
        title: "Paper 000, figure 5, measured again: throughput by size of a packet",
        across: "bytes of a packet or message",
        up: "GB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; many messages in flight, not {PACKETS}."
        ),
        then: "Linux ahead at small sizes; both stop at about 800 Mbit/s (drawn at the largest size; no other numbers in the text)",
        then_machine: MACHINE,
        then_lines: vec![Line { name: "2010, both at most", points: vec![(8192.0, 0.1)] }],
        systems: &["oikaze", "tcp", "floor-udp"],
        base: "tcp",
    };
    draw(run, &figure, &[&OIKAZE, &Tcp, &FLOOR], Test::MessageBandwidth, |_, value| value)
}

/// Measures figure 6: processor time by size of a packet. The paper separates the sender's
/// processor time (T1) from the rest (T2). Here the times of both sides are added.
///
/// # Errors
/// Something could not be run or written.
pub fn processor(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-figure-6",
        title: "Paper 000, figure 6, measured again: processor time of 128 packets",
        across: "bytes of a packet or message",
        up: "us",
        scale: Scale::Logarithmic,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; user and system time of both sides together."
        ),
        then: "the sender's time on Tender does not grow with the size, and is 3.4 % of Linux's at 8 KiB (no µs in the text)",
        then_machine: MACHINE,
        then_lines: Vec::new(),
        systems: &["oikaze", "tcp"],
        base: "tcp",
    };
    // Converts from seconds per GiB.
    let of_packets =
        |size: usize, value: f64| value * 1e6 * (size * PACKETS) as f64 / (1_u64 << 30) as f64;
    draw(run, &figure, &[&OIKAZE, &Tcp], Test::Processor, of_packets)
}

/// Measures figure 7: round trip by size of a packet.
///
/// # Errors
/// Something could not be run or written.
pub fn round_trip(run: &Run) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-figure-7",
        title: "Paper 000, figure 7, measured again: round trip by size",
        across: "bytes of a packet or message, each way",
        up: "us",
        scale: Scale::Linear,
        now: format!(
            "Two network namespaces joined by veth, {PLACE}; a message and its answer of the same size."
        ),
        then: "Linux quicker at small sizes; at 8 KiB Tender takes 63 % less (section 4.5.4) or 37 % less (conclusion); no µs in the text",
        then_machine: MACHINE,
        then_lines: Vec::new(),
        systems: &["oikaze", "tcp", "floor-udp"],
        base: "tcp",
    };
    draw(run, &figure, &[&OIKAZE, &Tcp, &FLOOR], Test::MessageLatency, |_, half| 2.0 * half)
}

fn draw(
    run: &Run,
    figure: &Figure,
    systems: &[&'static dyn System],
    test: Test,
    value: impl Fn(usize, f64) -> f64,
) -> Result<Vec<Record>, Error> {
    let (sizes, operations): (&[usize], usize) =
        if run.rounds.quick { (&QUICK_SIZES, 100_000) } else { (&SIZES, 400_000) };
    figure.compare(run, (PLACE, sizes), (systems, test), operations, value)
}
