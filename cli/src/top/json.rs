//! Formats one sample as JSON.

use super::sample::{Peer, Sample};
use oikaze::job::Seal;
use oikaze::observe::page::{FlowGauges, FlowPage, Gauges, LinkCounters};
use oikaze::observe::{PathStates, SlowPath, Unreadable, slow_paths};
use oikaze_engine::{Counters, GroupCounters};
use oikaze_protocol::coherence;
use oikaze_protocol::rma::RefusalCounts;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::wind::{Histogram, Statistics};
use serde_json::{Map, Value, json};

/// Reported percentiles: name, and value in hundredths of a percent.
const PERCENTILES: [(&str, u32); 5] =
    [("p50", 5000), ("p90", 9000), ("p99", 9900), ("p99.9", 9990), ("max", 10_000)];

/// Returns one line of JSON. `counters` count from the node's start. `rates`, `resent` and
/// latencies cover the last `span_s` seconds.
pub fn line(samples: &[Sample<'_>], unreadable: &[Unreadable]) -> String {
    let unreadable: Vec<Value> = unreadable
        .iter()
        .map(|process| json!({ "pid": process.pid, "why": process.why }))
        .collect();
    let nodes: Vec<Value> = samples.iter().map(node).collect();
    json!({ "nodes": nodes, "unreadable": unreadable }).to_string()
}

fn named(names: &[&str], values: &[u64]) -> Value {
    Value::Object(
        names
            .iter()
            .zip(values)
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect::<Map<_, _>>(),
    )
}

fn node(sample: &Sample<'_>) -> Value {
    let (view, node) = (sample.view, &sample.view.node);
    json!({
        "job": view.job(),
        "program": node.program,
        "rank": node.rank,
        "nodes": node.nodes,
        "pid": view.pid,
        "up_s": node.at.as_secs_f64(),
        "age_s": view.age().as_secs_f64(),
        "span_s": sample.span.as_secs_f64(),
        "seal": node.seal.name(),
        "operations": node.operations,
        "mail": node.mail,
        "waits": node.waits,
        "engine": named(Counters::NAMES, &node.engine.values()),
        "groups": named(GroupCounters::NAMES, &node.groups.values()),
        "link": named(LinkCounters::NAMES, &node.link.values()),
        "coherence": named(coherence::CoherenceStatistics::NAMES, &node.coherence.values()),
        "paths": named(PathStates::NAMES, &node.paths.values()),
        "slow_paths": slow_paths(node, &view.peers).iter().map(slow_path).collect::<Vec<_>>(),
        "refusals": named(RefusalCounts::NAMES, &node.refusals.values()),
        "flows": view.flows.flows.iter().map(flow).collect::<Vec<_>>(),
        "flows_left_out": view.flows.left_out,
        "peers": sample.peers.iter().map(|peer| peer_line(sample, peer)).collect::<Vec<_>>(),
    })
}

fn slow_path(slow: &SlowPath) -> Value {
    json!({ "path": slow.path, "cause": slow.cause, "remedy": slow.remedy })
}

fn flow(flow: &FlowPage) -> Value {
    json!({
        "peer": flow.peer,
        "address": flow.address.map(|address| address.to_string()),
        "gauges": named(FlowGauges::NAMES, &flow.gauges.values()),
    })
}

fn peer_line(sample: &Sample<'_>, peer: &Peer<'_>) -> Value {
    let counted = &peer.counted;
    let (seal, cipher) = (sample.seal_of(peer), peer.page.cipher.map(CipherKind::name));
    json!({
        "rank": peer.rank,
        "state": peer.page.state.name(),
        "lost": peer.page.state.is_lost(),
        "seal": seal.map_or("shared memory, not sealed", Seal::name),
        "cipher": seal.and(cipher),
        "address": peer.page.address.map(|address| address.to_string()),
        "rates": {
            "messages_out_s": peer.rate(counted.messages_posted),
            "messages_in_s": peer.rate(counted.messages_delivered),
            "bytes_out_s": peer.rate(counted.bytes_sent),
            "bytes_in_s": peer.rate(counted.bytes_received),
            "datagrams_out_s": peer.rate(counted.datagrams_sent),
            "datagrams_in_s": peer.rate(counted.datagrams_received),
        },
        "resent": resent(counted),
        "round_trip_us": latency(&peer.round_trip),
        "settle_us": latency(&peer.settle),
        "gauges": named(Gauges::NAMES, &peer.page.gauges.values()),
        "counters": named(Statistics::NAMES, &peer.page.counters.values()),
    })
}

/// Returns the datagrams whose content was retransmitted, by cause, and the number of those that
/// had arrived after all (spurious losses).
pub fn resent(counted: &Statistics) -> Value {
    let Statistics { lost_by_reordering, lost_by_time, lost_by_probe, spurious_losses, .. } =
        counted;
    json!({ "reordering": lost_by_reordering, "time": lost_by_time, "probe": lost_by_probe, "spurious": spurious_losses })
}

/// Returns percentiles in microseconds and the number of samples. A percentile without samples is
/// null.
pub fn latency(histogram: &Histogram) -> Value {
    let at = |hundredths| histogram.percentile(hundredths).map(|span| span.as_secs_f64() * 1e6);
    let mut values: Map<String, Value> =
        PERCENTILES.iter().map(|&(name, at_)| (name.to_owned(), json!(at(at_)))).collect();
    values.insert("count".into(), json!(histogram.len()));
    Value::Object(values)
}
