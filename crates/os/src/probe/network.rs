//! UDP features and limits of the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Finding, Suitability, bytes, number};
use crate::features::DisabledFeatures;
use crate::net::{self, Bind, Link, Offload};
use oikaze_protocol::limits::{SOCKET_BUFFER, SOCKET_BUFFER_LEAST};

pub(super) fn findings(without: &DisabledFeatures) -> Vec<Finding> {
    let mut findings =
        vec![sysctl("net.core.rmem_max", "rmem_max"), sysctl("net.core.wmem_max", "wmem_max")];
    findings.extend(
        std::fs::read_to_string("/proc/sys/net/ipv4/udp_mem")
            .ok()
            .and_then(|text| udp_memory(&text)),
    );
    let ask = |ip: IpAddr| Bind { addresses: vec![ip], without: *without, ..Bind::default() };
    match net::open(&ask(Ipv4Addr::LOCALHOST.into())) {
        Ok(link) => findings.extend(of_link(&link)),
        Err(e) => {
            let finding = Finding::new(
                "UDP",
                e.to_string(),
                "for everything between nodes",
                Suitability::Missing,
            );
            findings.push(
                finding.fix("Permit UDP sockets in the sandbox; is the loopback interface up?"),
            );
        }
    }
    let (found, ok) = match net::open(&ask(Ipv6Addr::LOCALHOST.into())) {
        _ if without.ipv6 => ("switched off by OIKAZE_WITHOUT=ipv6".to_owned(), Suitability::Good),
        Ok(_) => ("works (tried)".to_owned(), Suitability::Good),
        Err(e) => (e.to_string(), Suitability::Good),
    };
    findings.push(Finding::new("IPv6", found, "optional: used where both ends have it", ok));
    findings.push(early_receive(without));
    findings
}

/// Probes early receive at all interfaces, for a moment.
fn early_receive(without: &DisabledFeatures) -> Finding {
    let state = net::open(&Bind { without: *without, ..Bind::default() })
        .map(|link| link.statistics().tcx_receive);
    let (found, ok) = match state {
        Ok(Offload::On) => ("yes (tried)", Suitability::Good),
        Ok(Offload::Off) => ("switched off by OIKAZE_WITHOUT", Suitability::Degraded),
        Ok(Offload::Refused) => (
            "not permitted, or not known to this kernel, or no Ethernet interface",
            Suitability::Degraded,
        ),
        Err(_) => ("no UDP (see there)", Suitability::Degraded),
    };
    let needed =
        "for small messages past the kernel's IP: 2.8 instead of 4.4 µs where it was measured";
    Finding::new("early receive (tcx), frames", found, needed, ok).fix(
        "Linux 6.6, and root or: setcap cap_bpf,cap_net_admin,cap_net_raw+ep PROGRAM; for a container, --cap-add with the same three. \
         Without it small messages go by the sockets.",
    )
}

fn sysctl(what: &'static str, file: &str) -> Finding {
    let needed = format!("{} at the least, or CAP_NET_ADMIN", bytes(SOCKET_BUFFER_LEAST as u64));
    match number::<u64>(&format!("/proc/sys/net/core/{file}")) {
        Some(limit) => {
            let ok = if limit >= SOCKET_BUFFER_LEAST as u64 {
                Suitability::Good
            } else {
                Suitability::Degraded
            };
            Finding::new(what, bytes(limit), needed, ok).fix(raise(what, SOCKET_BUFFER))
        }
        // Hidden inside containers with their own network.
        None => Finding::new(
            what,
            "hidden (see the socket buffer, which was tried)",
            needed,
            Suitability::Good,
        ),
    }
}

/// Remedy for a limit of the system, until the next boot and permanently.
fn raise(what: &str, value: usize) -> String {
    format!(
        "sysctl -w {what}={value} (on the host, for a container); a line in /etc/sysctl.d keeps it"
    )
}

