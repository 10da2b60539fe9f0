//! What a connection tells its owner.

use super::{Death, Refusal, Rows, Segment, SendMode, Token};
use crate::wire::Lane;
use alloc::sync::Arc;

/// In the order in which things happened; see
/// [`Connection::poll_event`](super::Connection::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know each other; [`Connection::path`](super::Connection::path) is chosen.
    Established,
    /// The message is settled: placed or taken in by the peer (and, if ordered or synchronous,
    /// delivered in its turn). Its source is not read any more.
    Acknowledged(Token),
    /// The peer's upper layer refused the message. Its source is not read any more.
    Refused(Token, Refusal),
    /// The peer could not take the message in now ([`Refusal::NotPresent`]): it is settled here,
    /// and returned by [`Connection::take_returned`](super::Connection::take_returned), to be
    /// posted again.
    Returned,
    /// The connection failed before the message was settled: whether it arrived is not known.
    Failed(Token, Death),
    /// The end. Nothing more is sent or taken in. The owner calls
    /// [`Handler::abandon`](super::Handler::abandon).
    Dead(Death),
    /// A fast path does not work and is not used any more (WIND-8.12).
    Fallback(Fallback),
    /// Nothing came from the peer for half of the failure time: the link shall receive from it by
    /// the plainest way (WIND-8.13).
    Unheard,
    /// The peer is a newer process at the same rank. All older messages have failed, `abandon` has
    /// been called, and [`Connection::id`](super::Connection::id) *has changed*. `Established`
    /// follows when the newcomer is connected.
    Restarted {
        /// The newcomer's.
        incarnation: u64,
    },
}

/// Something on the way does not work, and the connection does without it from now on (WIND-8.12).
/// Each is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Datagrams handed over as one to be cut are lost, single ones arrive.
    Segmentation,
    /// Small datagrams past the kernel's IP are lost, those through the socket arrive.
    Bypass,
    /// Only the port for small datagrams is reached.
    BulkPort,
    /// Datagrams as long as the routes promise are lost.
    Size {
        /// Bytes that the routes of both ends promise.
        promised: usize,
        /// Bytes that arrive.
        carried: usize,
    },
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
                 the socket, more slowly (OIKAZE_WITHOUT=frames never tries)",
            ),
            Fallback::BulkPort => f.write_str(
                "nothing gets through to its port for bulk: bulk goes to the port for small messages, which wait behind it; let both \
                 UDP ports pass the firewall (OIKAZE_WITHOUT=lanes never tries)",
            ),
            Fallback::Size { promised, carried } => write!(
                f,
                "datagrams of {promised} bytes, which the routes promise, do not arrive: those of {carried} bytes go, more slowly; \
                 set one MTU on all interfaces between the two",
            ),
        }
    }
}

/// Why a message cannot be posted.
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
        /// Its length.
        len: u64,
        /// Maximum length of such a message.
        max: u64,
    },
}

/// What [`Connection::transmit`](super::Connection::transmit) has appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// These bytes follow on the wire; none if the payload was appended too, or there is none.
    pub payload: Option<Segment>,
    /// The payload's offset counts among the packed bytes of these rows, of the same region.
    pub rows: Option<Arc<Rows>>,
    /// Was the payload sent before? Then it is to be copied before it is sealed (WIND-5.5).
    pub again: bool,
    /// Which candidate address of the peer it goes to.
    pub path: u8,
    /// By which lane; a handshake by the small one.
    pub lane: Lane,
    /// The port it goes to, if not that of the address.
    pub port: Option<u16>,
    /// Part of a short message's bulk, while there is little else: it may go to the port of the
    /// address, as what is small does (WIND-8.9).
    pub short: bool,
    /// Which of the link's fast paths it may take (WIND-8.10).
    pub mode: SendMode,
    /// Sealed with the job's MAC instead of the connection's seal.
    pub handshake: bool,
}

impl Transmit {
    /// A datagram of the small lane that is complete as it was appended.
    pub(super) const fn small(path: u8, handshake: bool) -> Transmit {
        let mode = SendMode::Plain;
        Transmit {
            payload: None,
            rows: None,
            again: false,
            path,
            lane: Lane::Small,
            port: None,
            short: false,
            mode,
            handshake,
        }
    }
}
