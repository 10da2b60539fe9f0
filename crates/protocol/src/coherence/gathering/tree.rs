//! The tree along which arrivals and departures of a collective travel (COH-6.12), and sets of
//! ranks.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::short_list::ShortList;
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of children of a node. With up to nine nodes, all others are children of rank 0.
pub(crate) const RADIX: u32 = 8;

/// Links of one node in the tree of barriers: by them, its arrivals and departures travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierLinks {
    /// Node to which this node tells arrivals, and which tells it the end; `None` for rank 0. Two
    /// nodes have no parent, because each tells the other one.
    pub parent: Option<Rank>,
    /// Nodes that tell this node their arrivals.
    pub children: Vec<Rank>,
}

impl BarrierLinks {
    /// Returns the links of node `me` among `nodes` nodes.
    ///
    /// ```
    /// use oikaze_protocol::coherence::BarrierLinks;
    /// let links = BarrierLinks::new(0, 4);
    /// assert_eq!((links.parent, links.children), (None, vec![1, 2, 3]));
    /// assert_eq!(BarrierLinks::new(3, 4).parent, Some(0));
    /// ```
    #[must_use]
    pub fn new(me: Rank, nodes: u32) -> BarrierLinks {
        let place = TreePlace::new(me, nodes);
        match place.is_pair {
            true => BarrierLinks { parent: None, children: place.asked().into_iter().collect() },
            false => {
                let children = place.children.iter().map(|part| part.start).collect();
                BarrierLinks { parent: place.parent, children }
            }
        }
    }
}

/// Place of one node in the tree.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct TreePlace {
    pub me: Rank,
    /// Node to which this node tells arrivals; `None` for rank 0.
    pub parent: Option<Rank>,
    /// Subtrees of the children. The child is the first rank of its subtree.
    pub children: Vec<Range<Rank>>,
    /// This node and everything below it.
    pub subtree: Range<Rank>,
    /// `true` if there are two nodes, which exchange their arrivals (COH-6.11).
    pub is_pair: bool,
}

impl TreePlace {
    /// Returns the place of node `me` among `nodes` nodes.
    pub fn new(me: Rank, nodes: u32) -> TreePlace {
        let (mut parent, mut subtree) = (None, 0..nodes.max(1));
        let mut children = parts(&subtree);
        while subtree.start != me {
            let Some(next) = children.iter().find(|part| part.contains(&me)).cloned() else {
                break;
            };
            parent = Some(subtree.start);
            children = parts(&next);
            subtree = next;
        }
        TreePlace { me, parent, children, subtree, is_pair: nodes == 2 }
    }

    /// Returns the ranks whose arrivals the child `rank` may report; `None` if `rank` is not a
    /// child.
    pub fn subtree_of(&self, rank: Rank) -> Option<Range<Rank>> {
        if self.is_pair {
            return (rank != self.me).then_some(rank..rank.saturating_add(1));
        }
        self.children.iter().find(|part| part.start == rank).cloned()
    }

    /// Returns the ranks whose arrivals this node gathers.
    pub fn gathers(&self) -> Range<Rank> {
        if self.is_pair { 0..2 } else { self.subtree.clone() }
    }

    /// Returns `true` if this node computes the departure itself once it has gathered everything.
    pub fn concludes(&self) -> bool {
        self.is_pair || self.parent.is_none()
    }

    /// Returns the node that this node asks about a collective (COH-13.1).
    pub fn asked(&self) -> Option<Rank> {
        if self.is_pair { Some(1 - self.me.min(1)) } else { self.parent }
    }
}

/// Divides all ranks of a subtree but the first into at most [`RADIX`] subtrees of nearly equal
/// size. Consecutive ranks stay together, because they are often on one machine.
fn parts(subtree: &Range<Rank>) -> Vec<Range<Rank>> {
    let below = subtree.end.saturating_sub(subtree.start).saturating_sub(1);
    let count = below.min(RADIX);
    let mut start = subtree.start.saturating_add(1);
    (0..count)
        .map(|part| {
            let first = start;
            start += below / count + u32::from(part < below % count);
            first..start
        })
        .collect()
}

/// Set of ranks, as sorted runs with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Ranks(ShortList<Range<Rank>>);

impl Ranks {
    pub fn one(rank: Rank) -> Ranks {
        Ranks(ShortList::one(rank..rank.saturating_add(1)))
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, rank: Rank) -> bool {
        self.0.iter().any(|run| run.contains(&rank))
    }

    pub fn iter(&self) -> impl Iterator<Item = Rank> + Clone {
        self.0.iter().cloned().flatten()
    }

    /// Returns how many of these ranks lie in `range`.
    pub fn count_in(&self, range: &Range<Rank>) -> usize {
        self.0
            .iter()
            .map(|run| run.start.max(range.start)..run.end.min(range.end))
            .map(|r| r.len())
            .sum()
    }

    /// Returns `true` if the two sets have a rank in common.
    pub fn overlaps(&self, other: &Ranks) -> bool {
        other.0.iter().any(|run| self.count_in(run) > 0)
    }

    /// Adds all ranks of `other`.
    pub fn merge(&mut self, other: &Ranks) {
        match (&mut *self.0, &*other.0) {
            (_, []) => {}
            ([], _) => self.0 = other.0.clone(),
            // Runs that touch, the most frequent case.
            ([run], [more]) if more.start <= run.end && run.start <= more.end => {
                *run = run.start.min(more.start)..run.end.max(more.end);
            }
            _ => self.0 = joined(self.0.iter().chain(other.0.iter()).cloned().collect()),
        }
    }

