//! What must be true, by knowledge that no node has: of all nodes, at this very moment.

mod memory;
mod messages;
mod shared;

pub use memory::{MemoryOracle, NodeMemory, Watch, Word};
pub use messages::{Claim, MessageId, MessageOracle};
pub use shared::SharedOracle;

use crate::violation::Check;
use oikaze::engine::Failure;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// All that is known.
#[derive(Debug)]
pub struct Oracle {
    /// Of users' messages.
    pub messages: MessageOracle,
    /// Of regions.
    pub memory: MemoryOracle,
    /// Of locks and collectives.
    pub shared: SharedOracle,
    /// Nodes that were killed, and when.
    pub casualties: BTreeMap<Rank, Time>,
    /// Nodes that have found a killed node dead for good: they do not talk to what takes its place.
    pub estranged: BTreeSet<Rank>,
    /// What a sender may have kept at its receiver.
    pub credit: u64,
}

impl Oracle {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(seed: u64, nodes: u32, credit: u64) -> Oracle {
        Oracle {
            messages: MessageOracle::new(seed),
            memory: MemoryOracle::new(seed),
            shared: SharedOracle::new(nodes),
            casualties: BTreeMap::new(),
            estranged: BTreeSet::new(),
            credit,
        }
    }

    /// May a node in this life find that one dead?
    #[must_use]
    pub fn may_be_lost(&self, rank: Rank, life: u8) -> bool {
        self.casualties.contains_key(&rank) || (life > 0 && self.estranged.contains(&rank))
    }

    /// Is this failure the fault of a node that was killed? Otherwise it must not have happened.
    ///
    /// # Errors
    /// It blames no killed node.
    pub fn excuse(&self, what: &str, life: u8, failure: &Failure) -> Check {
        match blamed(failure) {
            Some(rank) if self.may_be_lost(rank, life) => Ok(()),
            Some(rank) => Err(format!("{what} failed and blames node {rank}, which is well: {failure}")),
            None => Err(format!("{what} failed: {failure}")),
        }
    }

    /// Has any node been killed?
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        !self.casualties.is_empty()
    }
}

/// Which node a failure names.
fn blamed(failure: &Failure) -> Option<Rank> {
    match failure {
        Failure::PeerLost { peer, .. } => Some(*peer),
        Failure::Remote(RmaError::PeerDead(rank)) => Some(*rank),
        Failure::Coherence(CoherenceError::NodeDead { rank, .. } | CoherenceError::PageLost { rank, .. }) => Some(*rank),
        _ => None,
    }
}
