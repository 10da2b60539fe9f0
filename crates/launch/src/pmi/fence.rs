//! Barrier of all nodes whose MPI library asks this launcher (LAUNCH-10.4).

use super::{Pair, PmiOrder};
use oikaze_protocol::Rank;
use std::collections::BTreeSet;

/// Nodes at the barrier, and their values.
pub struct Fence {
    size: u32,
    here: BTreeSet<Rank>,
    values: Vec<Pair>,
    ended: BTreeSet<Rank>,
    is_broken: bool,
}

/// Change of the barrier.
#[derive(Debug, PartialEq, Eq)]
pub enum FenceChange {
    /// Some are still on their way, or none has come.
    Open,
    /// The order goes to all hosts.
    Order(PmiOrder),
    /// The first node waits for the second, which has ended. [`PmiOrder::Broken`] goes to all
    /// hosts.
    Broken(Rank, Rank),
}

impl Fence {
    /// Makes a barrier of `size` nodes.
    #[must_use]
    pub fn new(size: u32) -> Fence {
        let (here, ended) = (BTreeSet::new(), BTreeSet::new());
        Fence { size, here, values: Vec::new(), ended, is_broken: false }
    }

    /// Notes that a node has come, with its new values.
    pub fn arrived(&mut self, rank: Rank, values: Vec<Pair>) -> FenceChange {
        if self.is_broken {
            return FenceChange::Order(PmiOrder::Broken);
        }
        if rank >= self.size || !self.here.insert(rank) {
            return FenceChange::Open;
        }
        self.values.extend(values);
        if self.here.len() == self.size as usize {
            self.here.clear();
            return FenceChange::Order(PmiOrder::Passed(std::mem::take(&mut self.values)));
        }
        self.check()
    }

    /// Notes that the process of a node has ended.
    pub fn ended(&mut self, rank: Rank) -> FenceChange {
        self.ended.insert(rank);
        self.check()
    }

    /// Breaks the barrier, because the job is over.
    pub fn break_off(&mut self) -> FenceChange {
        match std::mem::replace(&mut self.is_broken, true) {
            true => FenceChange::Open,
            false => FenceChange::Order(PmiOrder::Broken),
        }
    }

    fn check(&mut self) -> FenceChange {
        // A node may end while it waits here, and is missing at the next barrier.
        let gone = self.ended.first().copied();
        let waits = self.here.iter().find(|rank| !self.ended.contains(rank)).copied();
        match (waits, gone) {
            (Some(waits), Some(gone)) if !self.is_broken => {
                self.is_broken = true;
                FenceChange::Broken(waits, gone)
            }
            _ => FenceChange::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Pair {
        (text.to_owned(), text.to_owned())
    }

    /// LAUNCH-10.4.
    #[test]
    fn barrier_hands_the_new_values_of_all_to_all() {
        let mut fence = Fence::new(2);
        for round in ["a", "b"] {
            assert_eq!(fence.arrived(1, vec![pair(round)]), FenceChange::Open);
            assert_eq!(fence.arrived(1, vec![pair("twice")]), FenceChange::Open);
            let passed = FenceChange::Order(PmiOrder::Passed(vec![pair(round)]));
            assert_eq!(fence.arrived(0, Vec::new()), passed);
        }
        assert_eq!(fence.arrived(7, Vec::new()), FenceChange::Open);
        assert_eq!(fence.ended(0), FenceChange::Open, "nobody waits");
    }

    /// LAUNCH-10.5.
    #[test]
    fn node_that_ends_breaks_the_barrier_that_others_wait_at() {
        let mut fence = Fence::new(3);
        assert_eq!(fence.arrived(1, Vec::new()), FenceChange::Open);
        assert_eq!(fence.ended(2), FenceChange::Broken(1, 2));
        assert_eq!(fence.ended(0), FenceChange::Open, "said once");
        assert_eq!(fence.arrived(0, Vec::new()), FenceChange::Order(PmiOrder::Broken));
        let mut fence = Fence::new(3);
        assert_eq!(fence.ended(2), FenceChange::Open);
        assert_eq!(fence.arrived(0, Vec::new()), FenceChange::Broken(0, 2));
        let mut fence = Fence::new(2);
        assert_eq!(fence.break_off(), FenceChange::Order(PmiOrder::Broken));
        assert_eq!(fence.break_off(), FenceChange::Open);
    }
}
