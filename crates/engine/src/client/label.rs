//! Labels of operations. Errors and explanations of long waits (MEM-21) are made from labels.

use oikaze_protocol::Rank;
use std::fmt;
use std::sync::Arc;

/// Peer in the label of a receive from any node. No node has this rank.
pub const ANY_PEER: Rank = Rank::MAX;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    Get,
    GetBlock,
    GetList,
    Put,
    PutBlock,
    PutList,
    Accumulate,
    Push,
    Message,
    /// Posted receive. The label's `peer` is the sender, or [`ANY_PEER`].
    Receive,
    /// Atomic operation on one word, with the name of the operation.
    Word(&'static str),
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationKind::Get => "get",
            OperationKind::GetBlock => "get of a block",
            OperationKind::GetList => "get of a list",
            OperationKind::Put => "put",
            OperationKind::PutBlock => "put of a block",
            OperationKind::PutList => "put of a list",
            OperationKind::Accumulate => "accumulate",
            OperationKind::Push => "push",
            OperationKind::Message => "message",
            OperationKind::Receive => "receive",
            OperationKind::Word(change) => change,
        })
    }
}

/// Description of an operation. The text is formatted only when it is read.
#[derive(Clone, Debug)]
pub struct OperationLabel {
    pub verb: OperationKind,
    pub len: u64,
    pub peer: Rank,
    /// Region and offset, for one-sided operations.
    pub at: Option<(Arc<str>, u64)>,
}

impl OperationLabel {
    /// Returns a clause on the effect that the operation may have had at a node which died before
    /// it acknowledged the operation (MEM-5.3, MEM-12.5). The error text appends the clause.
    pub fn fate(&self) -> Option<&'static str> {
        match self.verb {
            OperationKind::Get
            | OperationKind::GetBlock
            | OperationKind::GetList
            | OperationKind::Receive => None,
            OperationKind::Put | OperationKind::PutBlock | OperationKind::PutList => {
                Some("of which any part may be there")
            }
            OperationKind::Accumulate => {
                Some("of which some elements may have been combined, each once at most")
            }
            OperationKind::Push | OperationKind::Message | OperationKind::Word(_) => {
                Some("which may have taken place there or not")
            }
        }
    }
}

impl fmt::Display for OperationLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, len, peer, at } = self;
        match at {
            _ if *verb == OperationKind::Receive => {
                write!(f, "{verb} of up to {len} bytes from ")?;
                match *peer {
                    ANY_PEER => f.write_str("any node"),
                    peer => write!(f, "node {peer}"),
                }
            }
            Some((region, offset)) => write!(
                f,
                "{verb} of {len} bytes at offset {offset} of region \"{region}\" on node {peer}"
            ),
            None => write!(f, "{verb} of {len} bytes to node {peer}"),
        }
    }
}
