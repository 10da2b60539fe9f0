//! Tests `oikaze top` beside a real job, which the command does not touch.

use crate::support::{DEADLINE, OIKAZE, Running, ends, finish, oikaze, run_script};
use serde_json::Value;

/// Returns the output of `oikaze top --once --json JOB`, or null if the command sees nothing.
fn look(job: &[&str]) -> Value {
    let (_, out, _) = finish(&mut oikaze(&[&["top", "--once", "--json"], job].concat()));
    serde_json::from_str(&out).unwrap_or(Value::Null)
}

/// Polls until both nodes show the wanted values.
fn shown(pids: &[u64], wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let begun = std::time::Instant::now();
    loop {
        let all = look(&[]);
        let nodes = all["nodes"].as_array().cloned().unwrap_or_default();
        let own: Vec<Value> = nodes
            .into_iter()
            .filter(|node| pids.contains(&node["pid"].as_u64().unwrap()))
            .collect();
        if own.len() == pids.len() && own.iter().all(&wanted) {
            return own;
        }
        assert!(begun.elapsed() < DEADLINE, "not shown: {pids:?} in {all:#}");
    }
}

#[test]
fn a_running_job_is_shown() {
    let script =
        format!("echo pid $$; exec {OIKAZE} perf message --size 4K --iterations 4000000000");
    let mut job =
        Running::start(&mut run_script(&["-n", "2", "--fault", "loss=0.05,seed=3"], &script));
    let mut pids = Vec::new();
    for _ in 0..2 {
        let line = job.line("[");
        pids.push(line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    }
    let resent = |peer: &Value| {
        peer["resent"]
            .as_object()
            .unwrap()
            .values()
            .map(|count| count.as_u64().unwrap())
            .sum::<u64>()
    };
    let nodes = shown(&pids, |node| {
        let peer = &node["peers"][0];
        peer["counters"]["messages_posted"].as_u64() > Some(100) && resent(peer) > 0
    });
    for (rank, node) in nodes.iter().enumerate() {
        assert_eq!((node["rank"].as_u64(), node["nodes"].as_u64()), (Some(rank as u64), Some(2)));
        assert_eq!((node["program"].as_str(), &node["job"]), (Some("oikaze"), &nodes[0]["job"]));
        assert!(node["engine"]["turns"].as_u64() > Some(0));
        assert!(node["link"]["bytes_out"].as_u64() > Some(100_000));
        let peer = &node["peers"][0];
        assert_eq!(peer["rank"].as_u64(), Some(1 - rank as u64));
        assert_eq!(peer["state"].as_str(), Some("up"));
        assert!(peer["gauges"]["window"].as_u64() > Some(0));
        let rates = &peer["rates"];
        assert!(rates["messages_out_s"].as_f64() > Some(0.0), "{rates}");
        assert!(rates["bytes_in_s"].as_f64() > Some(0.0), "{rates}");
        for latency in ["round_trip_us", "settle_us"] {
            let at = |name: &str| peer[latency][name].as_f64().unwrap();
            assert!(at("p50") > 0.0 && at("p50") <= at("p99"), "{}", peer[latency]);
            assert!(at("p99") <= at("max") * 1.07, "{}", peer[latency]);
            assert!(peer[latency]["count"].as_u64() > Some(50));
        }
    }
    let name = nodes[0]["job"].as_str().unwrap();
    let (status, text, _) = finish(&mut oikaze(&["top", "--once", name]));
    assert_eq!(status, Some(0));
    for word in [
        &format!("job {name}  oikaze  2 of 2 nodes here"),
        "rtt p50",
        "resent",
        " up ",
        "operations",
    ] {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
    // Faults are injected, so the two nodes share no memory, and the link's own buffers and paths
    // are counted.
    let slow = |node: &Value| node["slow_paths"].as_array().unwrap().clone();
    for node in &nodes {
        let shm = slow(node).into_iter().find(|slow| slow["path"] == "shared memory").unwrap();
        assert!(shm["cause"].as_str().unwrap().contains("OIKAZE_FAULT"), "{shm}");
        assert!(
            slow(node)
                .iter()
                .all(|slow| slow["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty())),
            "{node:#}"
        );
        assert_eq!(node["paths"]["unshared_nodes"].as_u64(), Some(1));
    }
    assert!(
        text.contains("slow: shared memory: 1 nodes of this machine are talked to over UDP"),
        "{text}"
    );
    // The second sample covers the time since the first one.
    let mut live = Running::start(&mut oikaze(&["top", "--json", "--interval", "0.05", name]));
    let spans: Vec<f64> = (0..3)
        .map(|_| {
            let line: Value = serde_json::from_str(&format!("{{{}", live.line("{"))).unwrap();
            line["nodes"][0]["span_s"].as_f64().unwrap()
        })
        .collect();
    assert!(spans[1] < spans[0] || spans[2] < spans[0], "{spans:?}");
    drop(live);
    drop(job);
    // The job disappears with its processes, however they ended.
    let begun = std::time::Instant::now();
    while look(&[name]) != Value::Null {
        assert!(begun.elapsed() < DEADLINE);
    }
}

/// SEAL-1.3, SEAL-2.6: the seal of each peer is shown, and that shared memory has none.
#[test]
fn seal_of_each_peer_is_shown() {
    let script =
        format!("echo pid $$; exec {OIKAZE} perf message --size 4K --iterations 4000000000");
    let aes = oikaze_os::secrets::seal::preferred_cipher().name();
    for (options, word, node_seal, seal, cipher) in [
        (&[][..], " none ", "full", "shared memory, not sealed", None),
        (&["--env", "OIKAZE_WITHOUT=shm"], " full ", "full", "full", Some(aes)),
        (
            &["--env", "OIKAZE_WITHOUT=shm,aes", "--seal", "integrity"],
            " integrity ",
            "integrity",
            "integrity",
            Some("ChaCha20-Poly1305"),
        ),
        (&["--env", "OIKAZE_WITHOUT=shm", "--seal", "crc"], " crc ", "crc", "crc", None),
    ] {
        let mut job = Running::start(&mut run_script(&[&["-n", "2"], options].concat(), &script));
        let pids: Vec<u64> =
            (0..2).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect();
        let is_shown = |node: &Value| {
            let peer = &node["peers"][0];
            let is_up = peer["counters"]["messages_posted"].as_u64() > Some(100);
            is_up || seal.starts_with("shared") && peer["gauges"]["rings"].as_u64() == Some(1)
        };
        for node in shown(&pids, is_shown) {
            let peer = &node["peers"][0];
            assert_eq!(node["seal"].as_str(), Some(node_seal));
            assert_eq!(peer["seal"].as_str(), Some(seal));
            assert_eq!(peer["cipher"].as_str(), cipher, "{options:?}");
            let (_, table, _) =
                finish(&mut oikaze(&["top", "--once", node["job"].as_str().unwrap()]));
            assert!(table.contains(word), "no {word} in:\n{table}");
        }
        drop(job);
    }
}

/// A feature that is switched off is named, with the remedy that switches it on again.
#[test]
fn a_node_shows_what_it_does_without() {
    let script =
        format!("echo pid $$; exec {OIKAZE} perf message --size 4K --iterations 4000000000");
    let without = "OIKAZE_WITHOUT=gso,gro,tcx,splice,uffd,shm,huge";
    let mut job = Running::start(&mut run_script(&["-n", "2", "--env", without], &script));
    let pids: Vec<u64> =
        (0..2).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect();
    let nodes = shown(&pids, |node| node["peers"][0]["state"].as_str() == Some("up"));
    let named = [
        "early receive",
        "segmentation offload",
        "joined receive",
        "splice",
        "mprotect",
        "huge pages",
        "shared memory",
    ];
    for node in &nodes {
        for name in named {
            let is_named = |slow: &Value| {
                [&slow["path"], &slow["cause"]]
                    .iter()
                    .any(|text| text.as_str().unwrap().contains(name))
            };
            assert!(
                node["slow_paths"].as_array().unwrap().iter().any(is_named),
                "no {name} in {:#}",
                node["slow_paths"]
            );
        }
    }
    drop(job);
}

#[test]
fn nothing_to_see_is_said() {
    let (status, out, err) = finish(&mut oikaze(&["top", "--once", "no-such-job"]));
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.contains("no node of job no-such-job") && err.contains("oikaze run"), "{err}");
    let (_, help, _) = finish(&mut oikaze(&["top", "--help"]));
    assert!(
        ["settle", "resent", "flight", "OIKAZE_STATISTICS"].iter().all(|word| help.contains(word)),
        "{help}"
    );
}

#[test]
fn a_node_may_hide() {
    let (status, out, _) = finish(oikaze(&["hello"]).env("OIKAZE_STATISTICS", "off"));
    assert_eq!((status, out.starts_with("node 0 of 1")), (Some(0), true));
    let words = ["OIKAZE_STATISTICS=maybe: expected on or off"];
    ends(oikaze(&["hello"]).env("OIKAZE_STATISTICS", "maybe"), 1, &words);
}
