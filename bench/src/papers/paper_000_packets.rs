//! Repeats figures 5, 6 and 7 of paper 000, and its request of many inputs and outputs.
//!
//! The sender sends 128 packets at once, and the receiver answers with one byte when all have come.
//! T1 is the sender's time until its sends have returned, T2 the rest until the answer, T0 both.
//! Figure 7 has one packet and an answer of the same size. The paper's text gives ratios to Linux,
//! which are drawn from today's packet socket (`AF_PACKET`), the
//! paper's opponent.

use super::Measuring;
use super::plot::{Line, Scale};
use super::report::Figure;
use crate::error::Error;
use crate::lab::Lab;
use crate::placement::PLACE;
use crate::placement::programs::{Setup, Values, node, options, role, sockets};
use crate::process::seal;
use crate::record::Record;

/// Machine of the paper.
pub const MACHINE: &str = "Tender and Linux 2.6.30, gigabit Ethernet, 2010";
const SIZES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];
const QUICK_SIZES: [usize; 3] = [256, 2048, 8192];
/// Number of packets in one measurement of the paper.
const PACKETS: usize = 128;
/// Largest size, at which the paper's text has numbers.
const LARGEST: usize = 8192;
/// Numbers of packets of a request.
const COUNTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const QUICK_COUNTS: [usize; 3] = [1, 16, 128];
/// Bytes of a packet of a request.
const OF_REQUEST: usize = 1024;

/// Programs that follow the paper's procedure.
#[derive(Clone, Copy)]
enum Program {
    /// The application sends by itself.
    Inline,
    /// The engine of the sender has a thread of its own, on the core of the receiver.
    Thread,
    /// Linux as the paper measured it: Ethernet frames by a packet socket.
    Packet,
    Udp,
    Tcp,
}

/// Runs the procedure.
fn packets(
    lab: &Lab,
    program: Program,
    run: &Measuring<'_>,
    of: &[(&str, usize)],
) -> Result<Values, Error> {
    let turns = [("turns", if run.rounds.quick { 50 } else { 300 })];
    let settings = [of, &turns].concat();
    let job = |engines, waits| {
        node(lab, &Setup { engines, waits, without: None }, &role("burst", &settings))
    };
    let over = |protocol: &str| {
        let protocol = ["--protocol".to_owned(), protocol.to_owned()];
        sockets(lab, "burst", &[options(&settings), protocol.into()].concat())
    };
    match program {
        Program::Inline => job("inline", "adaptive"),
        Program::Thread => job("thread:1,inline", "adaptive"),
        Program::Packet => over("packet"),
        Program::Udp => over("udp"),
        Program::Tcp => over("tcp"),
    }
}

