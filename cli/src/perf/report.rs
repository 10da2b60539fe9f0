//! What `oikaze perf` prints.

use super::measure::Figures;
use super::{Perf, Test};
use clap::ValueEnum;
use oikaze::Job;
use serde_json::json;

/// Percentiles told, and their names.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

fn name(test: Test) -> String {
    test.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn microseconds(figures: &Figures, percentile: f64) -> f64 {
    figures.latency.value_at_quantile(percentile / 100.0) as f64 / 1e3
}

/// One line; `latency_us` is the median, `bandwidth_gbs` is null where none was measured.
pub fn json(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let percentiles: serde_json::Map<_, _> =
        PERCENTILES.iter().map(|&(name, at)| (name.to_owned(), json!(microseconds(figures, at)))).collect();
    json!({
        "test": name(perf.test),
        "size": perf.size,
        "nodes": job.size(),
        "operations": figures.latency.len(),
        "latency_us": microseconds(figures, 50.0),
        "percentiles_us": percentiles,
        "bandwidth_gbs": figures.bandwidth.map(|bytes| bytes / 1e9),
        "statistics": job.statistics(),
    })
    .to_string()
}

/// For people.
pub fn table(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let mut text = format!("{} of {} bytes, {} nodes, {} timed\n", name(perf.test), perf.size, job.size(), figures.latency.len());
    text += "latency, µs:";
    for (name, at) in PERCENTILES {
        text += &format!("  {name} {:.2}", microseconds(figures, at));
    }
    if let Some(bytes) = figures.bandwidth {
        text += &format!("\nbandwidth: {:.3} GB/s", bytes / 1e9);
    }
    let statistics = job.statistics();
    text += &format!("\ndatagrams: {} sent, {} received", statistics.datagrams_sent, statistics.datagrams_received);
    text += &format!("; {} parts of messages sent again", statistics.retransmissions);
    for notice in &statistics.notices {
        text += &format!("\nnote: {notice}");
    }
    text
}
