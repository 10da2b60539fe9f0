//! Events that a connection reports to its owner.

use crate::wind::death::Death;
use crate::wind::handler::Refusal;
use crate::wind::send::message::{Rows, Segment, Token};
use crate::wind::send::mode::SendMode;
use crate::wire::header::Lane;
use alloc::sync::Arc;

/// Event of a connection, in the order in which things happened; see
/// [`Connection::poll_event`](super::Connection::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know each other, and [`Connection::path`](super::Connection::path) is chosen.
    Established,
    /// The message is settled: the peer has placed or accepted it. If it is ordered or synchronous,
    /// the peer has also delivered it in order. The connection no longer reads its source.
    Acknowledged(Token),
    /// The peer's upper layer refused the message. The connection no longer reads its source.
    Refused(Token, Refusal),
    /// The peer could not accept the message now ([`Refusal::NotPresent`]). The message is settled
    /// here. [`Connection::take_returned`](super::Connection::take_returned) returns it, so that
    /// the owner can post it again.
    Returned,
    /// The connection failed before the message was settled. Whether the message arrived is
    /// unknown.
    Failed(Token, Death),
    /// The connection has ended, and sends and accepts nothing more. The owner calls
    /// [`Handler::abandon`](super::Handler::abandon).
    Dead(Death),
    /// A fast path does not work, and the connection no longer uses it (WIND-8.12).
    Fallback(Fallback),
    /// Nothing came from the peer for half of the failure time. The link shall receive from the
    /// peer without any fast path (WIND-8.13).
    PeerSilent,
    /// The peer is a newer process at the same rank, and [`Connection::id`](super::Connection::id)
    /// *has changed*. If the connection was established, all older messages have failed, and
    /// `abandon` has been called (WIND-1.6). `Established` follows when the new process is
    /// connected.
    Restarted {
        /// Incarnation of the new process.
        incarnation: u64,
    },
}

/// A feature that does not work on the path to the peer, and that the connection no longer uses
/// (WIND-8.12). The connection reports each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Segmentation offload: datagrams sent as one train are lost, while single datagrams arrive.
    Segmentation,
    /// Kernel bypass: small datagrams that bypass the kernel's IP are lost, while those through the
    /// socket arrive.
    Bypass,
    /// The peer's bulk port: only its port for small datagrams is reached.
    BulkPort,
    /// A flow of bulk: nothing gets through from one of this node's source ports, while others
    /// carry.
    Flow,
    /// Datagram size: datagrams as long as the routes promise are lost.
    Size {
        /// Bytes that the routes of both ends promise.
        promised: usize,
        /// Bytes of the largest datagram that arrives.
        carried: usize,
    },
}

impl Fallback {
    /// Returns the bit of this kind of fallback.
    pub(super) const fn bit(&self) -> u8 {
        match self {
            Fallback::Segmentation => 1,
            Fallback::Bypass => 2,
            Fallback::BulkPort => 4,
            Fallback::Flow => 8,
            Fallback::Size { .. } => 16,
        }
    }
}

impl core::fmt::Display for Fallback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Fallback::Segmentation => f.write_str(
                "trains of datagrams (UDP_SEGMENT) are lost on the way, while single ones arrive: they go one by one, more slowly; \
                 a driver, tunnel or rule cuts none (see ethtool -k DEVICE; OIKAZE_WITHOUT=gso,splice never tries)",
            ),
            Fallback::Bypass => f.write_str(
                "frames sent past the kernel's IP are lost on the way, while datagrams of the socket arrive: small messages go by \
                 the socket, more slowly (OIKAZE_WITHOUT=raw-tx never tries)",
            ),
            Fallback::BulkPort => f.write_str(
                "nothing gets through to its port for bulk: bulk goes to the port for small messages, which wait behind it; let both \
                 UDP ports pass the firewall (OIKAZE_WITHOUT=lanes never tries)",
            ),
            Fallback::Flow => f.write_str(
                "nothing gets through from one of this node's UDP ports for bulk, while others carry: bulk goes by the others; let \
                 datagrams from any source port pass the firewall (OIKAZE_FLOWS=1 uses one port only)",
            ),
            Fallback::Size { promised, carried } => write!(
                f,
                "datagrams of {promised} bytes, which the routes promise, do not arrive: those of {carried} bytes go, more slowly; \
                 set one MTU on all interfaces between the two",
            ),
        }
    }
}

/// Reason why a message cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PostError {
    /// Too many messages are in flight to this peer.
    #[error(
        "{} messages are in flight to this peer: wait until some are acknowledged",
        crate::limits::MESSAGES_IN_FLIGHT
    )]
    Full,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Dead(Death),
    /// The body is too long.
    #[error("a message body of {len} bytes is longer than {max} bytes: cut it into several")]
    TooLong {
        /// Length of the body in bytes.
        len: u64,
        /// Maximum length of the body in bytes.
        max: u64,
    },
}

/// Result of [`Connection::transmit`](super::Connection::transmit): how the appended datagram is to
/// be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Payload that follows the appended bytes on the wire. `None` if the payload was appended too,
    /// or if there is no payload.
    pub payload: Option<Segment>,
    /// Rows of the payload's region. If present, the payload's offset counts among the packed bytes
    /// of these rows.
    pub rows: Option<Arc<Rows>>,
    /// Whether the payload was sent before. The link then copies the payload before sealing it
    /// (WIND-5.5).
    pub was_sent: bool,
    /// Candidate address of the peer that the datagram goes to.
    pub path: u8,
    /// Lane of the datagram; handshakes use the small lane.
    pub lane: Lane,
    /// Destination port, if it is not the port of the address.
    pub port: Option<u16>,
    /// Flow of bulk, which is one of this node's source ports (WIND-14.1). The first is 0.
    pub flow: u8,
    /// Whether the datagram is part of a short message's bulk while little else is in flight. Like
    /// small datagrams, it may then go to the port of the address (WIND-8.9).
    pub short: bool,
    /// Fast paths of the link that the datagram may take (WIND-8.10).
    pub mode: SendMode,
    /// Whether the datagram is sealed with the job's MAC instead of the connection's seal.
    pub handshake: bool,
}

impl Transmit {
    /// Returns the description of a small-lane datagram that is complete as appended.
    #[must_use]
    pub const fn small(path: u8, handshake: bool) -> Transmit {
        let mode = SendMode::Plain;
        Transmit {
            payload: None,
            rows: None,
            was_sent: false,
            path,
            lane: Lane::Small,
            port: None,
            flow: 0,
            short: false,
            mode,
            handshake,
        }
    }
}
