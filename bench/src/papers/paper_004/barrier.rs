//! Paper 004, figure 7: barriers that bring updated memory to all nodes.
//!
//! In Fagus, nodes tell the owner that they have come to the barrier. The owner then sends the
//! updated memory to all others. With Wind, which places the memory itself (*direct map*), every
//! number of nodes that the paper measured was faster than with the ordinary path (here: *message
//! through*). The paper's text has no numbers for the figure. The size is that of the memory.

use std::time::Duration;

use serde_json::Value;

use crate::dsm::{DELIVERIES, UPDATE_SIZES};
use crate::error::{Error, Tried};
use crate::lab::{Lab, Place};
use crate::papers::Measuring;
use crate::papers::plot::Scale;
use crate::papers::report::Figure;
use crate::peers::oikaze;
use crate::process::{alone, limited, seal};
use crate::record::{Record, median};

/// Numbers of nodes.
const NODES: [u32; 7] = [2, 3, 4, 5, 6, 7, 8];
/// Numbers of nodes that a quick run measures, and that the picture shows.
const SHOWN: [u32; 3] = [2, 4, 8];
/// Indices in [`UPDATE_SIZES`] of the sizes of a quick run.
const QUICK_SIZES: [usize; 3] = [0, 2, 4];
/// Deliveries of a quick run, which the pictures show: Wind's, and the ordinary path.
pub(super) const QUICK_DELIVERIES: [usize; 2] = [0, 2];
/// Time limit of one job.
const LIMIT: Duration = Duration::from_secs(60);
/// MTU of the cables between the nodes.
pub(super) const MTU: u16 = 9000;

/// Declares the names of lines: for each of these words, in the order of [`DELIVERIES`].
macro_rules! names {
    ($($word:literal),*) => {
        [$([
            concat!($word, ", direct map"),
            concat!($word, ", header through"),
            concat!($word, ", message through"),
            concat!($word, ", diff decode"),
            concat!($word, ", header through diff decode"),
        ]),*]
    };
}
pub(super) use names;

/// Names of the lines, by number of nodes and delivery.
const NAMES: [[&str; DELIVERIES.len()]; NODES.len()] =
    names!("2 nodes", "3 nodes", "4 nodes", "5 nodes", "6 nodes", "7 nodes", "8 nodes");
/// Lines of the picture: with Wind's delivery, and by the ordinary path.
const DRAWN: [&str; 6] =
    [NAMES[0][0], NAMES[0][2], NAMES[2][0], NAMES[2][2], NAMES[6][0], NAMES[6][2]];

/// Measures the figure and draws it.
///
/// # Errors
/// Something could not be run or written.
pub fn updates(run: &Measuring<'_>) -> Result<Vec<Record>, Error> {
    let quick = run.rounds.quick;
    let cores = cores()?;
    let figure = Figure {
        name: "004-figure-7",
        title: "Paper 004, figure 7, measured again: barriers that bring updated memory to all nodes",
        across: "bytes of updated memory",
        up: "MB/s",
        scale: Scale::Logarithmic,
        now: format!(
            "Each node in a network namespace of its own, joined by a bridge, mtu {MTU}: size divided by the median time of a barrier with its update (oikaze perf barrier-update). The machine has {cores} cores: jobs of more nodes are oversubscribed (mode oversubscribed), and their times are mostly those of changes between processes."
        ),
        then: "direct delivery by Wind is faster than the ordinary path for every number of nodes",
        then_machine: "Pentium III, gigabit Ethernet, about 2002",
        seal: Some(seal()),
        then_lines: Vec::new(),
        panels: &[&DRAWN],
        base: DRAWN[1],
    };
    measure(&figure, run, blank(quick, cores), |record| one(record, None, quick))
}

/// Measures all records in turn, once in each round, and draws the figure.
pub(super) fn measure(
    figure: &Figure,
    run: &Measuring<'_>,
    mut records: Vec<Record>,
    one: impl Fn(&Record) -> Result<f64, Error>,
) -> Result<Vec<Record>, Error> {
    // Holds the lock of the benches. The launcher makes the namespaces.
    let lab = Lab::up(Place::Here)?;
    for round in 1..=run.rounds.count {
        eprintln!("{}, round {round} of {}", figure.name, run.rounds.count);
        for record in &mut records {
            let value = one(record)?;
            record.rounds.push(value);
        }
    }
    for record in &mut records {
        record.value = median(&record.rounds).unwrap_or_default();
    }
    drop(lab);
    figure.save(run, &records)?;
    Ok(records)
}

