//! Reasons why a connection ends.

use crate::wind::handler::Refusal;
use crate::wind::send::message::Class;
use crate::wire::hello::{Misfit, Refuse};
use crate::wire::seal::SealKind;
use crate::wire::versions::Versions;
use core::fmt;

pub use crate::wire::CloseReason;

/// Reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Death {
    /// Nothing was heard for the failure time.
    #[error("nothing was heard from the peer for the failure time")]
    Silent,
    /// The kernel reports that the peer's process has ended.
    #[error("its process has ended")]
    Ended,
    /// The peer wrote invalid content into memory that it shares with this node.
    #[error("it damaged the memory that it shares with this node")]
    Damaged,
    /// The peer had access to memory of this node, was told to release it, and did not.
    #[error(
        "it was to leave memory of this node, and did not in time: it is stopped there, or does not keep to what is agreed"
    )]
    Stuck,
    /// The peer or this end has closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// A newer process took the peer's place.
    #[error("the peer was restarted")]
    Restarted,
    /// The peer is heard, but acknowledges nothing of what is sent to it (WIND-7.6).
    #[error("it is heard, but {0}")]
    NoProgress(Stuck),
    /// The peer has acknowledged, granted or refused something that never existed (WIND-7.8).
    #[error(
        "what it sends makes no sense: {0}; a datagram was forged or damaged on the way, or the two run different releases"
    )]
    Nonsense(Nonsense),
    /// The connection has used up its datagram numbers (WIND-7.10).
    #[error(
        "this node has no datagram numbers left for the connection, and none is used twice: start the job again"
    )]
    NumbersUsedUp,
    /// The peer has ended the connection for this reason.
    #[error("it ended the connection: {0}")]
    GivenUp(CloseReason),
    /// The two ends do not fit.
    #[error("handshake refused: {0}")]
    Refused(HandshakeRefusal),
    /// The peer has answered on no candidate path (WIND-1.8).
    #[error(
        "no address of the peer ever answered: is it running, and does a firewall let UDP through?"
    )]
    Unreachable,
}

/// Difference between two ends that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandshakeRefusal {
    /// Property in which the two ends differ.
    pub misfit: Misfit,
    /// This node's value.
    pub mine: u64,
    /// The peer's value.
    pub theirs: u64,
    /// Whether the peer found the difference, and not this node.
    pub by_peer: bool,
}

impl HandshakeRefusal {
    pub(super) fn from_frame(frame: &Refuse) -> HandshakeRefusal {
        HandshakeRefusal {
            misfit: frame.misfit,
            mine: frame.yours,
            theirs: frame.mine,
            by_peer: true,
        }
    }
}

impl core::fmt::Display for HandshakeRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (mine, theirs) = (self.mine, self.theirs);
        let by = if self.by_peer { " (found by the peer)" } else { "" };
        match self.misfit {
            Misfit::Version => {
                let [mine, theirs] = [mine, theirs].map(Versions::from_word);
                write!(
                    f,
                    "wire format {mine} here, {theirs} at the peer{by}: install the same release on all hosts (`oikaze --version` names it)"
                )
            }
            Misfit::Other => write!(
                f,
                "a property that this release does not know is {mine} here, {theirs} at the peer{by}: install the same release on all hosts"
            ),
            Misfit::Nodes => {
                write!(f, "{mine} nodes here, {theirs} at the peer{by}: start all nodes as one job")
            }
            Misfit::PageSize => write!(
                f,
                "pages of {mine} bytes here, {theirs} at the peer{by}: use builds with one page size"
            ),
            Misfit::ByteOrder => {
                write!(
                    f,
                    "byte order {mine} here, {theirs} at the peer{by} (1 = little, 2 = big): they cannot share memory"
                )
            }
            Misfit::Architecture => write!(
                f,
                "architecture {mine} here, {theirs} at the peer{by} (1 = x86-64, 2 = AArch64, 3 = RISC-V 64): use one kind of machine"
            ),
            Misfit::Rank => {
                write!(
                    f,
                    "rank {mine} here, {theirs} at the peer{by}: an address in the job's list belongs to another node"
                )
            }
            Misfit::Seal => write!(
                f,
                "datagrams are sealed by {} here, by {} at the peer{by}: set OIKAZE_SEAL alike on all nodes",
                seal_name(mine),
                seal_name(theirs)
            ),
        }
    }
}

