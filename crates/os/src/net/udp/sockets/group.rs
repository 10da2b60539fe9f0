//! Sockets of joined groups, and the sockets that send to groups.

use super::socket::Socket;
use crate::features::DisabledFeatures;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// Joined group of one interface.
#[derive(Debug)]
pub(in crate::net) struct JoinedGroup {
    address: SocketAddr,
    interface: u32,
    pub(in crate::net::udp) socket: Socket,
}

impl JoinedGroup {
    /// Opens the group's socket at this interface.
    pub(in crate::net::udp) fn join(
        address: SocketAddr,
        interface: u32,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Self, Errno> {
        let at = scoped(address, interface);
        let socket = Socket::open_for_group(at, buffer, without)?;
        let everywhere = Ipv4Addr::UNSPECIFIED;
        match address.ip() {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(
                &socket.fd,
                &group,
                &everywhere,
                interface,
            )?,
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket.fd, &group, interface)?,
        }
        Ok(Self { address, interface, socket })
    }

    /// Returns `true` if the group has this address.
    pub(in crate::net::udp) fn is_of(&self, address: SocketAddr) -> bool {
        self.address == address
    }

    /// Returns the number of the interface.
    pub(in crate::net::udp) fn interface(&self) -> u32 {
        self.interface
    }
}

impl Drop for JoinedGroup {
    /// A child of a fork may hold the socket, too, for long, and would stay a member.
    fn drop(&mut self) {
        let (socket, everywhere) = (&self.socket.fd, Ipv4Addr::UNSPECIFIED);
        let _ = match self.address.ip() {
            IpAddr::V4(group) => sockopt::set_ip_drop_membership_with_ifindex(
                socket,
                &group,
                &everywhere,
                self.interface,
            ),
            IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(socket, &group, self.interface),
        };
    }
}

/// Group to which the link sends by one interface.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) struct GroupRoute {
    /// Name of the route, which stands in [`Outgoing::to`](crate::net::Outgoing::to).
    pub(in crate::net::udp) name: SocketAddr,
    /// Address of the group.
    pub(in crate::net::udp) address: SocketAddr,
    /// Address of this host at the interface, from which datagrams go.
    pub(in crate::net::udp) source: IpAddr,
    /// Number of the interface.
    pub(in crate::net::udp) interface: u32,
    /// Index of the link's own socket that sends.
    pub(in crate::net::udp) own: usize,
}

impl GroupRoute {
    /// Returns the name of the route to this group by this interface. An IPv4 address has no room
    /// for the interface, so the name is the mapped IPv6 address (RFC 4291, section 2.5.5.2).
    pub(in crate::net::udp) fn name_of(address: SocketAddr, interface: u32) -> SocketAddr {
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        SocketAddrV6::new(ip, address.port(), 0, interface).into()
    }
}

/// Returns the address with the interface as its scope, if its family has scopes.
pub(in crate::net::udp) fn scoped(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface).into(),
    }
}
