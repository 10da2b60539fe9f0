//! Multicast groups: joining them, and sending to them.
//!
//! Each joined group has a socket of its own for each interface, bound to the group's address, so
//! that nothing else comes there. It is polled among the bulk sockets. Datagrams to a group leave
//! by the link's own bulk socket, so their source is the address that peers know.

use super::link::{SocketOptions, UdpLink};
use super::sockets::group::{GroupRoute, JoinedGroup, scoped};
use super::sockets::{Sockets, reaching};
use crate::interfaces;
use crate::net::addresses::routed;
use crate::net::link::Group;
use oikaze_protocol::wire::Lane;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of groups that a link joins or sends to at a time.
const GROUPS_MAX: usize = 8;
/// Routers that a datagram to a group passes: none, so it stays in the subnet.
const GROUP_HOPS: u32 = 1;

/// Interface by which a peer is reached.
struct PeerInterface {
    index: u32,
    /// Address of this host towards the peer.
    local: IpAddr,
    /// The peer has an address of this host.
    is_here: bool,
}

impl PeerInterface {
    fn of(peer: SocketAddr) -> io::Result<Self> {
        let local = routed(peer)?.local_addr()?.ip();
        let all = interfaces::list()?;
        let is_here = all.iter().any(|one| one.address == peer.ip());
        let found = all.into_iter().find(|one| one.address == local && one.index > 0);
        let Some(found) = found else { return Err(Errno::NODEV.into()) };
        Ok(Self { index: found.index, local, is_here })
    }
}

impl UdpLink {
    /// Opens the group's socket at the interface by which the peer is reached.
    pub(super) fn join(&mut self, group: &Group) -> io::Result<()> {
        check(group)?;
        let interface = PeerInterface::of(group.peer)?.index;
        let is_same = |one: &JoinedGroup| one.is_of(group.address) && one.interface() == interface;
        if self.sockets.joined.iter().any(is_same) {
            return Ok(());
        }
        if self.sockets.joined.len() >= GROUPS_MAX {
            return Err(Errno::NOBUFS.into());
        }
        let SocketOptions { buffer, without } = &self.options;
        let joined = JoinedGroup::join(group.address, interface, *buffer, without)?;
        if self.watch.has_sleepers() {
            self.watch.add(joined.socket.fd.as_fd())?;
        }
        self.sockets.joined.push(joined);
        Ok(())
    }

    /// Closes the group's sockets.
    pub(super) fn leave(&mut self, address: SocketAddr) {
        let watch = &self.watch;
        self.sockets.joined.retain(|one| {
            let stays = !one.is_of(address);
            if !stays {
                watch.remove(one.socket.fd.as_fd());
            }
            stays
        });
    }

    /// Prepares the socket that sends to the group.
    pub(super) fn route_to_group(&mut self, group: &Group) -> io::Result<SocketAddr> {
        check(group)?;
        let interface = PeerInterface::of(group.peer)?;
        let PeerInterface { index: interface, local: source, is_here } = interface;
        let name = GroupRoute::name_of(group.address, interface);
        let lane = self.sockets.lane_of(Lane::Bulk);
        let Sockets { own, group_routes, loops_groups, .. } = &mut self.sockets;
        let own_index = reaching(&own[lane], group.peer).ok_or(Errno::AFNOSUPPORT)?;
        let socket = own[lane].get(own_index).ok_or(Errno::AFNOSUPPORT)?;
        // Copies for this host cost time, and only other nodes of this host need them.
        *loops_groups |= is_here;
        socket.send_to_groups(group.address.is_ipv4(), GROUP_HOPS, *loops_groups)?;
        group_routes.retain(|route| route.name != name);
        if group_routes.len() >= GROUPS_MAX {
            group_routes.remove(0);
        }
        let address = scoped(group.address, interface);
        group_routes.push(GroupRoute { name, address, source, interface, own: own_index });
        Ok(name)
    }
}

/// Checks that the address is a group's, and of the family of the peer.
fn check(group: &Group) -> Result<(), Errno> {
    if !group.address.ip().is_multicast() || group.address.port() == 0 {
        return Err(Errno::INVAL);
    }
    if group.address.is_ipv4() != group.peer.is_ipv4() {
        return Err(Errno::AFNOSUPPORT);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
