//! Why an operation failed.

use oikaze_os::memory::MemoryError;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Death;

/// The engine's side of an error: what happened. The public error adds what was tried and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// A one-sided operation or message failed.
    #[error(transparent)]
    Remote(#[from] RmaError),
    /// The peer is gone; whether the operation took effect there is unknown.
    #[error("node {peer} is lost: {death}")]
    PeerLost {
        /// Who.
        peer: Rank,
        /// How.
        death: Death,
    },
    /// A shared-memory operation failed.
    #[error(transparent)]
    Coherence(#[from] CoherenceError),
    /// No such rank in this job.
    #[error("there is no node {rank} in this job of {nodes} (ranks are 0 to {})", nodes - 1)]
    NoSuchNode {
        /// What was asked.
        rank: Rank,
        /// Nodes in the job.
        nodes: u32,
    },
    /// Too many operations in flight to one peer.
    #[error("too many operations in flight to node {peer}: wait for some of them first")]
    TooMany {
        /// To whom.
        peer: Rank,
    },
    /// Withdrawn by its owner.
    #[error("the operation was cancelled")]
    Cancelled,
    /// Of this node's own memory: what is wrong with it.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The job has ended here.
    #[error("this node has left the job")]
    Left,
    /// This process is a child of fork, and not the node.
    #[error("this process is a child of fork of node {rank}, and only the process that joined may use the job")]
    Forked {
        /// Rank of the process that joined.
        rank: Rank,
    },
    /// The machine said no (memory, system call).
    #[error("{0}")]
    Machine(String),
}
