//! Multicast: whether interfaces carry it, and whether a datagram to a group arrives.

use super::{Finding, Suitability};
use crate::features::DisabledFeatures;
use crate::interfaces::{self, Interface};
use crate::net::{Bind, Group, Link, Outgoing, ReceiveEach, UdpLink};
use oikaze_protocol::wire::Lane;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Groups that are tried, of the prefixes that jobs use (WIND-13.2).
const GROUPS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(239, 195, 255, 254)),
    IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0xffff, 0xfffe)),
];
/// Time in which a datagram must come back. It passes no wire.
const PATIENCE: Duration = Duration::from_millis(200);
const NEEDED: &str = "optional: what several nodes get alike is sent once";

pub(super) fn findings(without: &DisabledFeatures) -> Vec<Finding> {
    let names = ["multicast (IPv4)", "multicast (IPv6)"];
    let all = interfaces::list().unwrap_or_default();
    names.into_iter().zip(GROUPS).map(|(what, group)| finding(what, group, &all, without)).collect()
}

fn finding(
    what: &'static str,
    group: IpAddr,
    all: &[Interface],
    without: &DisabledFeatures,
) -> Finding {
    let is_of_family = |one: &&Interface| one.address.is_ipv4() == group.is_ipv4();
    let mut usable =
        all.iter().filter(|one| one.is_usable() && !one.address.is_loopback()).filter(is_of_family);
    if without.multicast || (group.is_ipv6() && without.ipv6) {
        let found = "switched off by OIKAZE_WITHOUT: sent to each node instead";
        return Finding::new(what, found, NEEDED, Suitability::Degraded)
            .fix("Remove it from OIKAZE_WITHOUT.");
    }
    let Some(first) = usable.clone().find(|one| one.multicast).or_else(|| usable.next()) else {
        let found = "no interface with such an address: not used";
        return Finding::new(what, found, NEEDED, Suitability::Good);
    };
    let name = &first.name;
    if !first.multicast {
        let found = format!("{name} does not carry it: sent to each node instead");
        return Finding::new(what, found, NEEDED, Suitability::Degraded)
            .fix(format!("ip link set {name} multicast on"));
    }
    match comes_back(group, first.address) {
        Ok(true) => {
            Finding::new(what, format!("yes, at {name} (tried)"), NEEDED, Suitability::Good)
        }
        Ok(false) => {
            let found = format!("nothing comes back at {name}: sent to each node instead");
            Finding::new(what, found, NEEDED, Suitability::Degraded)
                .fix("Permit UDP to groups in the firewall of this machine (nft list ruleset).")
        }
        Err(why) => {
            let found = format!("{name}: {why}: sent to each node instead");
            Finding::new(what, found, NEEDED, Suitability::Degraded)
                .fix("Permit joining groups in the sandbox (setsockopt IP_ADD_MEMBERSHIP).")
        }
    }
}

/// Sends a datagram to a group at the interface with this address. Returns `true` if this process
/// hears it.
fn comes_back(group: IpAddr, here: IpAddr) -> io::Result<bool> {
    let mut link =
        UdpLink::bind(&Bind::default()).map_err(|why| io::Error::other(why.to_string()))?;
    let port = link.port();
    let group = Group { address: SocketAddr::new(group, port), peer: SocketAddr::new(here, port) };
    // The group's port is this process's, so that other probes at the same time do not meet.
    link.join_group(&group)?;
    let to = link.route_group(&group)?;
    let words = port.to_le_bytes();
    link.send(&[Outgoing::new(&to, Lane::Bulk, &words)])?;
    let (begun, mut came) = (Instant::now(), false);
    while !came && begun.elapsed() < PATIENCE {
        link.receive(&mut |arrival| came |= arrival.bytes == words)?;
    }
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(address: &str, multicast: bool) -> Interface {
        let address = address.parse().unwrap();
        Interface { name: "eth7".into(), index: 1, address, prefix: 24, up: true, multicast }
    }

    #[test]
    fn interface_without_multicast_is_told_with_what_to_do() {
        let of = |all: &[Interface], without: &str| {
            finding("m", GROUPS[0], all, &DisabledFeatures::parse(without).unwrap())
        };
        let lacks = of(&[interface("10.0.0.1", false)], "");
        assert_eq!(lacks.fix, "ip link set eth7 multicast on");
        assert_eq!(of(&[interface("fd00::1", true)], "").ok, Suitability::Good);
        let off = of(&[interface("10.0.0.1", true)], "multicast");
        assert!(off.found.contains("switched off") && !off.fix.is_empty(), "{off}");
    }
}
