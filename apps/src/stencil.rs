//! Steps of a stencil that wait for adjacent nodes only, or end with a barrier.

use std::ops::Range;

use oikaze::shared::{Element, SharedArray};
use oikaze::{Job, Result};

use crate::partition::part;

/// A node's share of the planes (or rows) of a field that a stencil computes step by step, from one
/// array into another one. The first and the last plane of the field stay as they are.
///
/// A step computes the [`borders`](Self::borders), [notifies](Self::notify) the adjacent nodes,
/// computes the [`interior`](Self::interior), and [waits](Self::wait) for the adjacent nodes. The
/// borders travel while the nodes compute. That is correct because only the borders are computed
/// from planes of other nodes. A notification says two things:
/// - The borders of the new field are complete. The other node reads them in its next step.
/// - This node will not read the other node's planes of the old field any more. The other node
///   writes them in its next step, and the new bytes may come here before this node's step ends.
pub struct StencilShare {
    /// Planes of this node.
    pub mine: Range<usize>,
    /// Those of them which this node computes.
    computed: Range<usize>,
    /// Node that has the plane before.
    before: Option<u32>,
    /// Node that has the plane after.
    after: Option<u32>,
    /// `true` if steps end with a barrier in place of notifications.
    by_barriers: bool,
}

impl StencilShare {
    /// Returns the share of node `rank` of `nodes`: its [`part`] of the planes.
    #[must_use]
    pub fn new(planes: usize, rank: u32, nodes: u32) -> Self {
        let mine = part(planes, rank, nodes);
        let computed = mine.start.max(1)..mine.end.min(planes.saturating_sub(1));
        // A node without planes is next to none.
        let has_plane = |other: &u32| !mine.is_empty() && !part(planes, *other, nodes).is_empty();
        let before = (0..rank).rev().find(has_plane);
        let after = (rank + 1..nodes).find(has_plane);
        Self { mine, computed, before, after, by_barriers: false }
    }

    /// Lets the nodes meet in a barrier at the end of each step if all of them map the memory of
    /// the field. Such a barrier is a few words in memory and takes less time than a message.
    pub fn choose_barriers<T: Element>(&mut self, field: &SharedArray<T>) {
        self.by_barriers = field.why_not_shared().is_none();
    }

    /// Returns the planes that this node reads and adjacent nodes compute.
    pub fn halo(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.mine;
        let before = self.before.map(|_| start - 1..start);
        before.into_iter().chain(self.after.map(|_| end..end + 1))
    }

    /// Returns the planes that adjacent nodes read. They are computed first.
    pub fn borders(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (all, inner) = (&self.computed, self.interior());
        let borders = [all.start..inner.start, inner.end..all.end];
        borders.into_iter().filter(|planes| !planes.is_empty())
    }

    /// Returns the planes that this node computes from its own planes.
    #[must_use]
    pub fn interior(&self) -> Range<usize> {
        let [before, after] = [self.before, self.after].map(|node| usize::from(node.is_some()));
        let Range { start, end } = self.computed;
        let first = (start + before).min(end);
        first..end.saturating_sub(after).max(first)
    }

    /// Tells the adjacent nodes that the borders are computed. Does nothing if steps end with a
    /// barrier.
    ///
    /// # Errors
    /// A node is lost.
    #[track_caller]
    pub fn notify(&self, job: &Job) -> Result<()> {
        if self.by_barriers {
            return Ok(());
        }
        self.adjacent().try_for_each(|rank| job.notify(rank))
    }

    /// Waits until the adjacent nodes have computed the borders of this step, or for all nodes, in
    /// a barrier.
    ///
    /// # Errors
    /// A node is lost.
    #[track_caller]
    pub fn wait(&self, job: &Job) -> Result<()> {
        if self.by_barriers {
            return job.barrier();
        }
        self.adjacent().try_for_each(|rank| job.wait_notify(rank))
    }

    fn adjacent(&self) -> impl Iterator<Item = u32> + use<> {
        self.before.into_iter().chain(self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_is_computed_once() {
        for (planes, nodes) in [(32, 1), (32, 2), (9, 4), (4, 8), (3, 8), (16, 16)] {
            let mut computed = Vec::new();
            for rank in 0..nodes {
                let share = StencilShare::new(planes, rank, nodes);
                computed.extend(share.borders().chain([share.interior()]).flatten());
            }
            computed.sort_unstable();
            assert!(computed.into_iter().eq(1..planes - 1), "{planes} planes, {nodes} nodes");
        }
    }

    #[test]
    fn only_borders_are_computed_from_planes_of_others() {
        for (rank, borders, interior, halo) in [
            (0, vec![7], 1..7, vec![8]),
            (1, vec![8, 15], 9..15, vec![7, 16]),
            (3, vec![24], 25..31, vec![23]),
        ] {
            let share = StencilShare::new(32, rank, 4);
            assert_eq!(share.borders().flatten().collect::<Vec<_>>(), borders);
            assert_eq!(share.interior(), interior);
            assert_eq!(share.halo().flatten().collect::<Vec<_>>(), halo);
        }
    }

    #[test]
    fn nodes_without_planes_have_no_part_in_an_exchange() {
        let all = |planes, nodes| -> Vec<Vec<u32>> {
            (0..nodes)
                .map(|rank| StencilShare::new(planes, rank, nodes).adjacent().collect())
                .collect()
        };
        assert_eq!(all(9, 3), [vec![1], vec![0, 2], vec![1]]);
        assert_eq!(all(9, 1), [Vec::<u32>::new()]);
        // Of five nodes, the second, the fourth and the last one have a plane.
        assert_eq!(all(3, 5), [vec![], vec![3], vec![], vec![1, 4], vec![3]]);
    }
}
