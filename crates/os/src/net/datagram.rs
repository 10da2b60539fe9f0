//! Datagrams that a link sends and receives.

use crate::memory::Gather;
use oikaze_protocol::wind::SendMode;
use oikaze_protocol::wire::Lane;
use std::net::SocketAddr;

/// One datagram to be sent: `head`, `payload` and `tag`, concatenated.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Address of the receiver.
    pub to: &'a SocketAddr,
    /// Lane of the datagram. Bulk leaves from a port of its own if the link has one
    /// ([`LinkProperties::bulk_port`](super::LinkProperties::bulk_port)).
    pub lane: Lane,
    /// Flow of bulk, each of which leaves from a port of its own (WIND-14.1). The first is 0, and
    /// leaves from the port for bulk. A link without further ports sends all from there
    /// ([`LinkProperties::flows`](super::LinkProperties::flows)).
    pub flow: u8,
    /// Fast paths that the datagram may take.
    pub mode: SendMode,
    /// First bytes of the datagram: header and frames.
    pub head: &'a [u8],
    /// Bytes after the head, sent from where they lie in memory; may be empty.
    pub payload: &'a Gather,
    /// Bytes after the payload.
    pub tag: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A datagram of these bytes alone, which may take every fast path.
    #[must_use]
    pub const fn new(to: &'a SocketAddr, lane: Lane, head: &'a [u8]) -> Outgoing<'a> {
        let (flow, payload, tag) = (0, &Gather::EMPTY, &[]);
        Outgoing { to, lane, flow, mode: SendMode::Any, head, payload, tag }
    }

    /// Bytes of the datagram.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len() + self.tag.len()
    }

    /// Returns `true` if the datagram has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Address of the sender.
    pub from: SocketAddr,
    /// All bytes of the datagram.
    pub bytes: &'a [u8],
    /// Congestion Experienced (RFC 3168): a queue on the path was filling.
    pub congested: bool,
    /// The datagram came to a multicast group that the link has joined.
    pub to_group: bool,
}

impl<'a> Arrival<'a> {
    /// An arrival without a congestion mark, at an address of the link.
    #[must_use]
    pub const fn new(from: SocketAddr, bytes: &'a [u8]) -> Arrival<'a> {
        Arrival { from, bytes, congested: false, to_group: false }
    }
}

/// Returns `true` if a datagram names no connection (WIRE-2.1). Such datagrams go through the
/// sockets (WIND-10.5).
pub(crate) fn is_handshake(datagram: &[u8]) -> bool {
    datagram.first_chunk::<8>().is_none_or(|connection| *connection == [0; 8])
}
