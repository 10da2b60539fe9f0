//! What this layer tells its user: what is done, what failed and why, what has arrived.

use super::Published;
use crate::Rank;
use crate::block::BadBlock;
use crate::limits::{NAME_MAX, NAMES_MAX, TICKETS_MAX};
use crate::wind::{Class, Refusal, Token};
use alloc::string::String;
use alloc::vec::Vec;

/// What an operation gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing to tell (put, get, message): it is done.
    Nothing,
    /// What the word was before (atomics).
    Old(u64),
    /// The region of that name (lookup).
    Found(Published),
}

/// Something that the application waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RmaEvent {
    /// *Complete*: a put is in the peer's memory and visible there, a get in ours, an atomic's old
    /// value is known (MEM-7.1).
    Done {
        /// Of the operation.
        token: Token,
        /// Its result.
        value: Value,
    },
    /// It did not, or perhaps did not, happen.
    Failed {
        /// Of the operation.
        token: Token,
        /// Why.
        error: RmaError,
    },
    /// A user's message.
    Arrived {
        /// Its sender.
        from: Rank,
        /// Its class.
        class: Class,
        /// The sender's own number.
        tag: u64,
        /// Its bytes.
        body: Vec<u8>,
    },
    /// A peer has acknowledged a request and never answers it (MEM-4.8): its connection must end.
    Unanswered {
        /// The peer.
        by: Rank,
    },
}

/// Why an operation failed or cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// The peer said no. Nothing was changed there.
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    /// The peer is gone, and with it the answer.
    #[error(
        "node {0} has died or was restarted before it confirmed; whether the operation took place there is not known"
    )]
    PeerDead(Rank),
    /// The caller gave up.
    #[error("cancelled before it was confirmed; whether it took place at the peer is not known")]
    Cancelled,
    /// The name is not published there.
    #[error("node {node} has published nothing as \"{name}\"; it has {}. Publish it there first, or mend the name", listed(.there, *.count))]
    UnknownName {
        /// Who was asked.
        node: Rank,
        /// For what.
        name: String,
        /// Names that are there, in order, as many as fitted.
        there: Vec<String>,
        /// How many there are in all.
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
    /// Memory of our own that is not there.
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
    /// A list that cannot be begun.
    #[error("{count} entries are more than one list has ({max}); cut it into several")]
    ListTooLong {
        /// Entries of the list.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A message that cannot be sent.
    #[error("{len} bytes are more than one operation carries ({max}); cut it into several")]
    TooLong {
        /// What was asked.
        len: u64,
        /// What is possible.
        max: u64,
    },
    /// A block that cannot be.
    #[error("{0}")]
    BadBlock(#[from] BadBlock),
    /// Not a name.
    #[error("\"{0}\" cannot be a name: it must have 1 to {NAME_MAX} bytes of UTF-8")]
    BadName(String),
    /// A name stands for one region at a time.
    #[error(
        "something is already published as \"{0}\" here; withdraw it first, or take another name"
    )]
    NameTaken(String),
    /// The table is full.
    #[error("{NAMES_MAX} names are already published here; withdraw some first")]
    TooManyNames,
}

/// For the message of `UnknownName`.
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
