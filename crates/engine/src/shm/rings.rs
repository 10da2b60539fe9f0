//! Rings to all local peers, found by rank.

use super::channel::ring_counters::RingCounters;
use super::local_peer::LocalPeer;
use oikaze_os::memory::Region;
use oikaze_os::shm::{Grants, Pair};
use oikaze_os::sync::make_fences;
use oikaze_protocol::Rank;

/// Rings to all local peers, and what peers that have ended left behind.
#[derive(Default)]
pub(crate) struct Rings {
    by_rank: Vec<Option<Box<LocalPeer>>>,
    /// Ranks of all local peers, in the order in which they were attached.
    pub ranks: Vec<Rank>,
    /// Final counters of rings that are gone.
    ended: Vec<(Rank, RingCounters)>,
    /// Peers that were given up in the middle of an access to a region, and whose processes live
    /// (MEM-18.6).
    wedged_peers: Vec<(Rank, Pair)>,
    /// Is `true` if a turn has received a wakeup from a local peer. The local peer takes this node
    /// for awake, and does not wake a sleeping thread of this node again.
    pub doorbell: bool,
}

impl Rings {
    /// Adds a local peer.
    pub fn insert(&mut self, rank: Rank, local_peer: LocalPeer) {
        let at = rank as usize;
        self.by_rank.resize_with(self.by_rank.len().max(at + 1), || None);
        if let Some(slot) = self.by_rank.get_mut(at) {
            *slot = Some(Box::new(local_peer));
        }
        self.ranks.push(rank);
    }

    /// Removes a local peer.
    pub fn remove(&mut self, rank: Rank) -> Option<Box<LocalPeer>> {
        let local_peer = self.by_rank.get_mut(rank as usize)?.take()?;
        self.ranks.retain(|known| *known != rank);
        self.ended.push((rank, local_peer.counters()));
        Some(local_peer)
    }

    /// Returns a local peer.
    #[inline]
    pub fn get(&self, rank: Rank) -> Option<&LocalPeer> {
        self.by_rank.get(rank as usize)?.as_deref()
    }

    /// Returns a local peer, mutable.
    #[inline]
    pub fn get_mut(&mut self, rank: Rank) -> Option<&mut LocalPeer> {
        self.by_rank.get_mut(rank as usize)?.as_deref_mut()
    }

    /// Returns all local peers.
    pub fn iter(&self) -> impl Iterator<Item = &LocalPeer> {
        self.ranks.iter().filter_map(|rank| self.get(*rank))
    }

    /// Calls `each` for every local peer.
    #[inline]
    pub fn for_each(&mut self, mut each: impl FnMut(&mut LocalPeer)) {
        let Self { by_rank, ranks, .. } = self;
        for rank in ranks {
            if let Some(Some(local_peer)) = by_rank.get_mut(*rank as usize) {
                each(local_peer);
            }
        }
    }

    /// Returns the traffic through the rings of this peer, which may have ended.
    pub fn counters(&self, rank: Rank) -> RingCounters {
        let ended = || self.ended.iter().rev().find(|(known, _)| *known == rank);
        match self.get(rank) {
            Some(local_peer) => local_peer.counters(),
            None => ended().map(|(_, counters)| *counters).unwrap_or_default(),
        }
    }

    /// Remembers a peer that has ended if it is in the middle of an access to a region.
    pub fn note_ended(&mut self, rank: Rank, mut pair: Pair) {
        if pair.is_wedged() {
            self.wedged_peers.push((rank, pair));
        }
    }

    /// Returns a peer that was given up in the middle of an access to this memory, if it has not
    /// left the memory since (MEM-18.6).
    pub fn wedged_inside(&mut self, region: &Region) -> Option<Rank> {
        self.forget_wedged_peers();
        let inside = |(_, pair): &&(Rank, Pair)| pair.grants.is_inside(region);
        self.wedged_peers.iter().find(inside).map(|(rank, _)| *rank)
    }

    /// Returns `true` if a peer that was given up may be in the middle of an access.
    pub fn have_wedged_peers(&self) -> bool {
        !self.wedged_peers.is_empty()
    }

    /// Forgets wedged peers that are no longer inside any region.
    pub fn forget_wedged_peers(&mut self) {
        self.wedged_peers.retain_mut(|(_, pair)| pair.is_wedged());
    }

    /// Takes rights back from all local peers. The caller waits for peers that are still inside.
    pub fn take_back(&self, take_back: impl Fn(&Grants) -> bool) {
        let mut given = false;
        for local_peer in self.iter() {
            given |= take_back(&local_peer.pair.grants);
        }
        if given {
            make_fences();
        }
    }

    /// Closes a region to local peers, which begin no further access. The caller waits for peers
    /// that are still inside ([`Rings::is_reached`]).
    pub fn keep_out(&self, region: &Region) {
        region.leave_file();
        self.take_back(|grants| grants.take_back_all_of(region));
    }

    /// Returns `true` if a local peer is still in the middle of an access to this memory, which was
    /// taken back. The slot number of the memory does not matter, and may have been reused.
    pub fn is_reached(&self, region: &Region) -> bool {
        self.iter().any(|local_peer| local_peer.pair.grants.is_inside(region))
    }
}
