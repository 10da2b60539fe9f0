//! Paper 004, an open question: deliveries of updates at a reader that computes.
//!
//! In figure 7 every node waits in the barrier, so placing memory costs nobody time that it could
//! use. Here the updates reach a node that works (`oikaze perf update-reader`). The figure shows
//! its processor time for each update beyond the work, and how much longer a round of work takes.

use super::barrier::{MTU, QUICK_DELIVERIES, perf, positive, sizes};
use crate::dsm::DELIVERIES;
use crate::error::Error;
use crate::lab::{Lab, Place};
use crate::papers::Measuring;
use crate::papers::plot::Scale;
use crate::papers::report::Figure;
use crate::process::seal;
use crate::record::Record;

/// Names of the lines, in the order of [`DELIVERIES`]: processor time.
const PROCESSOR: [&str; DELIVERIES.len()] = [
    "processor, direct map",
    "processor, header through",
    "processor, message through",
    "processor, diff decode",
    "processor, header through diff decode",
];
/// Names of the lines, in the same order: time of a round beyond the work.
const DELAY: [&str; DELIVERIES.len()] = [
    "delay, direct map",
    "delay, header through",
    "delay, message through",
    "delay, diff decode",
    "delay, header through diff decode",
];

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn reader(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let quick = run.rounds.quick;
    let figure = Figure {
        name: "004-reader",
        title: "Paper 004's open question: updates at a reader that computes",
        across: "bytes of updated memory",
        up: "µs",
        scale: Scale::Logarithmic,
        now: format!(
            "Two nodes, each in a network namespace of its own with a core of its own, mtu {MTU}. One writes and notifies, the other computes for a fixed number of steps, waits and reads (oikaze perf update-reader). Processor: the reader's processor time for an update beyond that of the work alone. Delay: median time of a round minus that of the work alone."
        ),
        then: "not measured: in the paper, all nodes wait in the barrier",
        then_machine: "Pentium III, gigabit Ethernet, about 2002",
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[&PROCESSOR, &DELAY],
        base: PROCESSOR[2],
    };
    // Holds the lock of the benches. The launcher makes the namespaces.
    let lab = Lab::up(Place::Here)?;
    let sizes: Vec<usize> = sizes(quick).collect();
    let records = figure.measure(run, None, &sizes, |size| one_round(size, quick))?;
    drop(lab);
    figure.save(run, &records)?;
    Ok(records)
}

/// Measures all deliveries with one size, one after the other.
fn one_round(size: usize, quick: bool) -> Result<Vec<(&'static str, f64)>, Error> {
    let mut all = Vec::new();
    let lines = DELIVERIES.into_iter().zip(PROCESSOR.into_iter().zip(DELAY));
    for (at, (delivery, (processor, delay))) in lines.enumerate() {
        if quick && !QUICK_DELIVERIES.contains(&at) {
            continue;
        }
        let job = Record { size, nodes: Some(2), delivery: Some(delivery), ..Record::default() };
        let line = perf("update-reader", &job, if quick { 100 } else { 400 }, &[], &[])?;
        let seconds = positive(&line, "/other_processor_seconds_per_gib")?;
        all.push((processor, seconds * size as f64 / f64::from(1 << 30) * 1e6));
        let alone = positive(&line, "/reference/latency_us")?;
        all.push((delay, (positive(&line, "/latency_us")? - alone).max(0.0)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_in_the_order_of_deliveries() {
        for (at, delivery) in DELIVERIES.iter().enumerate() {
            let delivery = delivery.replace("direct_diff", "diff").replace('_', " ");
            assert_eq!(PROCESSOR[at], format!("processor, {delivery}"));
            assert_eq!(DELAY[at], format!("delay, {delivery}"));
        }
    }
}
