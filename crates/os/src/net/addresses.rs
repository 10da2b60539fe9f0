//! Addresses of this machine, and the MTU of a path.

use crate::interfaces::{self, Interface, Probe};
use oikaze_protocol::limits::{DATAGRAM_MAX, DATAGRAM_MIN};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address, with the port of the link (0 if no link was asked).
    pub address: SocketAddr,
    /// The interface's name.
    pub interface: String,
    /// Bytes of the largest IP packet that the interface takes.
    pub mtu: usize,
    /// The address is only reachable from this machine (or this network namespace).
    pub loopback: bool,
}

/// Returns all addresses of all interfaces that are up, loopback last. It leaves out link-local
/// IPv6 addresses, which mean nothing without the peer's own interface number.
///
/// # Errors
/// The interfaces could not be listed.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    let probe = Probe::open()?;
    let mut found: Vec<LocalAddress> =
        interfaces::list()?.into_iter().filter_map(|one| usable(one, &probe)).collect();
    found.sort_by_key(|local| local.loopback);
    Ok(found)
}

fn usable(one: Interface, probe: &Probe) -> Option<LocalAddress> {
    let mtu = one.is_usable().then(|| probe.mtu(&one.name))??;
    let (address, loopback) = (SocketAddr::new(one.address, 0), one.address.is_loopback());
    Some(LocalAddress { address, interface: one.name, mtu, loopback })
}

/// Bytes of the largest IP packet that the path to this address carries, as far as this machine
/// knows. It is the interface's MTU, or less if a router has reported less.
///
/// # Errors
/// No route, or no address family.
pub fn path_mtu(to: SocketAddr) -> io::Result<usize> {
    mtu_of(&routed(to)?, to)
}

/// Path that cannot carry the smallest datagrams that every path must carry (WIND-8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarrowPath {
    /// Interface of this machine at which the path begins, if its address shows it.
    pub interface: Option<String>,
    /// Bytes of the largest IP packet that the path carries.
    pub mtu: usize,
    /// Bytes that it must carry.
    pub needed: usize,
}

/// Returns the path to this address if it is too narrow, as far as this machine knows.
#[must_use]
pub fn narrow_path(to: SocketAddr) -> Option<NarrowPath> {
    let socket = routed(to).ok()?;
    let mtu = mtu_of(&socket, to).ok()?;
    let needed = DATAGRAM_MIN + headers(to);
    if mtu >= needed {
        return None;
    }
    let from = socket.local_addr().ok()?.ip();
    let all = interfaces::list().unwrap_or_default();
    let interface = all.into_iter().find(|one| one.address == from).map(|one| one.name);
    Some(NarrowPath { interface, mtu, needed })
}

/// Returns a socket that knows its route. Sends nothing: for UDP `connect` only looks up the route.
pub(super) fn routed(to: SocketAddr) -> io::Result<UdpSocket> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // Port 0 cannot be connected to; any other will do.
    let mut to = to;
    to.set_port(if to.port() == 0 { 9 } else { to.port() });
    connect(&socket, &to)?;
    Ok(socket.into())
}

fn mtu_of(socket: &UdpSocket, to: SocketAddr) -> io::Result<usize> {
    let mtu = if to.is_ipv4() { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? };
    Ok(mtu as usize)
}

/// Bytes of the headers of IP and UDP.
fn headers(to: SocketAddr) -> usize {
    if to.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// Bytes of the largest UDP datagram that the path to this peer carries, as far as this machine
/// knows.
#[must_use]
pub fn datagram_max_to(to: SocketAddr) -> usize {
    path_mtu(to).map_or(DATAGRAM_MIN, |mtu| payload_of(mtu, to))
}

/// Bytes of UDP payload in an IP packet of `mtu` bytes.
fn payload_of(mtu: usize, to: SocketAddr) -> usize {
    mtu.saturating_sub(headers(to)).min(DATAGRAM_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn loopback_is_found_marked_and_last() {
        let all = local_addresses().unwrap();
        let loopback =
            all.iter().find(|local| local.address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(loopback.loopback && loopback.mtu >= 1280, "{loopback:?}");
        assert!(all.is_sorted_by_key(|local| local.loopback));
        assert!(all.iter().all(
            |local| !matches!(local.address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local())
        ));
    }

    #[test]
    fn a_path_has_a_size() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        assert!(path_mtu(to).unwrap() >= 1280);
        assert_eq!(payload_of(1500, to), 1472);
        assert_eq!(payload_of(1500, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))), 1452);
        assert_eq!(payload_of(65_536, to), 65_507);
        assert_eq!(payload_of(0, to), 0);
    }
}
