//! The clock of this node: the collectives that it has passed, and what it knows (COH-4, COH-6).

use crate::Rank;
use crate::coherence::clock::knowledge::Knowledge;

/// CollectiveProgress of this node in the collective that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum CollectiveProgress {
    /// The interval that the collective closes is open, or there is no collective.
    #[default]
    Open,
    /// The interval is closed. Intervals closed from now on are late (COH-6.5).
    Closed,
    /// This node has arrived.
    Arrived,
}

/// Clock of one node.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Clock {
    /// Number of collectives that this node has passed.
    pub epoch: u64,
    pub progress: CollectiveProgress,
    /// `true` from the departure that proposes moves of homes to the one that confirms them
    /// (COH-11.3).
    pub moves_homes: bool,
    pub knowledge: Knowledge,
}

impl Clock {
    pub fn new(me: Rank, nodes: u32) -> Clock {
        let knowledge = Knowledge::new(me, nodes);
        Clock { epoch: 0, progress: CollectiveProgress::Open, moves_homes: false, knowledge }
    }

    /// Returns `true` between the closing of this node's interval and the end of the collective.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.progress != CollectiveProgress::Open
    }

    #[inline]
    pub fn has_arrived(&self) -> bool {
        self.progress == CollectiveProgress::Arrived
    }

    /// Returns the epoch of updates that are sent now (COH-10.3).
    #[inline]
    pub fn open_epoch(&self) -> u64 {
        self.epoch.saturating_add(u64::from(self.is_waiting()))
    }

    /// Returns how many collectives another node may have passed by now. That is one more than this
    /// node has passed, if this node has arrived (COH-7.4). After a death (`has_dead`) this node
    /// may have given up a collective that other nodes passed.
    #[inline]
    pub fn epoch_possible(&self, has_dead: bool) -> u64 {
        self.epoch.saturating_add(u64::from(self.has_arrived() || has_dead))
    }
}
