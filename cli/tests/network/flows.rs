//! Bulk over several flows (WIND-14) through a firewall that drops what some source ports send.
//! Needs root; skipped otherwise.

use crate::path::Transfers;
use crate::support::*;
use serde_json::Value;

/// Flows of each node.
const FLOWS: u64 = 4;
/// Ports of the nodes, from which the first flow leaves. The kernel chooses those of further flows,
/// and never one of these (ip(7), `ip_local_port_range`).
const NODE_PORTS: &str = "20000-20015";

/// Returns what `oikaze top` says of the node in this process.
fn shown(pid: u64) -> Option<Value> {
    let (_, out, _) = finish(&mut oikaze(&["top", "--once", "--json"]));
    let all: Value = serde_json::from_str(&out).ok()?;
    all["nodes"].as_array()?.iter().find(|node| node["pid"] == pid).cloned()
}

/// Runs a job between two hosts. The first host drops what leaves by these rules, which may name
/// the set `cut` of one port. `oikaze top` shows that the sender gives up `cut` flows. All bytes
/// arrive, before and after.
fn behind(rules: &str, cut: u64) {
    let Some(_turn) = namespaces() else { return };
    let mut transfers = Transfers::start(oikaze_line(&format!(
        "run -n 2 --netns --failure-time 20000 --ports {NODE_PORTS} --env OIKAZE_FLOWS={FLOWS}"
    )));
    // Rules for what leaves see every datagram, as those for what arrives do not (tcx).
    let rules = format!(
        "table netdev oikaze {{ set cut {{ type inet_service; size 1; flags dynamic; }}; \
         chain leaving {{ type filter hook egress device eth0 priority 0; {rules}; }}; }}"
    );
    if !set_nft_rules(&transfers.namespace("0"), &rules) {
        return skip("it needs the nft command (package nftables)");
    }
    let mut node = Value::Null;
    until("flows that carry nothing are given up", || {
        node = shown(transfers.pid).unwrap_or_default();
        node["peers"][0]["counters"]["flows_cut"].as_u64() >= Some(cut)
    });
    let slow = node["slow_paths"].as_array().unwrap();
    let told = slow.iter().find(|slow| slow["path"] == "flows of bulk, by peer").expect("a line");
    assert!(told["remedy"].as_str().unwrap().contains("OIKAZE_FLOWS=1"), "{told}");
    let (_, text, _) = finish(&mut oikaze(&["top", "--once", node["job"].as_str().unwrap()]));
    assert!(text.contains("slow: flows of bulk, by peer: "), "{text}");
    transfers.verify();
    transfers.end();
}

/// WIND-14.5: the firewall lets only the ports of the nodes pass.
#[test]
fn firewall_that_passes_one_source_port_leaves_one_flow() {
    behind(&format!("udp sport != {NODE_PORTS} drop"), FLOWS - 1);
}

/// WIND-14.5: the firewall drops what one port sends, the first of further flows.
#[test]
fn firewall_that_drops_one_source_port_costs_one_flow() {
    behind(&format!("udp sport != {NODE_PORTS} add @cut {{ udp sport }}; udp sport @cut drop"), 1);
}
