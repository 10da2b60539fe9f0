//! Events of this layer for its user: completions, failures with their cause, and arrivals.

use crate::Rank;
use crate::block::BadBlock;
use crate::collective::call::ParcelHead;
use crate::limits::{NAME_MAX, NAMES_MAX, TICKETS_MAX};
use crate::rma::head::Published;
use crate::wind::{Class, Refusal, Token};
use alloc::string::String;
use alloc::vec::Vec;

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationValue {
    /// No value (put, get, message): the operation is done.
    Nothing,
    /// Value of the word before the change (atomics).
    Old(u64),
    /// Region of that name (lookup).
    Found(Published),
}

/// A put that has arrived, as its entry in the arrival queue describes it (MEM-25.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Key of the region.
    pub key: u64,
    /// Offset in bytes from the region's start.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Tag that the sender chose.
    pub tag: u64,
}

/// Event that the application waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RmaEvent {
    /// An operation is *complete*: a put is in the peer's memory and visible there, a get is in
    /// this node's memory, an atomic's old value is known (MEM-7.1).
    Done {
        /// Token of the operation.
        token: Token,
        /// Result of the operation.
        value: OperationValue,
    },
    /// An operation did not, or perhaps did not, happen.
    Failed {
        /// Token of the operation.
        token: Token,
        /// Cause of the failure.
        error: RmaError,
    },
    /// A user's message arrived.
    Arrived {
        /// Rank of the sender.
        from: Rank,
        /// Class of the message.
        class: Class,
        /// Tag that the sender chose.
        tag: u64,
        /// Body of the message.
        body: Vec<u8>,
    },
    /// The bytes of a put with notice are in their place (MEM-25.1).
    Placed {
        /// Rank of the sender.
        from: Rank,
        /// Description of the put.
        notice: Notice,
    },
    /// A part of a collective operation arrived.
    Parcel {
        /// Rank of the sender.
        from: Rank,
        /// Head of the parcel.
        head: ParcelHead,
        /// Body of the parcel, or its length in bytes if this node refused it for lack of memory.
        body: Result<Vec<u8>, u64>,
    },
    /// A peer has acknowledged a request and never answers it (MEM-4.8). Its connection must end.
    Unanswered {
        /// Rank of the peer.
        by: Rank,
    },
}

/// Error of an operation that failed or cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// The peer refused the operation. Nothing was changed there.
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    /// The peer is dead, and with it the answer.
    #[error(
        "node {0} has died or was restarted before it confirmed; whether the operation took place there is not known"
    )]
    PeerDead(Rank),
    /// The caller cancelled the operation.
    #[error("cancelled before it was confirmed; whether it took place at the peer is not known")]
    Cancelled,
    /// The name is not published there.
    #[error("node {node} has published nothing as \"{name}\"; it has {}. Publish it there first, or mend the name", listed(.there, *.count))]
    UnknownName {
        /// Rank of the node that was asked.
        node: Rank,
        /// Name that was looked up.
        name: String,
        /// Names that are there, in order, as many as fitted.
        there: Vec<String>,
        /// Number of all names that are there.
        count: u32,
    },
    /// The answer of the peer does not fit the request.
    #[error(
        "node {0} answered with something that was not asked for: the two nodes run different versions, or it is broken"
    )]
    BadAnswer(Rank),
    /// The region that a get was to fill is gone.
    #[error(
        "the region this get was to fill was removed before the data came; keep it until the get is done"
    )]
    DestinationGone,
    /// The region that an operation was to send from is gone.
    #[error(
        "the region this operation was to read from is not registered any more; register its memory again"
    )]
    SourceGone,
    /// Pages of this node's own memory are not available.
    #[error(
        "pages of this operation's own memory cannot be had: the file they belong to was truncated, or its disk failed"
    )]
    Absent,
    /// Too many operations wait for answers.
    #[error(
        "{TICKETS_MAX} gets, atomics and lookups are already waiting for answers; wait for some of them first"
    )]
    TooMany,
    /// An operation with an answer must have a token of its own.
    #[error(
        "token {0:?} is in use or is none: an operation that is answered needs a token of its own"
    )]
    BadToken(Token),
    /// A list has too many entries to begin.
    #[error("{count} entries are more than one list has ({max}); cut it into several")]
    ListTooLong {
        /// Number of entries in the list.
        count: usize,
        /// Maximum number of entries.
        max: usize,
    },
    /// A message is too long to be sent.
    #[error("{len} bytes are more than one operation carries ({max}); cut it into several")]
    TooLong {
        /// Length of the message in bytes.
        len: u64,
        /// Maximum length in bytes.
        max: u64,
    },
    /// The block is invalid.
    #[error("{0}")]
    BadBlock(#[from] BadBlock),
    /// The name is invalid.
    #[error("\"{0}\" cannot be a name: it must have 1 to {NAME_MAX} bytes of UTF-8")]
    BadName(String),
    /// The name is taken, and a name stands for one region at a time.
    #[error(
        "something is already published as \"{0}\" here; withdraw it first, or take another name"
    )]
    NameTaken(String),
    /// The table of names is full.
    #[error("{NAMES_MAX} names are already published here; withdraw some first")]
    TooManyNames,
}

/// Lists names for the message of `UnknownName`.
fn listed(there: &[String], count: u32) -> String {
    if count == 0 {
        return String::from("published nothing at all");
    }
    let mut text = String::new();
    for name in there {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push('"');
        text.push_str(name);
        text.push('"');
    }
    let more = (count as usize).saturating_sub(there.len());
    if more > 0 {
        text.push_str(&alloc::format!(
            "{}{more} more",
            if there.is_empty() { "" } else { " and " }
        ));
    }
    text
}
