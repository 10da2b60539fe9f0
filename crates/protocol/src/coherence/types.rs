//! The words in which the engine and coherence talk: declarations, reductions, events, errors.

use super::ArrayId;
use crate::Rank;
use crate::wind::{Nonsense, Refusal, Token};
use alloc::string::String;
use alloc::vec::Vec;

/// What the elements of an array are. Compared between nodes, never interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// A number for the type, the same in every program that wants to share it (the caller's own
    /// list).
    pub kind: u32,
    /// Bytes of one element.
    pub size: u32,
}

/// Which node keeps the always valid copy of each page (COH-2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Homes {
    /// One run of pages per node, as equal as possible, in rank order.
    Block,
    /// `pages` pages to each node in turn.
    Cyclic {
        /// Pages in a row on one node, at least 1.
        pages: u64,
    },
    /// One rank per page.
    Explicit(Vec<Rank>),
}

/// A shared array as one node declares it; every node must declare the same (COH-2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Its name, at most [`crate::limits::NAME_MAX`] bytes.
    pub name: String,
    /// Its length in bytes. The memory behind it is a whole number of pages.
    pub bytes: u64,
    /// What is in it.
    pub element: Element,
    /// Where its pages live.
    pub homes: Homes,
}

/// How the contributions to a reduction are combined, element by element, in rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum; integers wrap.
    Sum = 0,
    /// The smallest; a NaN stays a NaN.
    Min = 1,
    /// The greatest; a NaN stays a NaN.
    Max = 2,
}

/// A vector of numbers, contributed to or resulting from a reduction.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 64-bit floating point.
    F64(Vec<f64>),
    /// Signed.
    I64(Vec<i64>),
    /// Unsigned.
    U64(Vec<u64>),
}

impl Values {
    /// How many numbers.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Values::F64(v) => v.len(),
            Values::I64(v) => v.len(),
            Values::U64(v) => v.len(),
        }
    }

    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One node's part of a reduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// How they are combined.
    pub op: ReduceOp,
    /// What this node contributes.
    pub values: Values,
}

/// What an operation that is done has brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing but that it is done.
    None,
    /// The array declared.
    Array(ArrayId),
    /// The combined values.
    Reduced(Values),
}

/// What has happened to an operation; each token given to an operation comes back exactly once.
#[derive(Clone, Debug, PartialEq)]
pub enum CoherenceEvent {
    /// It is done.
    Done {
        /// The operation's token.
        token: Token,
        /// Its result.
        value: Value,
    },
    /// It failed.
    Failed {
        /// The operation's token.
        token: Token,
        /// Why.
        error: CoherenceError,
    },
    /// What another node says contradicts what this one knows: no sound peer does that, and the
    /// connection must end (COH-8.9).
    Contradiction {
        /// Its rank.
        rank: Rank,
        /// What is contradictory.
        nonsense: Nonsense,
    },
    /// A node has begun to leave the job (COH-6.7).
    Leaving {
        /// Its rank.
        rank: Rank,
        /// False: its one-sided operations on this node have ended. True: its messages have
        /// arrived, too.
        silent: bool,
    },
}

/// Why an operation on shared memory failed: what was tried, why it failed, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoherenceError {
    /// A node that the operation needs is dead.
    #[error(
        "{doing}: node {rank} is dead; the job cannot go on without it: look at its output and restart the job"
    )]
    NodeDead {
        /// What was tried.
        doing: String,
        /// Who is dead.
        rank: Rank,
    },
    /// A collective needs every node, and one has begun to leave.
    #[error(
        "{doing}: node {rank} is leaving the job and will not come: it has finished, or it failed and its output says why; every \
         node must make the same collective calls before it leaves"
    )]
    NodeLeaving {
        /// What was tried.
        doing: String,
        /// Rank of the node that leaves.
        rank: Rank,
    },
    /// A page was read whose home is dead (or refused it): the bytes that were used are old.
    #[error(
        "{doing}: page {page} of array \"{array}\" could not be fetched from its home, node {rank}, and was read with its last \
         bytes: what was computed since then is not to be trusted; restart the job"
    )]
    PageLost {
        /// What was tried.
        doing: String,
        /// The array's name.
        array: String,
        /// The page.
        page: u64,
        /// Its home.
        rank: Rank,
    },
    /// A node that had the lock cannot go on, and what it wrote is perhaps not at its home.
    #[error(
        "{doing}: node {rank} had it and could not bring home what it wrote: what the lock protects is perhaps half changed; look at \
         the output of node {rank} and restart the job"
    )]
    LockBroken {
        /// What was tried.
        doing: String,
        /// Who had it.
        rank: Rank,
    },
    /// The nodes do not agree what they do together.
    #[error("{0}")]
    Mismatch(String),
    /// An unlock of what is not locked by this node.
    #[error(
        "unlock {lock}: this node does not hold lock {lock}; every unlock must follow its own lock"
    )]
    NotHeld {
        /// The lock.
        lock: u64,
    },
    /// No such array on this node.
    #[error("{doing}: no shared array has number {array}; declare it first")]
    UnknownArray {
        /// What was tried.
        doing: String,
        /// The number.
        array: ArrayId,
    },
    /// Pages outside the array.
    #[error("{doing}: pages {first}..{end} lie outside array \"{array}\", which has {pages} pages")]
    OutOfRange {
        /// What was tried.
        doing: String,
        /// The array's name.
        array: String,
        /// First page asked for.
        first: u64,
        /// One past the last page asked for.
        end: u64,
        /// What the array has.
        pages: u64,
    },
    /// Something is larger than a limit of the protocol.
    #[error("{what} is {value}, the limit is {limit}")]
    TooLarge {
        /// What.
        what: String,
        /// What it is.
        value: u64,
        /// What it may be.
        limit: u64,
    },
    /// A peer refused what only a different version, or a bug, would make it refuse.
    #[error(
        "{doing}: node {rank} refused it: {refusal}; do all nodes run the same program and version?"
    )]
    Refused {
        /// What was tried.
        doing: String,
        /// Who refused.
        rank: Rank,
        /// Its reason.
        refusal: Refusal,
    },
    /// The machine could not change pages as it was told.
    #[error(
        "a page of shared memory could not be changed: what was computed since then is not to be trusted. {0}"
    )]
    Machine(String),
    /// This node has left.
    #[error("{doing}: this node has left the job; shared memory ends with leave()")]
    Left {
        /// What was tried.
        doing: String,
    },
}
