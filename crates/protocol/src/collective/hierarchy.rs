//! Hierarchy: the ranks of one machine combine at a leader, the leaders among themselves.

use super::plan::{Group, Part, PlanBuilder};
use super::{doubling, rabenseifner, ring, tree};
use crate::Rank;
use crate::collective::choice::CollectiveAlgorithm;
use alloc::vec::Vec;

/// Machines of a group, seen from one rank.
#[derive(Debug)]
pub(super) struct Machines {
    /// Ranks of this machine, in order.
    local: Vec<Rank>,
    /// Leader of each machine, in the order of the machines' first ranks.
    leaders: Vec<Rank>,
    me: Rank,
    /// Returns `true` if the ranks of each machine are contiguous.
    pub contiguous: bool,
}

impl Machines {
    /// Returns the machines of a group whose rank `r` is on `machines[r]`. The root leads its own
    /// machine, and the lowest rank any other one.
    pub fn new(machines: &[u32], me: Rank, root: Option<Rank>) -> Machines {
        let machine_of = |rank: Rank| machines.get(rank as usize).copied();
        let ranks = 0..Rank::try_from(machines.len()).unwrap_or(Rank::MAX);
        let local = ranks.clone().filter(|rank| machine_of(*rank) == machine_of(me)).collect();
        let (mut seen, mut leaders) = (alloc::collections::BTreeSet::new(), Vec::new());
        let (mut previous, mut contiguous) = (None, true);
        for rank in ranks {
            let machine = machine_of(rank);
            if seen.insert(machine) {
                let root = root.filter(|root| machine_of(*root) == machine);
                leaders.push(root.unwrap_or(rank));
            } else if previous != Some(machine) {
                contiguous = false;
            }
            previous = Some(machine);
        }
        Machines { local, leaders, me, contiguous }
    }

    /// Returns the number of machines.
    pub fn count(&self) -> usize {
        self.leaders.len()
    }

    fn group<'g>(ranks: &'g [Rank], of: Rank) -> Option<Group<'g>> {
        let me = ranks.iter().position(|rank| *rank == of)?;
        Some(Group { members: Some(ranks), size: ranks.len(), me })
    }

    fn local(&self) -> Group<'_> {
        let me = self.local.iter().position(|rank| *rank == self.me).unwrap_or(0);
        Group { members: Some(&self.local), size: self.local.len(), me }
    }

    /// Returns the place of this machine's leader among its ranks.
    fn local_leader(&self) -> usize {
        self.local.iter().position(|rank| self.leaders.contains(rank)).unwrap_or(0)
    }
}

/// Sends a part of the root to all.
pub(super) fn broadcast(out: &mut PlanBuilder, machines: &Machines, root: Rank, part: Part) {
    if let Some(leaders) = Machines::group(&machines.leaders, machines.me) {
        let root = machines.leaders.iter().position(|leader| *leader == root).unwrap_or(0);
        tree::broadcast(out, &leaders, root, part);
    }
    out.next_phase();
    tree::broadcast(out, &machines.local(), machines.local_leader(), part);
}

/// Combines a part of all at the root, in place.
pub(super) fn reduce(
    out: &mut PlanBuilder,
    machines: &Machines,
    root: Rank,
    part: Part,
    commutes: bool,
) {
    tree::reduce(out, &machines.local(), machines.local_leader(), part, commutes);
    out.next_phase();
    if let Some(leaders) = Machines::group(&machines.leaders, machines.me) {
        let root = machines.leaders.iter().position(|leader| *leader == root).unwrap_or(0);
        tree::reduce(out, &leaders, root, part, commutes);
    }
}

/// Combines a part of all, in place. The leaders use this algorithm.
pub(super) fn all_reduce(
    out: &mut PlanBuilder,
    machines: &Machines,
    part: Part,
    among_leaders: CollectiveAlgorithm,
    commutes: bool,
) {
    tree::reduce(out, &machines.local(), machines.local_leader(), part, commutes);
    out.next_phase();
    if let Some(leaders) = Machines::group(&machines.leaders, machines.me) {
        match among_leaders {
            CollectiveAlgorithm::Rabenseifner => rabenseifner::all_reduce(out, &leaders, part),
            CollectiveAlgorithm::Ring => ring_all_reduce(out, &leaders, part),
            _ => doubling::all_reduce(out, &leaders, part),
        }
    }
    out.next_phase();
    tree::broadcast(out, &machines.local(), machines.local_leader(), part);
}

/// Combines a part of all, in place, by two rings.
pub(super) fn ring_all_reduce(out: &mut PlanBuilder, group: &Group<'_>, part: Part) {
    let size = group.size;
    let at = |place: usize| super::plan::cut(part.len, size, place);
    let block = |place: usize| part.slice(at(place), at(place + 1));
    ring::reduce_scatter(out, group, &block);
    ring::all_gather(out, group, size.saturating_sub(1), &block);
}
