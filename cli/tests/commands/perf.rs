//! Tests `oikaze perf` with few operations. Checks its output, and not the speed of this machine.

use crate::support::{finish, oikaze, oikaze_line};
use serde_json::Value;

const QUICK: [&str; 4] = ["--iterations", "100", "--only", "latency"];

#[test]
fn percentiles_in_json() {
    for test in ["put", "message", "put-done", "get", "fetch-add", "compare-swap"] {
        // Over the network, because transfers through shared memory have no round trips.
        let mut perf = oikaze(&[&["perf", test, "--json"][..], &QUICK].concat());
        let (status, out, err) = finish(perf.env("OIKAZE_WITHOUT", "shm"));
        assert_eq!(status, Some(0), "{test}: {err}");
        let line: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
        assert_eq!(line["test"].as_str(), Some(test));
        assert_eq!(line["nodes"].as_u64(), Some(2));
        assert_eq!(line["operations"].as_u64(), Some(100));
        let all: Vec<f64> = ["p50", "p90", "p99", "p99.9", "max"]
            .iter()
            .map(|name| line["percentiles_us"][*name].as_f64().unwrap())
            .collect();
        assert!(all[0] > 0.0 && all.is_sorted(), "{test}: {all:?}");
        assert_eq!(line["latency_us"].as_f64(), Some(all[0]), "the median");
        let peer = &line["peer"];
        assert!(peer["round_trip_us"]["count"].as_u64() > Some(0), "{test}: {peer}");
        assert!(
            peer["settle_us"]["p99"].as_f64() >= peer["settle_us"]["p50"].as_f64(),
            "{test}: {peer}"
        );
        assert!(peer["resent"]["reordering"].is_u64(), "{test}: {peer}");
    }
}

/// A put costs its caller less than its completion takes, in each mode of the engine.
#[test]
fn posts_are_timed_without_their_completion() {
    for engine in ["inline", "thread"] {
        let mut perf = oikaze(&[&["perf", "post", "--json"][..], &QUICK].concat());
        let perf = perf.env("OIKAZE_WITHOUT", "shm").env("OIKAZE_ENGINE", engine);
        let (status, out, err) = finish(perf);
        assert_eq!(status, Some(0), "{engine}: {err}");
        let line: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
        assert_eq!((line["test"].as_str(), line["operations"].as_u64()), (Some("post"), Some(100)));
        assert!(line["latency_us"].as_f64().is_some(), "{line}");
    }
}

#[test]
fn collectives_name_their_algorithms() {
    let mut run = oikaze(&["run", "-n", "3", "--no-prefix", "--", crate::support::OIKAZE]);
    let arguments = ["perf", "collectives", "--size", "1000", "--iterations", "20", "--json"];
    let (status, out, err) = finish(run.args(arguments));
    assert_eq!(status, Some(0), "{err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cases: Vec<&str> = lines.iter().filter_map(|line| line["case"].as_str()).collect();
    assert_eq!(cases, ["barrier", "broadcast", "all_reduce", "all_gather", "all_to_all"]);
    for line in &lines {
        assert!(line["us"].as_f64() > Some(0.0) && line["nodes"] == 3, "{line}");
        assert!(line["algorithm"].as_str().is_some_and(|name| name != "none"), "{line}");
    }
}

#[test]
fn blocks_are_made_of_rows() {
    let (status, out, err) =
        finish(&mut oikaze_line("perf block --size 128K --iterations 20 --volume 8M --hot --json"));
    assert_eq!(status, Some(0), "{err}");
    let line: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
    assert!(line["latency_us"].as_f64() > Some(0.0), "{line}");
    assert!(line["bandwidth_gbs"].as_f64() > Some(0.0), "{line}");
    let (status, _, err) = finish(&mut oikaze(&["perf", "block", "--size", "1000"]));
    assert_ne!(status, Some(0));
    assert!(err.contains("blocks of 1000 bytes") && err.contains("--size 128K"), "{err}");
}

#[test]
fn percentiles_for_people() {
    let (status, out, err) = finish(&mut oikaze(&[&["perf", "message"][..], &QUICK].concat()));
    assert_eq!(status, Some(0), "{err}");
    for word in
        ["latency of 100, µs:", "p50 ", "p90 ", "p99 ", "p99.9 ", "max ", "round trips, µs: p50"]
    {
        assert!(out.contains(word), "no {word:?} in:\n{out}");
    }
}

#[test]
fn updates_reach_a_reader_that_computes() {
    // In one memory, and with pages of each node.
    for (nodes, without) in [("2", ""), ("2", "segment"), ("3", "segment")] {
        let arguments = ["perf", "update-reader", "--size", "64K", "--iterations", "20", "--json"];
        let mut run = oikaze(&["run", "-n", nodes, "--no-prefix", "--", crate::support::OIKAZE]);
        let (status, out, err) = finish(run.args(arguments).env("OIKAZE_WITHOUT", without));
        assert_eq!(status, Some(0), "{nodes} nodes without {without:?}: {err}");
        let line: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
        assert_eq!(line["operations"].as_u64(), Some(20), "{line}");
        assert_eq!(line["reference"]["operations"].as_u64(), Some(20), "{line}");
        assert!(line["latency_us"].as_f64() > Some(0.0), "{line}");
        assert!(line["other_processor_seconds_per_gib"].as_f64().is_some(), "{line}");
    }
}

#[test]
fn barriers_and_notifications_bring_updates_to_all_nodes() {
    // In one memory, and with pages of each node.
    let places = [("1", ""), ("2", ""), ("3", ""), ("3", "segment")];
    let tests = ["barrier-update", "notify-update"];
    for (test, (nodes, without)) in tests.into_iter().flat_map(|test| places.map(|at| (test, at))) {
        let arguments = ["perf", test, "--size", "64K", "--iterations", "30", "--json"];
        let mut run = oikaze(&["run", "-n", nodes, "--no-prefix", "--", crate::support::OIKAZE]);
        let (status, out, err) = finish(run.args(arguments).env("OIKAZE_WITHOUT", without));
        if nodes == "1" {
            assert!(status != Some(0) && err.contains("two are needed"), "{err}");
            continue;
        }
        assert_eq!(status, Some(0), "{nodes} nodes without {without:?}: {err}");
        let line: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
        assert_eq!(line["operations"].as_u64(), Some(30), "{nodes} nodes");
        assert!(line["latency_us"].as_f64() > Some(0.0), "{line}");
        assert!(line["bandwidth_gbs"].as_f64() > Some(0.0), "{line}");
    }
}
