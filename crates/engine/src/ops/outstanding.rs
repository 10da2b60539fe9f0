//! Counts the operations to each peer that have not ended, for fences and flushes.
//!
//! Each fence or flush closes an *epoch* of the peer, and concerns the operations of that epoch and
//! of earlier ones. An operation remembers its epoch, and costs one increment and one decrement. No
//! search through all operations is needed.

use oikaze_protocol::Rank;
use std::collections::VecDeque;
use std::ops::Range;

/// Operations in flight to all peers, by rank; grown as needed.
#[derive(Default)]
pub(crate) struct Outstanding {
    peers: Vec<Epochs>,
    /// Peers with a closed epoch that has ended since the last [`Outstanding::take_drained`].
    drained: Vec<Rank>,
}

#[derive(Default)]
struct Epochs {
    /// Number of the first epoch in `counts`.
    first: u32,
    /// Operations of each epoch, of which the last is open.
    counts: VecDeque<u32>,
}

impl Outstanding {
    /// Counts a new operation to this peer and returns its epoch.
    #[inline]
    pub fn begin(&mut self, peer: Rank) -> u32 {
        match self.peers.get_mut(peer as usize).and_then(Epochs::begin_another) {
            Some(epoch) => epoch,
            None => self.begin_first(peer as usize),
        }
    }

    #[cold]
    fn begin_first(&mut self, peer: usize) -> u32 {
        if peer >= self.peers.len() {
            self.peers.resize_with(peer + 1, Epochs::default);
        }
        self.peers.get_mut(peer).map_or(0, Epochs::begin_first)
    }

    /// Called when an operation of that epoch has ended.
    pub fn end(&mut self, peer: Rank, epoch: u32) {
        self.end_many(peer, epoch, 1);
    }

    /// Called when this number of operations of that epoch has ended.
    pub fn end_many(&mut self, peer: Rank, epoch: u32, operations: u32) {
        let ended =
            self.peers.get_mut(peer as usize).is_some_and(|epochs| epochs.end(epoch, operations));
        if ended && self.drained.last() != Some(&peer) {
            self.drained.push(peer);
        }
    }

    /// Closes the open epoch, so that later operations belong to another one. Returns the epoch to
    /// wait for, if any operation has not ended.
    pub fn close(&mut self, peer: Rank) -> Option<u32> {
        self.peers.get_mut(peer as usize)?.close()
    }

    /// Returns `true` if all operations of that epoch and of earlier ones have ended.
    pub fn has_ended(&self, peer: Rank, epoch: u32) -> bool {
        // Epoch numbers wrap around. Few epochs are live at a time, so the sign of the difference
        // tells whether an epoch precedes the first one.
        self.peers
            .get(peer as usize)
            .is_none_or(|epochs| epochs.first.wrapping_sub(epoch).cast_signed() > 0)
    }

    /// Returns the ranks from 0 to the highest one to which an operation was begun.
    pub fn peers(&self) -> Range<Rank> {
        0..Rank::try_from(self.peers.len()).unwrap_or(Rank::MAX)
    }

    /// Returns `true` if [`Outstanding::take_drained`] has a peer.
    #[inline]
    pub fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// Takes the peers with a closed epoch that has ended since the last call. A peer may occur
    /// twice.
    pub fn take_drained(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.drained)
    }
}

impl Epochs {
    /// Counts an operation in the open epoch and returns that epoch, if there is one.
    #[inline]
    fn begin_another(&mut self) -> Option<u32> {
        *self.counts.back_mut()? += 1;
        Some(self.open())
    }

    fn begin_first(&mut self) -> u32 {
        self.counts.push_back(1);
        self.open()
    }

    fn open(&self) -> u32 {
        self.first.wrapping_add(self.counts.len() as u32).wrapping_sub(1)
    }

    /// Returns `true` if an epoch before the open one has ended.
    fn end(&mut self, epoch: u32, operations: u32) -> bool {
        if let Some(count) = self.counts.get_mut(epoch.wrapping_sub(self.first) as usize) {
            *count = count.saturating_sub(operations);
        }
        let before = self.first;
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.first != before
    }

    fn close(&mut self) -> Option<u32> {
        match *self.counts.back()? {
            // No operation has begun since the last epoch was closed.
            0 if self.counts.len() == 1 => None,
            0 => Some(self.open().wrapping_sub(1)),
            _ => {
                self.counts.push_back(0);
                Some(self.open().wrapping_sub(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::random::Random;

    /// Compares epochs with a plain model: a list of the operations that have not ended, in the
    /// order in which they began.
    #[test]
    fn epochs_end_when_all_before_have() {
        for seed in 0..200u64 {
            let mut random = Random::new(seed);
            let mut outstanding = Outstanding::default();
            // Begin near the maximum, so that epoch numbers wrap around.
            outstanding
                .peers
                .resize_with(3, || Epochs { first: u32::MAX - 5, counts: VecDeque::new() });
            let (mut live, mut fences) =
                (Vec::<(Rank, u64, u32)>::new(), Vec::<(Rank, u64, u32)>::new());
            for step in 0..300 {
                let peer = random.below(3) as Rank;
                match random.below(5) {
                    0 | 1 => live.push((peer, step, outstanding.begin(peer))),
                    2 | 3 if !live.is_empty() => {
                        let (peer, _, epoch) = live.swap_remove(random.below(live.len()));
                        let over = |live: &[(Rank, u64, u32)], fence: &(Rank, u64, u32)| {
                            !live.iter().any(|(to, at, _)| *to == fence.0 && *at < fence.1)
                        };
                        outstanding.end(peer, epoch);
                        let mut ended = false;
                        fences.retain(|fence| {
                            let is_over = over(&live, fence);
                            assert_eq!(outstanding.has_ended(fence.0, fence.2), is_over, "{seed}");
                            ended |= is_over;
                            !is_over
                        });
                        let drained = outstanding.take_drained();
                        assert!(!ended || drained == [peer], "{seed}: it is told");
                        assert!(
                            drained.iter().all(|drained| *drained == peer),
                            "{seed}: of others nothing is"
                        );
                    }
                    _ => match outstanding.close(peer) {
                        Some(epoch) => fences.push((peer, step, epoch)),
                        None => assert!(!live.iter().any(|(to, ..)| *to == peer), "{seed}"),
                    },
                }
            }
        }
    }
}