fn cores() -> Result<u32, Error> {
    let cores = std::thread::available_parallelism().tried("counting this machine's cores")?;
    Ok(u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// Returns a record for each measurement, without values.
fn blank(quick: bool, cores: u32) -> Vec<Record> {
    let mut records = Vec::new();
    let shown = |nodes: &u32| !quick || SHOWN.contains(nodes);
    for (nodes, names) in NODES.into_iter().zip(NAMES).filter(|(nodes, _)| shown(nodes)) {
        let mode = if nodes > cores { "oversubscribed" } else { "a core for each node" };
        for size in sizes(quick) {
            records.extend(blank_records("004-figure-7", size, nodes, mode, names, quick));
        }
    }
    records
}

/// Returns the sizes of updates.
pub(super) fn sizes(quick: bool) -> impl Iterator<Item = usize> {
    let sizes = UPDATE_SIZES.into_iter().enumerate();
    sizes.filter(move |(at, _)| !quick || QUICK_SIZES.contains(at)).map(|(_, size)| size)
}

/// Returns a record of each delivery, without values. `names` are the names of the lines.
pub(super) fn blank_records(
    case: &'static str,
    size: usize,
    nodes: u32,
    mode: &'static str,
    names: [&'static str; DELIVERIES.len()],
    quick: bool,
) -> impl Iterator<Item = Record> {
    let deliveries = DELIVERIES.into_iter().zip(names).enumerate();
    let shown = deliveries.filter(move |(at, _)| !quick || QUICK_DELIVERIES.contains(at));
    shown.map(move |(_, (delivery, system))| Record {
        bench: "papers",
        case,
        size,
        system,
        unit: "MB/s",
        mtu: Some(MTU),
        mode: Some(mode),
        nodes: Some(nodes),
        delivery: Some(delivery),
        ..Record::default()
    })
}

/// Runs one job whose updates have a class, and returns its throughput in MB/s.
pub(super) fn one(record: &Record, class: Option<&str>, quick: bool) -> Result<f64, Error> {
    // As many barriers for each number of nodes.
    let iterations = if quick { 160 } else { 800 };
    let settings = class.map(|class| ("OIKAZE_UPDATE_CLASS", class));
    let line = perf("barrier-update", record, iterations, settings.as_slice(), &[])?;
    // Bytes in a microsecond are megabytes in a second.
    Ok(record.size as f64 / positive(&line, "/latency_us")?)
}

/// Runs `oikaze perf` with the record's size, nodes and delivery, each node in a network namespace
/// of its own. Returns the line that it prints. `settings` are environment variables, and
/// `launcher` are further arguments of `oikaze run`.
pub(super) fn perf(
    test: &str,
    record: &Record,
    iterations: u32,
    settings: &[(&str, &str)],
    launcher: &[&str],
) -> Result<Value, Error> {
    let cores = cores()?;
    let oikaze = oikaze::program()?;
    let nodes = record.nodes.unwrap_or(2);
    let mut command = limited(LIMIT, &oikaze);
    command.envs(record.delivery.map(|delivery| ("OIKAZE_DELIVERY", delivery)));
    command.envs(settings.iter().copied());
    command.args(["run", "--no-prefix", "--seal", &seal(), "--netns", "--mtu", &MTU.to_string()]);
    command.args(launcher).args(["-n", &nodes.to_string(), "--", "sh", "-c"]);
    // Each node has a core, as far as there are cores.
    command.arg(format!("exec taskset -c $((OIKAZE_RANK % {cores})) \"$0\" \"$@\"")).arg(&oikaze);
    command.args(["perf", test, "--json", "--size", &record.size.to_string()]);
    command.args(["--iterations", &iterations.to_string()]);
    let printed = alone(command)?;
    printed
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| Error::new(format!("oikaze perf printed no result: {}", printed.trim())))
}

/// Returns a positive number of a line of `oikaze perf`.
pub(super) fn positive(line: &Value, pointer: &str) -> Result<f64, Error> {
    let value = line.pointer(pointer).and_then(Value::as_f64).filter(|value| *value > 0.0);
    value.ok_or_else(|| Error::new(format!("oikaze perf printed no {pointer}: {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_nodes_and_deliveries() {
        for (nodes, names) in NODES.into_iter().zip(NAMES) {
            assert!(names.iter().all(|name| name.starts_with(&nodes.to_string())), "{names:?}");
        }
        let words = DELIVERIES.map(|delivery| delivery.replace("direct_diff", "diff"));
        for (name, delivery) in NAMES[0].iter().zip(words) {
            assert!(name.ends_with(&delivery.replace('_', " ")), "{name}, {delivery}");
        }
    }

    #[test]
    fn quick_run_has_what_the_picture_shows() {
        let (quick, full) = (blank(true, 2), blank(false, 2));
        assert_eq!((quick.len(), full.len()), (3 * 3 * 2, 7 * 5 * 5));
        for drawn in DRAWN {
            assert!(quick.iter().any(|record| record.system == drawn), "{drawn}");
        }
        for record in &full {
            let is_over = record.nodes > Some(2);
            assert_eq!(record.mode == Some("oversubscribed"), is_over, "{record:?}");
        }
    }
}
