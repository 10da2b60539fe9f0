//! What `oikaze perf` prints.

use super::measure::{Figures, Stream};
use super::{Perf, Test};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use oikaze::Job;
use serde_json::{Value, json};

/// Percentiles told, and their names.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

fn name(test: Test) -> String {
    test.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn microseconds(latency: &Histogram<u64>, percentile: f64) -> f64 {
    latency.value_at_quantile(percentile / 100.0) as f64 / 1e3
}

impl Stream {
    fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Of processor time, both sides, for each GiB.
    fn seconds_per_gib(&self) -> Option<f64> {
        self.processor_seconds.map(|seconds| seconds / (self.bytes as f64 / f64::from(1 << 30)))
    }
}

/// What was measured; `latency_us` is the median, and null is what was not measured.
fn values(figures: &Figures) -> serde_json::Map<String, Value> {
    let percentiles = figures.latency.as_ref().map(|latency| {
        let all = PERCENTILES.iter().map(|&(name, at)| (name.to_owned(), json!(microseconds(latency, at))));
        all.collect::<serde_json::Map<_, _>>()
    });
    let values = json!({
        "operations": figures.latency.as_ref().map(|latency| latency.len()),
        "latency_us": figures.latency.as_ref().map(|latency| microseconds(latency, 50.0)),
        "percentiles_us": percentiles,
        "bandwidth_gbs": figures.stream.map(|stream| stream.gigabytes_per_second()),
        "per_second": figures.stream.map(|stream| stream.per_second()),
        "processor_seconds_per_gib": figures.stream.and_then(|stream| stream.seconds_per_gib()),
        "reference": figures.reference.as_ref().map(|reference| values(reference)),
    });
    if let Value::Object(values) = values { values } else { serde_json::Map::new() }
}

/// One line.
pub fn json(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let mut line = values(figures);
    line.insert("test".into(), json!(name(perf.test)));
    line.insert("size".into(), json!(perf.size));
    line.insert("nodes".into(), json!(job.size()));
    line.insert("statistics".into(), json!(job.statistics()));
    Value::Object(line).to_string()
}

/// For people.
pub fn table(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let mut text = format!("{} of {} bytes, {} nodes\n", name(perf.test), perf.size, job.size());
    text += &lines(figures);
    if let Some(reference) = &figures.reference {
        text += match perf.test {
            Test::Passive => "to a node that waits instead:\n",
            _ => "each alone instead:\n",
        };
        text += &lines(reference);
    }
    let statistics = job.statistics();
    text += &format!("datagrams: {} sent, {} received", statistics.datagrams_sent, statistics.datagrams_received);
    text += &format!("; {} parts of messages sent again", statistics.retransmissions);
    for notice in &statistics.notices {
        text += &format!("\nnote: {notice}");
    }
    text
}

fn lines(figures: &Figures) -> String {
    let mut text = String::new();
    if let Some(latency) = &figures.latency {
        text += &format!("latency of {}, µs:", latency.len());
        for (name, at) in PERCENTILES {
            text += &format!("  {name} {:.2}", microseconds(latency, at));
        }
        text.push('\n');
    }
    if let Some(stream) = &figures.stream {
        text += &format!("throughput: {:.3} GB/s, {:.0} operations a second", stream.gigabytes_per_second(), stream.per_second());
        if let Some(seconds) = stream.seconds_per_gib() {
            text += &format!(", {seconds:.3} s of processor time (both nodes) for a GiB");
        }
        text.push('\n');
    }
    text
}