fn sizes(run: &Measuring<'_>) -> &'static [usize] {
    if run.rounds.quick { &QUICK_SIZES } else { &SIZES }
}

/// Returns the settings of the paper's 128 packets.
fn many(size: usize) -> [(&'static str, usize); 3] {
    [("packets", PACKETS), ("size", size), ("answer", 1)]
}

/// Describes the hosts.
fn hosts(more: &str) -> String {
    format!(
        "Two network namespaces joined by veth, {PLACE}, one core each; {more} packet: Ethernet frames by a packet socket, as the paper had on Linux. Oikaze and the sockets poll while nothing comes. Mode thread: the sender's engine has the receiver's core."
    )
}

/// Measures figure 5: throughput by size of a packet, from T0.
///
/// # Errors
/// Something could not be run or written.
pub fn throughput(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-figure-5",
        title: "Paper 000, figure 5, measured again: throughput of 128 packets and an answer",
        across: "bytes of a packet or message",
        up: "GB/s",
        scale: Scale::Logarithmic,
        now: hosts("128 packets at once, an answer of one byte, throughput from T0."),
        then: "Linux ahead at small sizes; both stop at about 800 Mbit/s (drawn at the largest size; no other numbers in the text)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: vec![Line { name: "2010, both at most", points: vec![(8192.0, 0.1)] }],
        panels: &[&["oikaze", "oikaze thread", "packet", "udp", "tcp"]],
        base: "packet",
    };
    let programs = [Program::Inline, Program::Thread, Program::Packet, Program::Udp, Program::Tcp];
    figure.measure_in_lab(run, PLACE, sizes(run), |lab, size| {
        let one = |(system, program)| {
            let whole = packets(lab, program, run, &many(size))?.get("t0")?;
            Ok((system, (PACKETS * size) as f64 / whole / 1e3))
        };
        figure.systems().zip(programs).map(one).collect()
    })
}

/// Measures figure 6: T1 and T2 of 128 packets.
///
/// # Errors
/// Something could not be run or written.
pub fn processor(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let mut figure = Figure {
        name: "000-figure-6",
        title: "Paper 000, figure 6, measured again: time of 128 packets",
        across: "bytes of a packet or message",
        up: "us",
        scale: Scale::Logarithmic,
        now: hosts(
            "128 packets at once, an answer of one byte. T1: until the sends have returned; T2: from then on until the answer; processor: the sending thread's processor time of T1. Over veth a send also runs much of the receiver's kernel.",
        ),
        then: "the sender's time T1 on Tender does not grow with the size, and is 3.4 % of Linux's at 8 KiB (no µs in the text; drawn: 3.4 % of today's T1 of the packet socket)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[
            &["oikaze T1", "oikaze thread T1", "packet T1", "udp T1"],
            &["oikaze T2", "oikaze thread T2", "packet T2", "udp T2"],
            &["oikaze processor", "oikaze thread processor", "packet processor", "udp processor"],
        ],
        base: "packet T1",
    };
    let programs = [Program::Inline, Program::Thread, Program::Packet, Program::Udp];
    let lab = Lab::up(PLACE)?;
    let records = figure.measure(run, Some(PLACE), sizes(run), |size| {
        let mut found = Vec::new();
        for (at, program) in programs.into_iter().enumerate() {
            let values = packets(&lab, program, run, &many(size))?;
            found.extend(times(&values, figure.panels, at, &["t1", "t2", "processor"])?);
        }
        Ok(found)
    })?;
    drop(lab);
    let then = scaled(&records, "packet T1", &[0.034]);
    figure.then_lines = then.into_iter().zip(["2010, 3.4 % of packet T1"]).map(line).collect();
    figure.save(run, &records)?;
    Ok(records)
}

/// Measures figure 7: round trip of one packet and an answer of the same size.
///
/// # Errors
/// Something could not be run or written.
pub fn round_trip(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let mut figure = Figure {
        name: "000-figure-7",
        title: "Paper 000, figure 7, measured again: round trip by size",
        across: "bytes of a packet or message, each way",
        up: "us",
        scale: Scale::Logarithmic,
        now: hosts("a message and its answer of the same size; T1: until the send has returned."),
        then: "Linux quicker at small sizes; at 8 KiB Tender takes 63 % less (section 4.5.4) or 37 % less (conclusion); no µs in the text (drawn: these of today's packet socket)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[
            &["oikaze", "oikaze thread", "packet", "udp"],
            &["oikaze T1", "oikaze thread T1", "packet T1", "udp T1"],
        ],
        base: "packet",
    };
    let programs = [Program::Inline, Program::Thread, Program::Packet, Program::Udp];
    let lab = Lab::up(PLACE)?;
    let records = figure.measure(run, Some(PLACE), sizes(run), |size| {
        let mut found = Vec::new();
        let one = [("packets", 1), ("size", size), ("answer", size)];
        for (at, program) in programs.into_iter().enumerate() {
            let values = packets(&lab, program, run, &one)?;
            found.extend(times(&values, figure.panels, at, &["t0", "t1"])?);
        }
        Ok(found)
    })?;
    drop(lab);
    let then = scaled(&records, "packet", &[0.37, 0.63]);
    let names = ["2010, 63 % less than packet", "2010, 37 % less than packet"];
    figure.then_lines = then.into_iter().zip(names).map(line).collect();
    figure.save(run, &records)?;
    Ok(records)
}

