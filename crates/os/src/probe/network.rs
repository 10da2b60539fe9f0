//! UDP as the kernel grants it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Finding, Verdict, bytes, number};
use crate::link::{Bind, Link, Offload, UdpLink};
use crate::without::Without;

/// Below this the bursts of one window are lost on arrival.
const BUFFER: u64 = 2 << 20;

pub(super) fn findings(without: &Without) -> Vec<Finding> {
    let mut findings = vec![sysctl("net.core.rmem_max", "rmem_max"), sysctl("net.core.wmem_max", "wmem_max")];
    let ask = |ip: IpAddr| Bind { addresses: vec![ip], without: *without, ..Bind::default() };
    match UdpLink::bind(&ask(Ipv4Addr::LOCALHOST.into())) {
        Ok(link) => findings.extend(of_link(&link)),
        Err(e) => {
            let finding = Finding::new("UDP", e.to_string(), "for everything between nodes", Verdict::Missing);
            findings.push(finding.fix("Permit UDP sockets in the sandbox; is the loopback interface up?"));
        }
    }
    let (found, ok) = match UdpLink::bind(&ask(Ipv6Addr::LOCALHOST.into())) {
        _ if without.ipv6 => ("switched off by OIKAZE_WITHOUT=ipv6".to_owned(), Verdict::Good),
        Ok(_) => ("works (tried)".to_owned(), Verdict::Good),
        Err(e) => (e.to_string(), Verdict::Good),
    };
    findings.push(Finding::new("IPv6", found, "optional: used where both ends have it", ok));
    findings
}

fn sysctl(what: &'static str, file: &str) -> Finding {
    let needed = format!("{}, or CAP_NET_ADMIN", bytes(BUFFER));
    match number::<u64>(&format!("/proc/sys/net/core/{file}")) {
        Some(limit) => {
            let ok = if limit >= BUFFER { Verdict::Good } else { Verdict::Degraded };
            Finding::new(what, bytes(limit), needed, ok).fix(format!("sysctl -w {what}=16777216"))
        }
        // Not shown inside containers with their own network.
        None => Finding::new(what, "hidden (see the socket buffer, which was tried)", needed, Verdict::Good),
    }
}

fn of_link(link: &UdpLink) -> [Finding; 3] {
    let statistics = link.statistics();
    // The kernel says twice what was asked for: its own bookkeeping is in it.
    let buffer = statistics.receive_buffer as u64 / 2;
    let granted = if buffer >= BUFFER { Verdict::Good } else { Verdict::Degraded };
    let offload = |what, state: Offload, verb: &str| {
        let (found, ok) = match state {
            Offload::On => ("yes (tried)", Verdict::Good),
            Offload::Off => ("switched off by OIKAZE_WITHOUT", Verdict::Degraded),
            Offload::Refused => ("refused by the kernel", Verdict::Degraded),
        };
        Finding::new(what, found, format!("to {verb} several datagrams by one call (twice the bandwidth)"), ok)
            .fix("Linux 5.15 has it; remove it from OIKAZE_WITHOUT.")
    };
    [
        Finding::new("UDP receive buffer", bytes(buffer), bytes(BUFFER), granted)
            .fix("sysctl -w net.core.rmem_max=16777216 (on the host, for a container)"),
        offload("UDP_SEGMENT (GSO)", statistics.gso, "send"),
        offload("UDP_GRO", statistics.gro, "receive"),
    ]
}
