//! Datagrams that were dropped at this machine since it has started, by whom, and why.

use super::{Finding, Suitability};
use crate::interfaces::{self, Probe};
use std::collections::BTreeSet;

/// One datagram in this many may be dropped. Interfaces also count packets as dropped that nobody
/// on this machine wanted.
const TOLERATED: u64 = 1000;
/// Last part of the names of counters of a cloud's limits (the driver `ena` of EC2).
const ALLOWANCE: &str = "_allowance_exceeded";

pub(super) fn findings() -> Vec<Finding> {
    // Not /proc/net, which is that of the process's first thread.
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    };
    vec![
        by_sockets(&read("snmp"), &read("snmp6")),
        by_interfaces(&read("dev")),
        by_cloud(&driver_counters()),
    ]
}

/// Returns the counters of all drivers, with the interface's name and their own.
fn driver_counters() -> Vec<(String, String, u64)> {
    let names: BTreeSet<String> =
        interfaces::list().unwrap_or_default().into_iter().map(|one| one.name).collect();
    let Ok(probe) = Probe::open() else { return Vec::new() };
    let of = |interface: String| {
        let counters = probe.driver_counters(&interface).unwrap_or_default();
        counters.into_iter().map(move |(name, value)| (interface.clone(), name, value))
    };
    names.into_iter().flat_map(of).collect()
}

/// Judges the kernel's counters of UDP: two lines `Udp:` for IPv4, one counter a line for IPv6.
fn by_sockets(snmp: &str, snmp6: &str) -> Finding {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let v4 = names.zip(lines.next().unwrap_or_default().split_whitespace());
    let v6 =
        snmp6.lines().filter_map(|line| line.strip_prefix("Udp6")?.split_once(char::is_whitespace));
    let all: Vec<(&str, u64)> =
        v4.chain(v6).filter_map(|(name, value)| Some((name, value.trim().parse().ok()?))).collect();
    let sum = |wanted| all.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| value).sum();
    let (arrived, dropped): (u64, u64) = (sum("InDatagrams"), sum("RcvbufErrors"));
    let found = match all.is_empty() {
        true => "the system does not say".to_owned(),
        false => format!("{dropped} by full buffers, {arrived} received"),
    };
    Finding::new("drops at sockets", found, needed(), verdict(dropped, arrived)).fix(
        "Raise net.core.rmem_max and net.ipv4.udp_mem; a process that is stopped or gets no core \
         also fills its buffer. nstat -az UdpRcvbufErrors shows whether the number grows.",
    )
}

/// Judges the counters of interfaces: a line for each, with 8 numbers of receiving and 8 of
/// sending.
fn by_interfaces(dev: &str) -> Finding {
    let mut worst = Suitability::Good;
    let mut some = Vec::new();
    for (name, numbers) in dev.lines().filter_map(|line| line.split_once(':')) {
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let [_, received, errors, drop, fifo, _, _, _, _, sent, sent_errors, sent_drop, ..] =
            numbers[..]
        else {
            continue;
        };
        let name = name.trim();
        for (what, lost, all) in [
            ("received", errors.max(drop).max(fifo), received),
            ("sent", sent_errors.max(sent_drop), sent),
        ] {
            if lost > 0 {
                some.push(format!("{name} {lost}, {all} {what}"));
                worst = worst.max(verdict(lost, all));
            }
        }
    }
    let found = if some.is_empty() { "none counted".to_owned() } else { some.join("; ") };
    Finding::new("drops at interfaces", found, needed(), worst).fix(
        "ip -s -s link show says which kind; larger rings (ethtool -G DEVICE rx 4096), more \
         queues (ethtool -L), another cable or port.",
    )
}

/// Judges the counters by which a cloud's driver says that the machine exceeded its limits.
fn by_cloud(counters: &[(String, String, u64)]) -> Finding {
    let limits: Vec<_> = counters.iter().filter(|(_, name, _)| name.ends_with(ALLOWANCE)).collect();
    let exceeded: Vec<String> = limits
        .iter()
        .filter(|(_, _, value)| *value > 0)
        .map(|(interface, name, value)| format!("{interface} {name} {value}"))
        .collect();
    let (found, ok) = match (limits.is_empty(), exceeded.is_empty()) {
        (true, _) => ("no driver counts them here".to_owned(), Suitability::Good),
        (_, true) => ("none counted".to_owned(), Suitability::Good),
        _ => (exceeded.join(", "), Suitability::Degraded),
    };
    Finding::new("drops by a cloud's limits", found, needed(), ok).fix(
        "A larger instance, or fewer and larger datagrams (an MTU of 9000 within the network); \
         ethtool -S DEVICE shows whether the number grows.",
    )
}

fn needed() -> String {
    format!("less than 1 in {TOLERATED} since the machine has started: each costs a round trip")
}

fn verdict(lost: u64, all: u64) -> Suitability {
    if lost.saturating_mul(TOLERATED) < all.max(1) {
        Suitability::Good
    } else {
        Suitability::Degraded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding\nIp: 1\n\
                        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                        Udp: 40000 3 7 41000 7 0\nUdpLite: InDatagrams\nUdpLite: 9\n";

    #[test]
    fn sockets_of_both_families_are_added() {
        let few = by_sockets(SNMP, "Udp6InDatagrams \t10\nUdp6RcvbufErrors \t2\n");
        assert!(few.ok == Suitability::Good && few.fix.is_empty(), "{few}");
        assert!(few.found.contains("9 by full buffers, 40010 received"), "{few}");
        let many = by_sockets(SNMP, "Udp6RcvbufErrors 34\n");
        assert!(many.ok == Suitability::Degraded && many.fix.contains("rmem_max"), "{many}");
        assert_eq!(by_sockets("", "").ok, Suitability::Good);
    }

    #[test]
    fn interfaces_that_drop_are_named() {
        let line = |drop: u64, sent_drop: u64| {
            format!("Inter-| R\n eth0: 99 5000 0 {drop} 0 0 0 0 99 7000 0 {sent_drop} 0 0 0 0\n")
        };
        assert_eq!(by_interfaces(&line(0, 0)).found, "none counted");
        let few = by_interfaces(&line(4, 0));
        assert!(few.ok == Suitability::Good && few.found == "eth0 4, 5000 received", "{few}");
        let many = by_interfaces(&line(0, 70));
        assert!(many.ok == Suitability::Degraded && many.found == "eth0 70, 7000 sent", "{many}");
        assert_eq!(by_interfaces("eth0: 1 2 nonsense\n").ok, Suitability::Good);
    }

    #[test]
    fn limits_of_a_cloud_are_told_as_soon_as_they_are_exceeded() {
        let counter = |name: &str, value| ("ens5".to_owned(), name.to_owned(), value);
        let none = by_cloud(&[counter("rx_drops", 9)]);
        assert!(none.ok == Suitability::Good && none.found.starts_with("no driver"), "{none}");
        let within =
            [counter("pps_allowance_exceeded", 0), counter("conntrack_allowance_available", 5)];
        assert_eq!(by_cloud(&within).found, "none counted");
        let beyond = by_cloud(&[counter("bw_out_allowance_exceeded", 3)]);
        assert!(beyond.ok == Suitability::Degraded, "{beyond}");
        assert_eq!(beyond.found, "ens5 bw_out_allowance_exceeded 3");
    }
}
