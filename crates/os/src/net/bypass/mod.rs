//! Paths around the kernel's UDP stack, each a wrapper around a plain [`UdpLink`]: tcx receive, raw
//! Ethernet frames, zero-copy sending.
//!
//! A wrapper takes what it can and leaves the rest to the link that it wraps. [`super::open`]
//! stacks all of them. Each does nothing where it is switched off or not permitted.

pub(crate) mod bpf;
pub(crate) mod raw_tx;
pub(crate) mod splice;
pub(crate) mod tcx;
#[cfg(test)]
pub(in crate::net) mod tests;

use super::Link;
use super::udp::UdpLink;
use std::net::SocketAddr;
use tcx::ReceivedRoute;

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

/// Returns `true` if a datagram names no connection (WIRE-2.1). Such datagrams go through the
/// sockets (WIND-10.5).
fn is_handshake(datagram: &[u8]) -> bool {
    datagram.first_chunk::<8>().is_none_or(|connection| *connection == [0; 8])
}
