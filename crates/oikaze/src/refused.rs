//! What this node has refused to peers, for its owner.

use crate::{Job, Rights};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Kind, Refused};
use oikaze_protocol::wind::Refusal;
use std::fmt;

/// An access of a peer to this node's memory that was refused: nothing of it happened. See
/// [`Job::refusals`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Counts all that were refused, from 1 on: who looks now and then sees how many lie between.
    pub serial: u64,
    /// Who was refused.
    pub from: Rank,
    /// What they wanted to do, in a word.
    pub operation: &'static str,
    /// The name of the region, if it has one.
    pub region: Option<String>,
    /// The key that was shown.
    pub key: u64,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The right that it takes.
    pub right: Rights,
    /// Why it was refused.
    pub reason: Refusal,
}

impl RefusedAccess {
    fn new((refused, region): (Refused, Option<String>)) -> Self {
        let Refused { serial, from, operation, access, refusal } = refused;
        let operation = match operation {
            Kind::Put => "put",
            Kind::PutSignal => "put with signal",
            Kind::Get => "get",
            Kind::PutBlock => "put of a block",
            Kind::PutBlockSignal => "put of a block with signal",
            Kind::GetBlock => "get of a block",
            Kind::Atomic => "atomic",
            Kind::Accumulate => "accumulate",
            Kind::Push => "push",
            _ => "operation",
        };
        let (key, offset, len, right) = (access.key, access.offset, access.len, access.right);
        Self { serial, from, operation, region, key, offset, len, right, reason: refusal }
    }
}

impl fmt::Display for RefusedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, operation, region, offset, len, right, reason, .. } = self;
        write!(f, "node {from}: {operation} of {len} bytes at offset {offset} of ")?;
        match region {
            Some(name) => write!(f, "region \"{name}\"")?,
            None => write!(f, "a region without a name")?,
        }
        write!(f, ", which takes the right {right}: {reason}")
    }
}

impl Job {
    /// The latest accesses to this node's memory that were refused to peers, up to 256, the oldest
    /// first. The peers have been told the same by the errors of their operations. How often
    /// something was refused in all, and why, `oikaze top --json` shows.
    #[must_use]
    pub fn refusals(&self) -> Vec<RefusedAccess> {
        if self.node.is_forked() {
            return Vec::new();
        }
        self.node
            .with_engine(|engine| engine.refusals())
            .into_iter()
            .map(RefusedAccess::new)
            .collect()
    }
}
