//! Output of `oikaze perf`.

use super::measure::{Figures, Stream};
use super::{Perf, Test};
use crate::top::json::{latency, resent};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use oikaze::Job;
use oikaze::observe::page::PeerPage;
use oikaze_protocol::wind::Histogram as Spans;
use serde_json::{Value, json};

/// Reported percentiles and their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

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

    /// Returns the processor seconds for each GiB of payload.
    fn per_gib(&self, seconds: Option<f64>) -> Option<f64> {
        seconds.map(|seconds| seconds / (self.bytes as f64 / f64::from(1 << 30)))
    }
}

/// Returns the measured values. `latency_us` is the median, and a value not measured is null.
fn values(figures: &Figures) -> serde_json::Map<String, Value> {
    let percentiles = figures.latency.as_ref().map(|latency| {
        let all = PERCENTILES
            .iter()
            .map(|&(name, at)| (name.to_owned(), json!(microseconds(latency, at))));
        all.collect::<serde_json::Map<_, _>>()
    });
    let values = json!({
        "operations": figures.latency.as_ref().map(|latency| latency.len()),
        "latency_us": figures.latency.as_ref().map(|latency| microseconds(latency, 50.0)),
        "percentiles_us": percentiles,
        "bandwidth_gbs": figures.stream.map(|stream| stream.gigabytes_per_second()),
        "per_second": figures.stream.map(|stream| stream.per_second()),
        "processor_seconds_per_gib": figures.stream.and_then(|stream| stream.per_gib(stream.processor_seconds)),
        "other_processor_seconds_per_gib": figures.stream.and_then(|stream| stream.per_gib(stream.other_processor_seconds)),
        "reference": figures.reference.as_ref().map(|reference| values(reference)),
    });
    if let Value::Object(values) = values { values } else { serde_json::Map::new() }
}

/// Returns the result as one line of JSON.
pub fn json(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let mut line = values(figures);
    line.insert("test".into(), json!(name(perf.test)));
    line.insert("size".into(), json!(perf.size));
    line.insert("nodes".into(), json!(job.size()));
    line.insert("statistics".into(), json!(job.statistics()));
    line.insert("peer".into(), transport(job).as_ref().map_or(Value::Null, peer));
    Value::Object(line).to_string()
}

/// Returns the result as text for people.
pub fn table(perf: &Perf, job: &Job, figures: &Figures) -> String {
    let mut text = format!("{} of {} bytes, {} nodes\n", name(perf.test), perf.size, job.size());
    text += &lines(figures);
    if let Some(reference) = &figures.reference {
        text += match perf.test {
            Test::Passive => "to a node that waits instead:\n",
            Test::UpdateReader => "the same work alone:\n",
            _ => "each alone instead:\n",
        };
        text += &lines(reference);
    }
    let statistics = job.statistics();
    text += &format!(
        "datagrams: {} sent, {} received",
        statistics.datagrams_sent, statistics.datagrams_received
    );
    text += &format!("; {} sent again", statistics.retransmissions);
    if let Some(page) = transport(job) {
        text += &between(&page);
    }
    for notice in &statistics.notices {
        text += &format!("\nnote: {notice}");
    }
    text
}

/// Returns the transport's report on the other node, from the job's start on.
fn transport(job: &Job) -> Option<PeerPage> {
    job.peer(1).ok()?.report()
}

fn peer(page: &PeerPage) -> Value {
    json!({
        "round_trip_us": latency(&page.round_trip),
        "settle_us": latency(&page.settle),
        "resent": resent(&page.counters),
    })
}

fn between(page: &PeerPage) -> String {
    let at = |spans: &Spans, hundredths| {
        spans.percentile(hundredths).unwrap_or_default().as_secs_f64() * 1e6
    };
    let two = |spans: &Spans| format!("p50 {:.1}, p99 {:.1}", at(spans, 5000), at(spans, 9900));
    let mut text = String::new();
    let counted = &page.counters;
    if counted.lost_by_reordering + counted.lost_by_time + counted.lost_by_probe > 0 {
        text += &format!(" (overtaken by others {}", counted.lost_by_reordering);
        text +=
            &format!(", late {}, after a silence {}", counted.lost_by_time, counted.lost_by_probe);
        text += &format!("; {} of them had arrived after all)", counted.spurious_losses);
    }
    text + &format!(
        "\ndatagrams' round trips, µs: {}; messages until acknowledged: {}",
        two(&page.round_trip),
        two(&page.settle)
    )
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
        text += &format!(
            "throughput: {:.3} GB/s, {:.0} operations a second",
            stream.gigabytes_per_second(),
            stream.per_second()
        );
        if let Some(seconds) = stream.per_gib(stream.processor_seconds) {
            text += &format!(", {seconds:.3} s of processor time (both nodes) for a GiB");
        }
        if stream.processor_seconds.is_none()
            && let Some(seconds) = stream.other_processor_seconds
        {
            let each = seconds * 1e6 / stream.operations.max(1) as f64;
            text += &format!(", {each:.2} µs of node 1's processor for each beyond its work");
        }
        text.push('\n');
    }
    text
}
