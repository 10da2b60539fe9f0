//! Formats in which datagrams are recorded.

use std::net::SocketAddr;
use std::time::Duration;

/// A datagram that passes the link.
#[derive(Clone, Copy, Debug)]
pub struct CapturedDatagram<'a> {
    /// Time since 1970.
    pub at: Duration,
    /// `true` if this node sent the datagram, `false` if it received it.
    pub sent: bool,
    /// Sender. For a sent datagram, the address at which this node would be answered, as far as is
    /// known.
    pub from: SocketAddr,
    /// Receiver. For a received datagram, the address at which this node was reached, as far as is
    /// known.
    pub to: SocketAddr,
    /// Bytes of the datagram, in up to three consecutive parts.
    pub parts: [&'a [u8]; 3],
    /// Is `true` if the datagram came with a congestion mark (RFC 3168), because a queue on its
    /// path was filling.
    pub congested: bool,
}

impl CapturedDatagram<'_> {
    /// Bytes of the datagram.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Returns `true` if the datagram has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A format in which datagrams are recorded.
pub trait Recorder: Send {
    /// Writes the beginning of the file.
    fn begin(&mut self, into: &mut Vec<u8>);
    /// Writes one datagram.
    fn record(&mut self, datagram: &CapturedDatagram<'_>, into: &mut Vec<u8>);
}