/// Returns the word by which users choose this kind of seal.
fn seal_name(kind: u64) -> &'static str {
    match u8::try_from(kind).ok().and_then(SealKind::from_code) {
        Some(SealKind::Encrypted) => "full",
        Some(SealKind::Authenticated) => "integrity",
        Some(SealKind::EndToEnd) => "crc",
        Some(SealKind::HeaderOnly) => "header",
        Some(SealKind::Handshake) | None => "an unknown kind",
    }
}

/// Details of a peer that is heard and acknowledges nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stuck {
    /// Datagrams in flight.
    pub datagrams: u32,
    /// Messages posted and not settled.
    pub messages: u32,
    /// Class of the oldest unsettled message.
    pub oldest: Option<Class>,
    /// Bytes of the oldest message's body.
    pub oldest_len: u64,
    /// Time for which nothing was acknowledged, in milliseconds.
    pub lasted_ms: u32,
    /// Whether the bulk lane is stuck; the small lane may work.
    pub bulk: bool,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stuck { datagrams, messages, oldest, oldest_len, lasted_ms, bulk } = self;
        let lane = if *bulk { "bulk" } else { "small" };
        let seconds = f64::from(*lasted_ms) / 1e3;
        write!(
            f,
            "has acknowledged nothing of {datagrams} {lane} datagrams for {seconds:.1} s; {messages} messages wait"
        )?;
        if let Some(class) = oldest {
            write!(f, " (oldest: {class:?}, {oldest_len} bytes)")?;
        }
        f.write_str(
            ": something on the way loses them or their acknowledgements; look for a firewall, a narrow MTU or a broken offload \
             (ethtool -k DEVICE), or try OIKAZE_WITHOUT=gso,raw-tx,lanes",
        )
    }
}

/// Statements that no correct peer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nonsense {
    /// The peer acknowledged a datagram that was never sent.
    Acknowledged {
        /// Number of the datagram.
        number: u64,
        /// Next number that this node will use.
        next: u64,
    },
    /// The peer acknowledged a datagram number that was skipped (WIND-7.11).
    Skipped {
        /// Number that no datagram had.
        number: u64,
    },
    /// The peer granted more credit than it has.
    Credit {
        /// Bytes granted in all.
        granted: u64,
        /// Maximum number of bytes that the peer can have granted by now.
        most: u64,
    },
    /// The peer refused a message that was never sent.
    Refused {
        /// Number of the message.
        number: u64,
    },
    /// The peer refused a message of shared memory that no correct peer refuses (COH-8.9).
    RefusedShared {
        /// Reason that the peer gave.
        refusal: Refusal,
    },
    /// The peer has acknowledged a request for shared memory and no longer knows it (COH-13).
    Forgotten,
    /// The peer has acknowledged a get, an atomic or a lookup, and sends no answer (MEM-4.8).
    Unanswered,
}

impl Death {
    /// Returns the reason that CLOSE gives to the peer (WIND-7.9).
    pub(super) fn close_reason(self) -> CloseReason {
        match self {
            Death::NoProgress(_) => CloseReason::NoProgress,
            Death::Nonsense(_) => CloseReason::Nonsense,
            Death::NumbersUsedUp => CloseReason::NumbersUsedUp,
            _ => CloseReason::Goodbye,
        }
    }

    /// Returns the meaning of a CLOSE from the peer.
    pub(super) fn by_peer(reason: CloseReason) -> Death {
        if reason == CloseReason::Goodbye { Death::Closed } else { Death::GivenUp(reason) }
    }
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nonsense::Acknowledged { number, next } => {
                write!(f, "it acknowledged datagram {number}, and the next to be sent is {next}")
            }
            Nonsense::Skipped { number } => {
                write!(f, "it acknowledged datagram number {number}, which was skipped: it acknowledges what it has not received")
            }
            Nonsense::Credit { granted, most } => write!(f, "it granted {granted} bytes of credit, and has at most {most}"),
            Nonsense::Refused { number } => write!(f, "it refused message {number}, which was not sent"),
            Nonsense::RefusedShared { refusal } => {
                write!(f, "it refused a message of shared memory that is sound here: {refusal}")
            }
            Nonsense::Forgotten => {
                f.write_str("it acknowledged a request for a lock, pages or a collective, and knows nothing of it")
            }
            Nonsense::Unanswered => f.write_str("it acknowledged a get, an atomic or a lookup, and does not answer it"),
        }
    }
}
