//! Tests bulk by several flows between hosts that have two networks in common (WIND-14.8).

use crate::support::*;
use serde_json::Value;
use std::process::Command;

/// MiB of the transfer.
const VOLUME: u64 = 64;

/// Returns the bytes that a device of a namespace has sent.
fn sent(namespace: &str, device: &str) -> u64 {
    let mut ip = Command::new("ip");
    ip.args(["-n", namespace, "-j", "-s", "link", "show", "dev", device]);
    let (_, out, err) = finish(&mut ip);
    let links: Value = serde_json::from_str(&out).expect(&err);
    links[0]["stats64"]["tx"]["bytes"].as_u64().expect("a count")
}

/// Two hosts joined by two cables, each with a subnet of its own.
fn two_networks(name: &str) -> Cable {
    let cable = Cable::new(name, ["9000"; 2], ["10.96.0.1/24", "10.96.0.2/24"]);
    let [a, b] = &cable.0;
    ip(a, &["link", "add", "e2", "type", "veth", "peer", "name", "e2", "netns", b]);
    begin_to_use(a, "e2", "9000", "10.96.1.1/24");
    begin_to_use(b, "e2", "9000", "10.96.1.2/24");
    cable
}

/// Moves bytes from the first host to the second. Returns how many left by each cable.
fn moved(cable: &Cable, name: &str, flows: &str) -> [u64; 2] {
    let counts = || ["e", "e2"].map(|device| sent(&cable.0[0], device));
    let (before, shell) = (counts(), Shell::enter(name));
    let mut job = cable.run(&shell, &["--no-prefix"]);
    job.env("OIKAZE_FLOWS", flows).env("OIKAZE_WITHOUT", "shm");
    let line = format!("perf put --size 1M --only throughput --volume {VOLUME}M --json");
    job.args(["--", OIKAZE]).args(line.split(' '));
    let (status, _, err) = finish(&mut job);
    assert_eq!(status, Some(0), "{err}");
    let after = counts();
    [0, 1].map(|at| after[at] - before[at])
}

/// WIND-14.8: several flows use both networks, and one flow uses one.
#[test]
fn flows_use_both_networks() {
    let Some(_turn) = namespaces() else { return };
    let cable = two_networks("flows");
    for (flows, least) in [("1", 0), ("2", VOLUME << 20 >> 4)] {
        let bytes = moved(&cable, "flows", flows);
        let fewer = bytes[0].min(bytes[1]);
        assert!(bytes[0] + bytes[1] > VOLUME << 20, "{bytes:?}");
        assert!(fewer >= least, "{flows} flows: {bytes:?}");
        assert!(flows != "1" || fewer < 1 << 20, "{flows} flows: {bytes:?}");
    }
}

/// WIND-14.5, WIND-14.8: a network that carries nothing in one direction is given up.
#[test]
fn network_that_carries_nothing_is_given_up() {
    let Some(_turn) = namespaces() else { return };
    let cable = two_networks("hole");
    // Frames to a card that is not there are dropped at the other end.
    let hole = "neigh replace 10.96.1.2 lladdr 02:00:00:00:00:99 nud permanent dev e2";
    ip(&cable.0[0], &hole.split(' ').collect::<Vec<_>>());
    let bytes = moved(&cable, "hole", "2");
    assert!(bytes[0] > VOLUME << 20 && bytes[1] < VOLUME << 18, "{bytes:?}");
}