    /// Removes one rank from the set.
    pub fn remove(&mut self, rank: Rank) {
        let runs = core::mem::take(&mut self.0);
        let parts = runs.iter().cloned().flat_map(|run| {
            if run.contains(&rank) {
                [run.start..rank, rank.saturating_add(1)..run.end]
            } else {
                [run, 0..0]
            }
        });
        self.0 = parts.filter(|run| !run.is_empty()).collect();
    }

    /// Returns a length in bytes that what [`Self::write`] writes does not exceed.
    pub fn len_max(&self) -> usize {
        5 + 10 * self.0.len()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        let mut end = 0;
        for run in self.0.iter() {
            out.put_leb128(u64::from(run.start - end));
            out.put_leb128(run.len() as u64);
            end = run.end;
        }
    }

    /// Reads runs of ranks inside `range`, in order and apart from each other. At least one must be
    /// there.
    pub fn read(reader: &mut ByteReader<'_>, range: &Range<Rank>) -> Result<Ranks, Refusal> {
        let count = reader.count(2)?;
        let (mut runs, mut end): (ShortList<Range<Rank>>, Rank) = (ShortList::default(), 0);
        for _ in 0..count {
            let (gap, len) = (reader.leb128_u32()?, reader.leb128_u32()?);
            let start = end.checked_add(gap).ok_or(Refusal::Malformed)?;
            let next = start.checked_add(len).ok_or(Refusal::Malformed)?;
            let is_apart = runs.is_empty() || gap > 0;
            if len == 0 || !is_apart || start < range.start || next > range.end {
                return Err(Refusal::Malformed);
            }
            runs.push(start..next);
            end = next;
        }
        if runs.is_empty() { Err(Refusal::Malformed) } else { Ok(Ranks(runs)) }
    }
}

/// Sorts runs, and joins those that touch.
fn joined(mut runs: Vec<Range<Rank>>) -> ShortList<Range<Rank>> {
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|run, last| {
        let touches = run.start <= last.end;
        if touches {
            last.end = last.end.max(run.end);
        }
        touches
    });
    runs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::collections::BTreeSet;

    /// COH-6.12: the shape of the tree.
    #[test]
    fn every_node_is_the_child_of_its_parent_and_the_tree_is_low() {
        for nodes in (1..200).chain([256, 585, 586, 1024, 5000]) {
            let places: Vec<TreePlace> = (0..nodes).map(|me| TreePlace::new(me, nodes)).collect();
            let mut depths = vec![0u32; nodes as usize];
            for place in &places {
                assert_eq!(place.subtree.start, place.me);
                assert!(place.children.len() <= RADIX as usize);
                let below: Vec<Rank> = place.children.iter().cloned().flatten().collect();
                assert_eq!(below, (place.me + 1..place.subtree.end).collect::<Vec<_>>());
                for part in &place.children {
                    let child = &places[part.start as usize];
                    assert_eq!((child.parent, &child.subtree), (Some(place.me), part));
                }
                if let Some(parent) = place.parent {
                    depths[place.me as usize] = depths[parent as usize] + 1;
                }
            }
            // The height of the complete tree with RADIX children per node.
            let (mut full, mut height) = (1, 0);
            while full < nodes {
                height += 1;
                full = full * RADIX + 1;
            }
            assert_eq!(depths.iter().max(), Some(&height), "{nodes} nodes");
        }
    }

    #[test]
    fn sets_of_ranks_are_sets() {
        let mut random = crate::random::Random::new(5);
        for _ in 0..300 {
            let (mut ranks, mut model) = (Ranks::default(), BTreeSet::new());
            for _ in 0..random.below(20) {
                let rank = random.below(24) as Rank;
                if random.chance(0.7) {
                    ranks.merge(&Ranks::one(rank));
                    model.insert(rank);
                } else {
                    ranks.remove(rank);
                    model.remove(&rank);
                }
            }
            assert!(ranks.iter().eq(model.iter().copied()));
            assert_eq!((ranks.len(), ranks.is_empty()), (model.len(), model.is_empty()));
            for rank in 0..24 {
                assert_eq!(ranks.contains(rank), model.contains(&rank));
                assert_eq!(
                    ranks.count_in(&(rank..20)),
                    model.iter().filter(|r| (rank..20).contains(*r)).count()
                );
                assert_eq!(ranks.overlaps(&Ranks::one(rank)), model.contains(&rank));
            }
            let mut bytes = Vec::new();
            ranks.write(&mut bytes);
            let read = Ranks::read(&mut ByteReader(&bytes), &(0..24));
            let expected = if model.is_empty() { Err(Refusal::Malformed) } else { Ok(ranks) };
            assert_eq!(read, expected);
        }
    }

    /// COH-9.1: hostile runs.
    #[test]
    fn runs_of_ranks_that_make_no_sense_are_refused() {
        for wrong in [
            &[0][..],
            &[1, 0, 0],
            &[1, 0, 1],
            &[1, 2, 8],
            &[2, 2, 1, 0, 1],
            &[2, 2, 1, 1],
            &[1, 2, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[9, 2, 1],
        ] {
            assert!(Ranks::read(&mut ByteReader(wrong), &(1..9)).is_err(), "{wrong:?}");
        }
        assert!(Ranks::read(&mut ByteReader(&[2, 1, 1, 1, 6]), &(1..9)).is_ok());
    }
}
