//! Queues of peers without duplicates: peers that may have something to do, and peers that have
//! bulk to send. A turn visits only these.
//!
//! eRPC keeps such a list of active sessions, and UCX one of a worker's active interfaces. The
//! engine marks a peer when a datagram arrives from it, something is posted to it, or its deadline
//! has come. The peer stays in the queue until a turn has found that it has nothing to send.

use oikaze_protocol::Rank;
use std::collections::VecDeque;

/// A queue of ranks without duplicates. Marking and taking turns are O(1); nothing is allocated
/// after the start.
pub(crate) struct PeerQueue {
    queue: VecDeque<Rank>,
    /// Is `true` for each rank in the queue.
    member: Vec<bool>,
}

impl PeerQueue {
    /// Creates an empty queue for the ranks below `nodes`.
    pub fn new(nodes: u32) -> Self {
        Self { queue: VecDeque::with_capacity(nodes as usize), member: vec![false; nodes as usize] }
    }

    /// Adds a peer that may have something to do.
    pub fn mark(&mut self, rank: Rank) {
        if let Some(member) = self.member.get_mut(rank as usize)
            && !std::mem::replace(member, true)
        {
            self.queue.push_back(rank);
        }
    }

    /// Returns the number of peers in the queue.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns `true` if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if this peer is in the queue.
    pub fn contains(&self, rank: Rank) -> bool {
        self.member.get(rank as usize).is_some_and(|member| *member)
    }

    /// Returns the peer at this position, counted from the front.
    pub fn get(&self, at: usize) -> Option<Rank> {
        self.queue.get(at).copied()
    }

    /// Iterates over all peers from the front.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.queue.iter().copied()
    }

    /// Moves the front to the back and returns it.
    pub fn rotate(&mut self) -> Option<Rank> {
        let rank = self.queue.pop_front()?;
        self.queue.push_back(rank);
        Some(rank)
    }

    /// Removes the front and returns it.
    pub fn take(&mut self) -> Option<Rank> {
        let rank = self.queue.pop_front()?;
        if let Some(member) = self.member.get_mut(rank as usize) {
            *member = false;
        }
        Some(rank)
    }

    /// Visits each peer once and removes those for which `stays` is false. The others keep their
    /// order.
    pub fn retain(&mut self, mut stays: impl FnMut(Rank) -> bool) {
        let Self { queue, member } = self;
        queue.retain(|&rank| {
            let stay = stays(rank);
            if let Some(member) = member.get_mut(rank as usize) {
                *member = stay;
            }
            stay
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_it_once_and_all_have_their_turn() {
        let mut active = PeerQueue::new(5);
        [3, 1, 3, 4, 1].into_iter().for_each(|rank| active.mark(rank));
        active.mark(99);
        assert_eq!((active.len(), active.contains(3), active.contains(0)), (3, true, false));
        let turns: Vec<_> = (0..4).filter_map(|_| active.rotate()).collect();
        assert_eq!(turns, [3, 1, 4, 3]);
        active.retain(|rank| rank != 4);
        active.mark(4);
        let order: Vec<_> = (0..active.len()).filter_map(|at| active.get(at)).collect();
        assert_eq!(order, [1, 3, 4]);
        assert_eq!((active.take(), active.contains(1)), (Some(1), false));
        active.mark(1);
        active.retain(|_| false);
        assert!(active.is_empty() && !active.contains(1));
    }
}
