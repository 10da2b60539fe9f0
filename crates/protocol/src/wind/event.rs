//! What a connection tells its owner.

use super::{Refusal, Rows, Segment, Token};
use crate::wire::{Lane, Misfit, Refuse};
use alloc::sync::Arc;

/// In the order in which things happened; see [`Connection::poll_event`](super::Connection::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know each other; [`Connection::path`](super::Connection::path) is chosen.
    Established,
    /// The message is settled: placed or taken in by the peer (and, if ordered or synchronous, delivered in its turn). Its
    /// source is not read any more.
    Acknowledged(Token),
    /// The peer's upper layer refused the message. Its source is not read any more.
    Refused(Token, Refusal),
    /// The peer could not take the message in now ([`Refusal::NotPresent`]): it is settled here, and returned by
    /// [`Connection::take_returned`](super::Connection::take_returned), to be posted again.
    Returned,
    /// The connection failed before the message was settled: whether it arrived is not known.
    Failed(Token, Death),
    /// The end. Nothing more is sent or taken in. The owner calls [`Upper::abandon`](super::Upper::abandon).
    Dead(Death),
    /// The peer is a newer process at the same rank. All older messages have failed, `abandon` has been called, and
    /// [`Connection::id`](super::Connection::id) *has changed*. `Established` follows when the newcomer is connected.
    Restarted {
        /// The newcomer's.
        incarnation: u64,
    },
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Death {
    /// Nothing heard for the failure time.
    #[error("nothing was heard from the peer for the failure time")]
    Silent,
    /// The peer's process has ended, says the kernel.
    #[error("its process has ended")]
    Ended,
    /// What the peer wrote into memory that it shares with this node makes no sense.
    #[error("it damaged the memory that it shares with this node")]
    Damaged,
    /// The peer was let into memory of this node, was to leave it, and did not.
    #[error("it was to leave memory of this node, and did not in time: it is stopped there, or does not keep to what is agreed")]
    Stuck,
    /// The peer (or this end) said goodbye.
    #[error("the connection was closed")]
    Closed,
    /// A newer process took the peer's place.
    #[error("the peer was restarted")]
    Restarted,
    /// The two ends do not fit.
    #[error("handshake refused: {0}")]
    Refused(HandshakeRefusal),
    /// No candidate path was ever answered (WIND-1.8).
    #[error("no address of the peer ever answered: is it running, and does a firewall let UDP through?")]
    Unreachable,
}

/// Two ends that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandshakeRefusal {
    /// In what they differ.
    pub misfit: Misfit,
    /// This node's value.
    pub mine: u64,
    /// The peer's.
    pub theirs: u64,
    /// The peer found out, not we.
    pub by_peer: bool,
}

impl HandshakeRefusal {
    pub(super) fn from_frame(frame: &Refuse) -> HandshakeRefusal {
        HandshakeRefusal { misfit: frame.misfit, mine: frame.yours, theirs: frame.mine, by_peer: true }
    }
}

impl core::fmt::Display for HandshakeRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (mine, theirs) = (self.mine, self.theirs);
        let by = if self.by_peer { " (found by the peer)" } else { "" };
        match self.misfit {
            Misfit::Version => {
                write!(f, "wire format {mine} here, {theirs} at the peer{by}: run the same release on all nodes")
            }
            Misfit::Nodes => write!(f, "{mine} nodes here, {theirs} at the peer{by}: start all nodes as one job"),
            Misfit::PageSize => write!(f, "pages of {mine} bytes here, {theirs} at the peer{by}: use builds with one page size"),
            Misfit::ByteOrder => {
                write!(f, "byte order {mine} here, {theirs} at the peer{by} (1 = little, 2 = big): they cannot share memory")
            }
            Misfit::Architecture => write!(
                f,
                "architecture {mine} here, {theirs} at the peer{by} (1 = x86-64, 2 = AArch64, 3 = RISC-V 64): use one kind of machine"
            ),
            Misfit::Rank => {
                write!(f, "rank {mine} here, {theirs} at the peer{by}: an address in the job's list belongs to another node")
            }
            Misfit::Seal => write!(
                f,
                "checksums of kind {mine} here, {theirs} at the peer{by} (0 = header, 1 = full): set OIKAZE_CHECKSUM alike on all nodes"
            ),
        }
    }
}

/// Why a message cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PostError {
    /// Too many messages are in flight to this peer.
    #[error("{} messages are in flight to this peer: wait until some are acknowledged", crate::limits::MESSAGES_IN_FLIGHT)]
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
    /// Part of a short message's bulk, while there is little else: it may go to the port of the address, as what is small does (WIND-8.9).
    pub short: bool,
    /// Sealed with the job's MAC instead of the connection's seal.
    pub handshake: bool,
}

impl Transmit {
    /// A datagram of the small lane that is complete as it was appended.
    pub(super) const fn small(path: u8, handshake: bool) -> Transmit {
        Transmit { payload: None, rows: None, again: false, path, lane: Lane::Small, port: None, short: false, handshake }
    }
}
