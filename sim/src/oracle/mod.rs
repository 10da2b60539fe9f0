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
use std::collections::BTreeMap;

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
}

impl Oracle {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(seed: u64, nodes: u32) -> Oracle {
        Oracle {
            messages: MessageOracle::new(seed),
            memory: MemoryOracle::new(seed),
            shared: SharedOracle::new(nodes),
            casualties: BTreeMap::new(),
        }
    }

    /// Is this failure the fault of a node that was killed? Otherwise it must not have happened.
    ///
    /// # Errors
    /// It blames no killed node.
    pub fn excuse(&self, what: &str, failure: &Failure) -> Check {
        match blamed(failure) {
            Some(rank) if self.casualties.contains_key(&rank) => Ok(()),
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