/// Memory of all UDP sockets of the system together; the third number is the maximum, in pages.
fn udp_memory(text: &str) -> Option<Finding> {
    let what = "net.ipv4.udp_mem";
    let pages: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
    let page = rustix::param::page_size() as u64;
    // A node's buffers in both directions, doubled because the kernel counts the memory that a
    // datagram occupies.
    let least = 4 * SOCKET_BUFFER as u64;
    let ok =
        if pages.saturating_mul(page) >= least { Suitability::Good } else { Suitability::Degraded };
    let needed = format!(
        "{} for each node here, or arrivals are dropped though a socket has room",
        bytes(least)
    );
    let enough = 8 * least / page;
    let fix = format!(
        "sysctl -w {what}=\"{} {} {enough}\"; a line in /etc/sysctl.d keeps it",
        enough / 2,
        enough * 3 / 4
    );
    Some(Finding::new(what, bytes(pages.saturating_mul(page)), needed, ok).fix(fix))
}

fn of_link(link: &impl Link) -> [Finding; 5] {
    let statistics = link.statistics();
    let buffer = |what, counted: usize, limit| {
        // The kernel reports twice the requested size, because its own bookkeeping is included.
        let granted = counted / 2;
        let ok =
            if granted >= SOCKET_BUFFER_LEAST { Suitability::Good } else { Suitability::Degraded };
        let needed = format!(
            "{}; {} is asked for",
            bytes(SOCKET_BUFFER_LEAST as u64),
            bytes(SOCKET_BUFFER as u64)
        );
        Finding::new(what, bytes(granted as u64), needed, ok).fix(raise(limit, SOCKET_BUFFER))
    };
    let offload = |what, state: Offload, verb: &str| {
        let (found, ok) = match state {
            Offload::On => ("yes (tried)", Suitability::Good),
            Offload::Off => ("switched off by OIKAZE_WITHOUT", Suitability::Degraded),
            Offload::Refused => ("refused by the kernel", Suitability::Degraded),
        };
        Finding::new(
            what,
            found,
            format!("to {verb} several datagrams by one call (twice the bandwidth)"),
            ok,
        )
        .fix("Linux 5.15 has it; remove it from OIKAZE_WITHOUT.")
    };
    [
        buffer("UDP receive buffer", statistics.receive_buffer, "net.core.rmem_max"),
        buffer("UDP send buffer", statistics.send_buffer, "net.core.wmem_max"),
        offload("UDP_SEGMENT (GSO)", statistics.gso, "send"),
        offload("UDP_GRO", statistics.gro, "receive"),
        without_copy(statistics.splice),
    ]
}

fn without_copy(state: Offload) -> Finding {
    let (found, ok) = match state {
        Offload::On => ("yes, says the kernel's version", Suitability::Good),
        Offload::Off => ("switched off by OIKAZE_WITHOUT", Suitability::Degraded),
        Offload::Refused => ("no, says the kernel's version", Suitability::Degraded),
    };
    let needed = "6.5, to send bulk at jumbo MTUs without a copy, where the card gathers";
    Finding::new("splice to UDP", found, needed, ok)
        .fix("Linux 6.5 has it; remove it from OIKAZE_WITHOUT.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_for_udp_is_told_with_what_to_do() {
        let page = rustix::param::page_size() as u64;
        let few =
            udp_memory(&format!("10\t20\t{}\n", 4 * SOCKET_BUFFER as u64 / page - 1)).unwrap();
        assert!(few.ok == Suitability::Degraded, "{few:?}");
        assert!(few.fix.contains("sysctl -w net.ipv4.udp_mem="), "{few:?}");
        let enough = udp_memory(&format!("10 20 {}", 4 * SOCKET_BUFFER as u64 / page)).unwrap();
        assert_eq!(enough.ok, Suitability::Good);
        assert!(udp_memory("10 20").is_none() && udp_memory("a b c").is_none());
    }

    #[test]
    fn a_small_buffer_is_told_with_what_to_do() {
        let bind =
            Bind { addresses: vec![Ipv4Addr::LOCALHOST.into()], buffer: 1, ..Bind::default() };
        let small = of_link(&net::open(&bind).unwrap());
        for (finding, limit) in small.iter().zip(["rmem_max", "wmem_max"]) {
            assert!(finding.ok == Suitability::Degraded, "{finding:?}");
            assert!(finding.fix.contains(limit), "{finding:?}");
        }
    }
}
