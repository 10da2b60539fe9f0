//! Deadlines of all peers, one for each: finds the earliest deadline, and the peers whose deadlines
//! have come.
//!
//! The deadlines form a winner tree (Knuth, The Art of Computer Programming, volume 3, section
//! 5.4.1). Leaves are the peers' deadlines, and each inner node is the earlier of its two children,
//! so that the root is the earliest deadline of all. Moving a deadline costs at most log₂ n steps,
//! and usually few, because the update stops at the first inner node that keeps its value. Nothing
//! is allocated after the start. The tree keeps no stale deadline, so a thread that sleeps until
//! [`Deadlines::earliest`] is never woken for a deadline that has moved.

use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;

const NEVER: Time = Time(u64::MAX);

/// A deadline for each of a fixed number of peers.
pub(crate) struct Deadlines {
    /// Number of leaves; a power of two.
    width: usize,
    /// Tree with the root at 1, the children of `i` at `2 i` and `2 i + 1`, and the leaves from
    /// `width` on.
    tree: Vec<Time>,
}

impl Deadlines {
    /// Creates the tree for the ranks below `nodes`. No rank has a deadline yet.
    pub fn new(nodes: u32) -> Self {
        let width = (nodes as usize).next_power_of_two();
        Self { width, tree: vec![NEVER; 2 * width] }
    }

    /// Returns the earliest deadline of all.
    pub fn earliest(&self) -> Option<Time> {
        self.tree.get(1).copied().filter(|at| *at < NEVER)
    }

    /// Returns the deadline of one peer.
    pub fn get(&self, rank: Rank) -> Option<Time> {
        self.tree.get(self.width + rank as usize).copied().filter(|at| *at < NEVER)
    }

    /// Sets the deadline of one peer.
    pub fn set(&mut self, rank: Rank, deadline: Option<Time>) {
        let mut at = self.width + rank as usize;
        let mut winner = deadline.unwrap_or(NEVER);
        while let Some(place) = self.tree.get_mut(at) {
            if *place == winner {
                return;
            }
            *place = winner;
            if at <= 1 {
                return;
            }
            let sibling = self.tree.get(at ^ 1).copied().unwrap_or(NEVER);
            winner = winner.min(sibling);
            at /= 2;
        }
    }

    /// Takes a peer whose deadline has come, lowest rank first, and clears its deadline.
    pub fn take_due(&mut self, now: Time) -> Option<Rank> {
        self.earliest().filter(|at| *at <= now)?;
        let mut at = 1;
        while at < self.width {
            at *= 2;
            if self.tree.get(at).is_none_or(|left| *left > now) {
                at += 1;
            }
        }
        let rank = Rank::try_from(at - self.width).ok()?;
        self.set(rank, None);
        Some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Op {
        Set(Rank, Option<u64>),
        Due(u64),
    }

    fn op(nodes: u32) -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..nodes, proptest::option::of(0..50u64)).prop_map(|(rank, at)| Op::Set(rank, at)),
            1 => (0..50u64).prop_map(Op::Due),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map((nodes, ops) in (1..70u32).prop_flat_map(|n| (Just(n), prop::collection::vec(op(n), 1..120)))) {
            let mut deadlines = Deadlines::new(nodes);
            let mut oracle = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Set(rank, at) => {
                        deadlines.set(rank, at.map(Time));
                        match at {
                            Some(at) => oracle.insert(rank, at),
                            None => oracle.remove(&rank),
                        };
                    }
                    Op::Due(now) => {
                        let due: Vec<Rank> = std::iter::from_fn(|| deadlines.take_due(Time(now))).collect();
                        let expected: Vec<Rank> = oracle.iter().filter(|(_, at)| **at <= now).map(|(rank, _)| *rank).collect();
                        prop_assert_eq!(due, expected);
                        oracle.retain(|_, at| *at > now);
                    }
                }
                prop_assert_eq!(deadlines.earliest(), oracle.values().min().copied().map(Time));
                for rank in 0..nodes {
                    prop_assert_eq!(deadlines.get(rank), oracle.get(&rank).copied().map(Time));
                }
            }
        }
    }
}
