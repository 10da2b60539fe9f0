//! Paper 004, an open question: figure 7 by reliable multicast.
//!
//! The paper wishes for reliable multicast, because its owner sends an update to each node. Here
//! each port of the switch carries 1 Gb/s, so the bytes that the writer sends decide on the time.
//! The size is that of the memory.

use super::barrier::{MTU, measure, perf, positive, sizes};
use crate::error::Error;
use crate::papers::Measuring;
use crate::papers::plot::Scale;
use crate::papers::report::Figure;
use crate::process::seal;
use crate::record::Record;

/// Rate of each port in each direction.
const RATE: &str = "1gbit";
/// Numbers of nodes, and the names of their lines: by multicast, and by unicast. An update to one
/// node is the same by both.
const LINES: [(u32, &str, &str); 7] = [
    (2, "2 nodes, multicast", "2 nodes, unicast"),
    (3, "3 nodes, multicast", "3 nodes, unicast"),
    (4, "4 nodes, multicast", "4 nodes, unicast"),
    (5, "5 nodes, multicast", "5 nodes, unicast"),
    (6, "6 nodes, multicast", "6 nodes, unicast"),
    (7, "7 nodes, multicast", "7 nodes, unicast"),
    (8, "8 nodes, multicast", "8 nodes, unicast"),
];
/// Indices in [`LINES`] of the nodes of a quick run, which the picture shows.
const SHOWN: [usize; 3] = [0, 2, 6];
/// Lines of the picture.
const DRAWN: [&str; 6] = [LINES[0].1, LINES[0].2, LINES[2].1, LINES[2].2, LINES[6].1, LINES[6].2];

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn multicast(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let quick = run.rounds.quick;
    let figure = Figure {
        name: "004-multicast",
        title: "Paper 004's open question: barriers that bring updated memory to all nodes by multicast",
        across: "bytes of updated memory",
        up: "MB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Each node in a network namespace of its own, joined by a bridge whose ports carry {RATE} in each direction, mtu {MTU}: size divided by the median time of a barrier with its update (oikaze perf barrier-update; multicast with OIKAZE_MULTICAST=on). The nodes share this machine's cores."
        ),
        then: "not measured: the paper wishes for reliable multicast",
        then_machine: "Pentium III, gigabit Ethernet, about 2002",
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[&DRAWN],
        base: DRAWN[3],
    };
    measure(&figure, run, blank(quick), |record| one(record, quick))
}

/// Returns a record for each measurement, without values.
fn blank(quick: bool) -> Vec<Record> {
    let mut records = Vec::new();
    let lines = LINES.into_iter().enumerate().filter(|(at, _)| !quick || SHOWN.contains(at));
    for (_, (nodes, multicast, unicast)) in lines {
        for size in sizes(quick) {
            records.extend([multicast, unicast].map(|system| Record {
                bench: "papers",
                case: "004-multicast",
                size,
                system,
                unit: "MB/s",
                mtu: Some(MTU),
                mode: Some(RATE),
                nodes: Some(nodes),
                ..Record::default()
            }));
        }
    }
    records
}

/// Runs one job, and returns its throughput in MB/s.
fn one(record: &Record, quick: bool) -> Result<f64, Error> {
    let is_unicast = LINES.iter().any(|(.., unicast)| *unicast == record.system);
    let on = (!is_unicast).then_some(("OIKAZE_MULTICAST", "on"));
    let iterations = if quick { 80 } else { 240 };
    let line = perf("barrier-update", record, iterations, on.as_slice(), &["--rate", RATE])?;
    // Bytes in a microsecond are megabytes in a second.
    Ok(record.size as f64 / positive(&line, "/latency_us")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_run_has_what_the_picture_shows() {
        let (quick, full) = (blank(true), blank(false));
        assert_eq!((quick.len(), full.len()), (3 * 3 * 2, 7 * 5 * 2));
        for drawn in DRAWN {
            assert!(quick.iter().any(|record| record.system == drawn), "{drawn}");
        }
        for record in &full {
            let nodes = record.nodes.map(|nodes| format!("{nodes} nodes, "));
            assert!(nodes.is_some_and(|nodes| record.system.starts_with(&nodes)), "{record:?}");
        }
    }
}
