//! Types shared by the engine and coherence: declarations, reductions, events, errors.

use crate::Rank;
use crate::coherence::pages::homes::Homes;
use crate::coherence::pages::machine::ArrayId;
use crate::wind::{Nonsense, Refusal, Token};
use alloc::string::String;
use alloc::vec::Vec;

/// Type of an array's elements. Nodes compare it and never interpret it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Element {
    /// Number of the type, the same in every program that wants to share it (the caller's own
    /// list).
    pub kind: u32,
    /// Size of one element in bytes.
    pub size: u32,
}

/// One number in an element: its path from the element, and its type. Nodes compare both and never
/// interpret them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(Hash))]
pub struct Field {
    /// Path, such as `position[3].x`. It is empty if the element is one number.
    pub name: String,
    /// Name of the type, such as `f64`.
    pub kind: String,
}

/// A shared array as one node declares it; every node must declare the same (COH-2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declaration {
    /// Name of the array, at most [`crate::limits::NAME_MAX`] bytes.
    pub name: String,
    /// Length in bytes. The memory behind the array is a whole number of pages.
    pub bytes: u64,
    /// Type of its elements.
    pub element: Element,
    /// Homes of its pages.
    pub homes: Homes,
    /// Number of elements along each axis, outermost first. Nodes compare it and never interpret
    /// it. It may be empty.
    pub shape: Vec<u64>,
    /// Numbers that an element consists of, in order. It may be empty.
    pub fields: Vec<Field>,
    /// An array of the same name that this one replaces, and that is freed later.
    pub replaces: Option<Replacement>,
}

/// Replacement of an array by one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct Replacement {
    /// Number of the array that is replaced.
    pub array: ArrayId,
    /// Name of the program's call, at most [`crate::limits::NAME_MAX`] bytes.
    pub call: String,
}

/// Step of an operation of all nodes that takes several collectives. Each step is a barrier, and
/// its result is the greatest number of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct CallStep {
    /// Operation as the program has called it, such as `save array "a"`.
    pub call: String,
    /// Number of the step, from 1. Step 0 prepares a declaration.
    pub step: u8,
    /// Digest of the arguments that all nodes must pass alike.
    pub arguments: u64,
    /// Number of this node.
    pub number: u64,
}

crate::wire_enum! {
    /// Operation that combines the contributions to a reduction, element by element, in rank order.
    pub enum ReduceOp {
        /// Sum; integers wrap.
        Sum = 0,
        /// Minimum (COLL-2.6).
        Min = 1,
        /// Maximum (COLL-2.6).
        Max = 2,
    }
}

/// Vector of numbers, contributed to or resulting from a reduction.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 64-bit floating point.
    F64(Vec<f64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
}

impl Values {
    /// Returns how many numbers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Values::F64(v) => v.len(),
            Values::I64(v) => v.len(),
            Values::U64(v) => v.len(),
        }
    }

    /// Returns `true` if there are no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
impl core::hash::Hash for Values {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        match self {
            Values::F64(v) => v.iter().for_each(|value| value.to_bits().hash(state)),
            Values::I64(v) => v.hash(state),
            Values::U64(v) => v.hash(state),
        }
    }
}

/// One node's part of a reduction.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(Hash))]
pub struct Reduction {
    /// Operation that combines the values.
    pub op: ReduceOp,
    /// Values that this node contributes.
    pub values: Values,
}

/// How a request takes a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct LockMode {
    /// `true` if others may read at the same time (COH-7.14).
    pub reads: bool,
    /// `true` if the request does not wait for a lock that another one has (COH-7.12).
    pub tries: bool,
}

/// Result of an operation that is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// There is no value.
    None,
    /// Number of the declared array.
    Array(ArrayId),
    /// The combined values.
    Reduced(Values),
    /// Knowledge of this node, for the other members of a team.
    Knowledge(alloc::vec::Vec<u8>),
    /// Bytes that an operation at homes has read, or those from before a change.
    Bytes(Vec<u8>),
    /// Another request has the lock that this one tried to take.
    LockTaken,
}