/// Returns the times of one program, of which each stands in a panel of its own at the place `at`.
fn times(
    values: &Values,
    panels: &[&[&'static str]],
    at: usize,
    names: &[&str],
) -> Result<Vec<(&'static str, f64)>, Error> {
    let systems = panels.iter().filter_map(|panel| panel.get(at));
    systems.zip(names).map(|(&system, &time)| Ok((system, values.get(time)?))).collect()
}

/// Returns the value of a system at the largest size, times each of these factors.
fn scaled(records: &[Record], system: &str, factors: &[f64]) -> Vec<f64> {
    let largest = records.iter().find(|record| (record.size, record.system) == (LARGEST, system));
    largest
        .map_or_else(Vec::new, |record| factors.iter().map(|times| record.value * times).collect())
}

/// Returns a line of one point, at the largest size.
fn line((value, name): (f64, &'static str)) -> Line {
    Line { name, points: vec![(LARGEST as f64, value)] }
}

/// Measures the paper's request: k outputs and k inputs with one wait, and k requests of one.
///
/// # Errors
/// Something could not be run or written.
pub fn request(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let figure = Figure {
        name: "000-io-request",
        title: "Paper 000, section 4.4: one request of k outputs and k inputs",
        across: "packets of a request, k",
        up: "us",
        scale: Scale::Logarithmic,
        now: hosts(
            "1 KiB a packet, k packets one way and k answers, µs for each packet with its answer. One request: Job::batch of k sends, then one wait for k messages (Job::receive_batch). With positions: k posted receives before that, and one wait for all (Counter).",
        ),
        then: "one request to the kernel and one wake-up for all outputs and inputs of a request (no figure)",
        then_machine: MACHINE,
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[&[
            "oikaze, one request",
            "oikaze, with positions",
            "oikaze, k requests",
            "udp, k and k",
            "udp, one by one",
        ]],
        base: "udp, one by one",
    };
    let counts: &[usize] = if run.rounds.quick { &QUICK_COUNTS } else { &COUNTS };
    figure.measure_in_lab(run, PLACE, counts, |lab, count| {
        let settings =
            [("packets", count), ("size", OF_REQUEST), ("answer", OF_REQUEST), ("answers", count)];
        let turns = [("turns", if run.rounds.quick { 50 } else { 300 })];
        let settings = [&settings[..], &turns].concat();
        let of = |flag: Option<&str>| -> Vec<String> {
            options(&settings).into_iter().chain(flag.map(str::to_owned)).collect()
        };
        let each = Some("--one-by-one");
        let ways =
            [(true, None), (true, Some("--posted")), (true, each), (false, None), (false, each)];
        let setup = Setup { engines: "inline", waits: "adaptive", without: None };
        let mut found = Vec::new();
        for (system, (is_job, flag)) in figure.systems().zip(ways) {
            let arguments = of(flag);
            let values = if is_job {
                node(lab, &setup, &[&["burst".to_owned()], arguments.as_slice()].concat())?
            } else {
                sockets(lab, "burst", &arguments)?
            };
            found.push((system, values.get("t0")? / count as f64));
        }
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_then_are_parts_of_what_linux_takes() {
        let linux = Record { system: "packet", value: 10.0, ..Record::example("a", LARGEST) };
        let found = scaled(&[linux], "packet", &[0.37, 0.63]);
        assert!((found[0] - 3.7).abs() < 1e-9 && (found[1] - 6.3).abs() < 1e-9);
        assert!(scaled(&[], "packet", &[0.37]).is_empty());
    }

    #[test]
    fn a_quick_run_has_some_of_the_sizes() {
        assert!(QUICK_SIZES.iter().all(|size| SIZES.contains(size)));
        assert!(QUICK_COUNTS.iter().all(|count| COUNTS.contains(count)));
        assert_eq!(QUICK_SIZES.last(), Some(&LARGEST), "at which there are numbers of then");
    }
}
