//! Why an operation failed.

use oikaze_os::memory::MemoryError;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::limits::QUEUED_MAX;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Death;

/// Cause of an error, as the engine knows it. The public error adds the operation and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// A one-sided operation or message failed.
    #[error(transparent)]
    Remote(#[from] RmaError),
    /// The peer is gone; whether the operation took effect there is unknown.
    #[error("node {peer} is lost: {death}")]
    PeerLost {
        /// Rank of the peer.
        peer: Rank,
        /// Cause of its death.
        death: Death,
    },
    /// The peer, or every other node, has begun to leave the job, so that it does nothing any more.
    #[error(
        "{} and will not do what is waited for: it has finished, or it failed and its output says why",
        leaving_text(peer)
    )]
    Leaving {
        /// Rank of the node; `None`: all other nodes are leaving.
        peer: Option<Rank>,
    },
    /// The job was aborted, by `Job::abort` or by its launcher.
    #[error("the job was ended: {0}")]
    Aborted(String),
    /// A shared-memory operation failed.
    #[error(transparent)]
    Coherence(#[from] CoherenceError),
    /// No such rank in this job.
    #[error("there is no node {rank} in this job of {nodes} (ranks are 0 to {})", nodes - 1)]
    NoSuchNode {
        /// Rank that was asked for.
        rank: Rank,
        /// Number of nodes in the job.
        nodes: u32,
    },
    /// Too many operations in flight to one peer.
    #[error("too many operations in flight to node {peer}: wait for some of them first")]
    TooMany {
        /// Rank of the peer.
        peer: Rank,
    },
    /// Too many bytes were copied for operations to one peer that have not ended. Nothing was sent.
    #[error(
        "too much is queued to node {peer}: {queued} bytes were copied for earlier operations and are not taken yet (at most \
         {QUEUED_MAX}). Wait for some of them first, or send from registered memory, which is not copied"
    )]
    QueueFull {
        /// Rank of the peer.
        peer: Rank,
        /// Number of bytes queued.
        queued: u64,
    },
    /// A local peer was given up in the middle of an access to the memory, and its process lives.
    #[error(
        "node {peer} was given up (stopped or faulty) in the middle of an access to the memory, and may still write there"
    )]
    InUse {
        /// Rank of the peer.
        peer: Rank,
    },
    /// The message that matched a posted receive is longer than the posted memory. The message is
    /// kept for another receive.
    #[error(
        "the message of node {from} with tag {tag} has {len} bytes, and the posted memory has {room}; post more memory and the message is received, because it was kept"
    )]
    NoRoomForMessage {
        /// Rank of the sender.
        from: Rank,
        /// Tag of the message.
        tag: u64,
        /// Length of the message in bytes.
        len: u64,
        /// Length of the posted memory in bytes.
        room: u64,
    },
    /// The owner cancelled the operation.
    #[error("the operation was cancelled")]
    Cancelled,
    /// An error of this node's own memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The job has ended here.
    #[error("this node has left the job")]
    Left,
    /// This process is a child of fork, and not the node.
    #[error(
        "this process is a child of fork of node {rank}, and only the process that joined may use the job"
    )]
    Forked {
        /// Rank of the process that joined.
        rank: Rank,
    },
    /// The machine refused a request (memory, system call).
    #[error("{0}")]
    Machine(String),
}

fn leaving_text(peer: &Option<Rank>) -> String {
    match peer {
        Some(peer) => format!("node {peer} is leaving the job"),
        None => "every other node is leaving the job".to_owned(),
    }
}