/// Event about an operation. Each token given to an operation comes back exactly once.
#[derive(Clone, Debug, PartialEq)]
pub enum CoherenceEvent {
    /// The operation is done.
    Done {
        /// The operation's token.
        token: Token,
        /// Result of the operation.
        value: Value,
    },
    /// The operation failed.
    Failed {
        /// The operation's token.
        token: Token,
        /// Cause of the failure.
        error: CoherenceError,
    },
    /// Another node contradicts this one. No sound peer does that, and the connection must end
    /// (COH-8.9).
    Contradiction {
        /// Rank of the other node.
        rank: Rank,
        /// Kind of the contradiction.
        nonsense: Nonsense,
    },
    /// A node has begun to leave the job (COH-6.7).
    Leaving {
        /// Rank of the node that leaves.
        rank: Rank,
        /// `false` if its one-sided operations on this node have ended, `true` if its messages have
        /// arrived, too.
        silent: bool,
    },
}

/// Error of an operation on shared memory: operation, cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(test, derive(Hash))]
pub enum CoherenceError {
    /// A node that the operation needs is dead.
    #[error(
        "{doing}: node {rank} is dead; the job cannot go on without it: look at its output and restart the job"
    )]
    NodeDead {
        /// Operation that failed.
        doing: String,
        /// Rank of the dead node.
        rank: Rank,
    },
    /// A collective needs every node, and one has begun to leave.
    #[error(
        "{doing}: node {rank} is leaving the job and will not come: it has finished, or it failed and its output says why; every \
         node must make the same collective calls before it leaves"
    )]
    NodeLeaving {
        /// Operation that failed.
        doing: String,
        /// Rank of the node that leaves.
        rank: Rank,
    },
    /// A page was read whose home is dead or refused to send it. The bytes that were used are old.
    #[error(
        "{doing}: page {page} of array \"{array}\" could not be fetched from its home, node {rank}, and was read with its last \
         bytes: what was computed since then is not to be trusted; restart the job"
    )]
    PageLost {
        /// Operation that failed.
        doing: String,
        /// Name of the array.
        array: String,
        /// Number of the page within the array.
        page: u64,
        /// Rank of the page's home.
        rank: Rank,
    },
    /// A node that held the lock cannot go on. Perhaps some of its writes are not at their homes.
    #[error(
        "{doing}: node {rank} had it and could not bring home what it wrote: what the lock protects is perhaps half changed; look at \
         the output of node {rank} and restart the job"
    )]
    LockBroken {
        /// Operation that failed.
        doing: String,
        /// Rank of the node that held the lock.
        rank: Rank,
    },
    /// Nodes called different collectives, or declared different arrays.
    #[error("{0}")]
    Mismatch(String),
    /// A notifier could not bring home what it wrote.
    #[error(
        "node {rank} could not bring its writes to their homes, and has got an error that says why"
    )]
    NotReleased {
        /// Rank of the notifier.
        rank: Rank,
    },
    /// An unlock of a lock that this node does not hold.
    #[error(
        "unlock {lock}: this node does not hold lock {lock}; every unlock must follow its own lock"
    )]
    NotHeld {
        /// Number of the lock.
        lock: u64,
    },
    /// This node has no such array.
    #[error("{doing}: no shared array has number {array}; declare it first")]
    UnknownArray {
        /// Operation that failed.
        doing: String,
        /// Number of the array.
        array: ArrayId,
    },
    /// The pages lie outside the array.
    #[error("{doing}: pages {first}..{end} lie outside array \"{array}\", which has {pages} pages")]
    OutOfRange {
        /// Operation that failed.
        doing: String,
        /// Name of the array.
        array: String,
        /// First page asked for.
        first: u64,
        /// One past the last page asked for.
        end: u64,
        /// Number of pages that the array has.
        pages: u64,
    },
    /// A value exceeds a limit of the protocol.
    #[error("{what} is {value}, the limit is {limit}")]
    TooLarge {
        /// Name of the value.
        what: String,
        /// Value that is out of range.
        value: u64,
        /// Limit of the value.
        limit: u64,
    },
    /// A peer refused a message that only a different version, or a bug, would make it refuse.
    #[error(
        "{doing}: node {rank} refused it: {refusal}; do all nodes run the same program and version?"
    )]
    Refused {
        /// Operation that failed.
        doing: String,
        /// Rank of the peer that refused.
        rank: Rank,
        /// Reason of the peer.
        refusal: Refusal,
    },
    /// The machine could not change a page as requested.
    #[error(
        "a page of shared memory could not be changed: what was computed since then is not to be trusted. {0}"
    )]
    Machine(String),
    /// This node has left.
    #[error("{doing}: this node has left the job; shared memory ends with leave()")]
    Left {
        /// Operation that failed.
        doing: String,
    },
}
