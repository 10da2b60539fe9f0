//! Checks a run with knowledge that no node has: the state of all nodes at this very moment.

mod casts;
mod ends;
mod fifos;
mod memory;
mod messages;
mod shared;
mod sums;

pub use casts::{CastId, CastOracle};
pub use ends::{Ended, Ends};
pub use fifos::{FifosOracle, Push};
pub use memory::{MemoryOracle, NodeMemory, Watch, Word};
pub use messages::{Claim, MessageId, MessageOracle};
pub use shared::SharedOracle;
pub use sums::{Addends, SUMS_LEN, SumsOracle};

use crate::violation::Check;
use oikaze_engine::Failure;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::rma::RmaError;
use std::collections::{BTreeMap, BTreeSet};

/// Viewer of the cluster: a node in one of its lives.
pub type Viewer = (Rank, u8);

/// Knowledge about a run.
#[derive(Debug)]
pub struct Oracle {
    /// Knowledge about users' messages.
    pub messages: MessageOracle,
    /// Knowledge about parcels to several nodes.
    pub casts: CastOracle,
    /// Knowledge about regions.
    pub memory: MemoryOracle,
    /// Knowledge about FIFOs.
    pub fifos: FifosOracle,
    /// Knowledge about arrays that are added to.
    pub sums: SumsOracle,
    /// Knowledge about locks and collectives.
    pub shared: SharedOracle,
    /// Keys and lengths of registrations that come and go, by node and piece of memory.
    pub registered: BTreeMap<(Rank, usize), (u64, u64)>,
    /// Number of registrations that have ended, or were renewed.
    pub registrations: u64,
    /// Node that was killed.
    pub killed: Option<Rank>,
    /// Outcomes of the operations that were in flight when the node was killed.
    pub ends: Ends,
    /// Node that was cut off from all others.
    pub isolated: Option<Rank>,
    /// Set when all nodes say goodbye, so that any node may be found dead.
    pub closing: bool,
    /// Nodes that have found a killed node dead for good. They do not communicate with its
    /// replacement.
    pub estranged: BTreeSet<Rank>,
}

impl Oracle {
    /// Makes an oracle before the first event.
    #[must_use]
    pub fn new(seed: u64, nodes: u32) -> Oracle {
        Oracle {
            messages: MessageOracle::new(seed),
            casts: CastOracle::new(seed),
            memory: MemoryOracle::new(seed),
            fifos: FifosOracle::default(),
            sums: SumsOracle::default(),
            shared: SharedOracle::new(nodes),
            registered: BTreeMap::new(),
            registrations: 0,
            killed: None,
            ends: Ends::default(),
            isolated: None,
            closing: false,
            estranged: BTreeSet::new(),
        }
    }

    /// Returns `true` if the viewer may find node `rank` dead.
    #[must_use]
    pub fn may_lose(&self, viewer: Viewer, rank: Rank) -> bool {
        self.closing
            || self.is_lost_to(viewer.0, rank)
            || (viewer.1 > 0 && self.estranged.contains(&rank))
    }

    /// Returns `true` if the end of node `rank` has come, as far as the viewer can see.
    #[must_use]
    pub fn is_lost_to(&self, viewer: Rank, rank: Rank) -> bool {
        self.killed == Some(rank)
            || (self.isolated.is_some_and(|cut| cut == rank || cut == viewer) && rank != viewer)
    }

    /// Checks that this failure is the fault of a node that was killed or cut off. Any other
    /// failure must not have happened.
    ///
    /// # Errors
    /// The failure blames no such node.
    pub fn excuse(&self, what: &str, viewer: Viewer, failure: &Failure) -> Check {
        match blamed(failure) {
            Some(rank) if self.may_lose(viewer, rank) => Ok(()),
            Some(rank) => {
                Err(format!("{what} failed and blames node {rank}, which is well: {failure}"))
            }
            None => Err(format!("{what} failed: {failure}")),
        }
    }

    /// Returns `true` if this failure says that a node is gone.
    #[must_use]
    pub fn is_loss(failure: &Failure) -> bool {
        blamed(failure).is_some()
    }

    /// Returns `true` if any node has been killed or cut off.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.killed.is_some() || self.isolated.is_some()
    }
}

/// Returns the node that a failure names.
fn blamed(failure: &Failure) -> Option<Rank> {
    match failure {
        Failure::PeerLost { peer, .. } => Some(*peer),
        Failure::Remote(RmaError::PeerDead(rank)) => Some(*rank),
        Failure::Coherence(
            CoherenceError::NodeDead { rank, .. } | CoherenceError::PageLost { rank, .. },
        ) => Some(*rank),
        _ => None,
    }
}
