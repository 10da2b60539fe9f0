//! Accesses of peers that this node has refused, as its program sees them.

use crate::job::handle::Job;
use crate::memory::remote::RefusalReason;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::rma::{MessageKind, Refused};

use std::fmt;

/// An access of a peer to this node's memory that this node refused. A refused access has no
/// effect. See [`Job::refused_accesses`].
///
/// ```
/// use oikaze::memory::remote::RefusalReason;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let closed = job.publish("closed", Region::shared(4096)?, Rights::READ)?;
/// let there = job.peer((job.rank() + 1) % job.size())?.region("closed")?;
/// let error = there.put_copy(0, b"x")?.wait().unwrap_err();
/// assert_eq!(error.refusal(), Some(RefusalReason::NotPermitted));
/// job.barrier()?;
/// let refused = job.refused_accesses(); // what this node has refused to others
/// assert!(refused.iter().all(|access| access.reason == RefusalReason::NotPermitted));
/// # job.barrier()?;
/// # drop(closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Serial number among all refused accesses, from 1 on. A gap shows how many refusals lie
    /// between two reads.
    pub serial: u64,
    /// Rank of the peer whose access was refused.
    pub from: Rank,
    /// Name of the operation that the peer tried, in one word.
    pub operation: &'static str,
    /// The name of the region, if it has one.
    pub region: Option<String>,
    /// Key that the peer presented.
    pub key: u64,
    /// Offset from the region's start, in bytes.
    pub offset: u64,
    /// Length of the access in bytes.
    pub len: u64,
    /// Right that the access needs.
    pub right: Rights,
    /// Reason for the refusal.
    pub reason: RefusalReason,
}

impl RefusedAccess {
    fn new((refused, region): (Refused, Option<String>)) -> Self {
        let Refused { serial, from, operation, access, refusal } = refused;
        let operation = match operation {
            MessageKind::Put => "put",
            MessageKind::PutSignal => "put with signal",
            MessageKind::PutNotice => "put with notice",
            MessageKind::Get => "get",
            MessageKind::PutBlock => "put of a block",
            MessageKind::PutBlockSignal => "put of a block with signal",
            MessageKind::GetBlock => "get of a block",
            MessageKind::Atomic => "atomic",
            MessageKind::Accumulate => "accumulate",
            MessageKind::Push => "push",
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
    /// Returns the latest accesses to this node's memory that were refused to peers, up to 256, the
    /// oldest first. The errors of the peers' operations have told them the same. The totals by
    /// reason are in `oikaze top --json`.
    #[must_use]
    pub fn refused_accesses(&self) -> Vec<RefusedAccess> {
        let refused = self.node.try_engine(|engine| {
            let rma = engine.rma();
            let with_name =
                |refused: &Refused| (*refused, rma.name_of(refused.access.key).map(str::to_owned));
            rma.refusals().1.iter().map(with_name).collect::<Vec<_>>()
        });
        refused.into_iter().flatten().map(RefusedAccess::new).collect()
    }
}
