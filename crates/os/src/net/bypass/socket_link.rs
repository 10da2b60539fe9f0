//! Links that share the sockets of a UDP link.

use super::tcx::receiver::ReceivedRoute;
use crate::net::link::Link;
use crate::net::udp::UdpLink;
use std::net::SocketAddr;

/// A link on top of the sockets of a [`UdpLink`]. Wrappers need more of it than other owners of a
/// link.
pub(crate) trait SocketLink: Link {
    /// Returns the link's sockets, which all wrappers share. A wrapper that polls them step by step
    /// does so past the wrappers in between. This is right because they only send.
    fn udp(&mut self) -> &mut UdpLink;

    /// Called for each datagram that is certainly this peer's, and that came by this route, past
    /// the sockets.
    fn heard_by_route(&mut self, peer: SocketAddr, route: &ReceivedRoute) {
        let _ = (peer, route);
    }
}

impl SocketLink for UdpLink {
    fn udp(&mut self) -> &mut UdpLink {
        self
    }
}
