//! Measures collectives: from call to return, on node 0.
//!
//! A broadcast is timed in turns, in which every node is the root once, because a root may return
//! before the others have the data. The time of one broadcast is that of a turn divided by the
//! number of nodes.

use super::Perf;
use super::measure::{histogram, since};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use oikaze::prelude::*;
use oikaze::{Error, Result};
use serde_json::json;
use std::time::Instant;

/// Number of operations before the measurement.
const WARM_UP: u32 = 10;

/// Collective to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// SIZE bytes of one node for all
    Broadcast,
    /// Sum of SIZE bytes of doubles of all nodes, on all nodes
    AllReduce,
    /// SIZE bytes of each node, on all nodes
    AllGather,
    /// SIZE bytes of each node for each node
    AllToAll,
    /// Barrier of all nodes
    Barrier,
}

impl Case {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the algorithm that is chosen for this size.
    fn algorithm(self, job: &Job, bytes: usize) -> &'static str {
        match self {
            Case::Broadcast => job.team().algorithm("broadcast", bytes),
            Case::AllReduce => job.team().algorithm("all_reduce", bytes),
            Case::AllGather => job.team().algorithm("all_gather", bytes),
            Case::AllToAll => job.team().algorithm("all_to_all", bytes),
            Case::Barrier => "coherence",
        }
    }
}

/// One measured case.
struct Line {
    case: Case,
    size: usize,
    algorithm: &'static str,
    latency: Histogram<u64>,
}

/// Measures the chosen case, or all. Node 0 prints a table, or one line of JSON for each.
///
/// # Errors
/// The job or an operation fails.
pub fn run(perf: &Perf, job: &Job) -> Result<()> {
    let cases = match perf.case {
        Some(case) => vec![case],
        None => Case::value_variants().to_vec(),
    };
    let mut text = String::new();
    if !perf.json {
        text += &format!("collectives of {} nodes, µs from call to return\n", job.size());
        text += &format!(
            "{:<11}{:>9}  {:<24}{:>10}{:>10}{:>10}\n",
            "case", "bytes", "algorithm", "p50", "p99", "max"
        );
    }
    for case in cases {
        let sizes = match case {
            Case::Barrier => vec![0],
            _ if perf.sweep => (0..8).map(|step| 8 << (3 * step).min(19)).collect(),
            _ => vec![perf.size],
        };
        for size in sizes {
            let line = measure(perf, job, case, size)?;
            text += &if perf.json { in_json(job, &line) } else { in_table(&line) };
        }
    }
    if job.rank() == 0 { crate::print(&text) } else { Ok(()) }
}

fn us(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e3
}

fn in_table(line: &Line) -> String {
    let Line { case, size, algorithm, latency } = line;
    format!(
        "{:<11}{size:>9}  {algorithm:<24}{:>10.2}{:>10.2}{:>10.2}\n",
        case.name(),
        us(latency, 0.5),
        us(latency, 0.99),
        us(latency, 1.0)
    )
}

fn in_json(job: &Job, line: &Line) -> String {
    let Line { case, size, algorithm, latency } = line;
    let line = json!({
        "test": "collectives",
        "case": case.name(),
        "size": size,
        "nodes": job.size(),
        "algorithm": algorithm,
        "operations": latency.len(),
        "latency_us": us(latency, 0.5),
        "p99_us": us(latency, 0.99),
    });
    format!("{line}\n")
}

fn measure(perf: &Perf, job: &Job, case: Case, size: usize) -> Result<Line> {
    let few = if size > 65_536 { 200 } else { 5_000 };
    let iterations = perf.iterations.unwrap_or(few);
    let words = size.div_ceil(size_of::<f64>());
    let (mine, all) = (vec![1.0_f64; words], vec![1.0_f64; words * job.size() as usize]);
    let mut changing = mine.clone();
    let mut one = |root: u32| match case {
        Case::Broadcast => job.broadcast_into(root, &mut changing),
        Case::AllReduce => job.all_reduce_into(&mut changing, Max),
        Case::AllGather => job.all_gather(&mine).map(drop),
        Case::AllToAll => job.all_to_all(&all).map(drop),
        Case::Barrier => job.barrier(),
    };
    let roots = if case == Case::Broadcast { job.size() } else { 1 };
    let mut turn = || (0..roots).try_for_each(&mut one);
    (0..WARM_UP).try_for_each(|_| turn())?;
    job.barrier()?;
    let mut latency = histogram()?;
    for _ in 0..iterations.div_ceil(roots) {
        let begun = Instant::now();
        turn()?;
        let _ = latency.record_n(since(begun) / u64::from(roots), u64::from(roots));
    }
    job.barrier()?;
    if changing.iter().any(|value| *value != 1.0) {
        return Err(Error::invalid("measuring collectives", "a result is wrong (a defect)"));
    }
    Ok(Line { case, size, algorithm: case.algorithm(job, size), latency })
}
