//! Peers that are lost, and who waits for something that only they could do.

use super::{Node, lock, mailbox};
use crate::engine::Failure;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Death;
use std::sync::atomic::Ordering;

impl Node {
    /// This peer is lost.
    pub(super) fn mourn(&self, death: (Rank, Death)) {
        lock(&self.deaths).push(death);
        self.mourns.store(true, Ordering::Release);
    }

    /// Is this peer known to be dead?
    pub fn death_of(&self, rank: Rank) -> Option<Death> {
        if !self.mourns.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.deaths).iter().find(|(dead, _)| *dead == rank).map(|(_, death)| *death)
    }

    /// Are all other nodes gone, and one of them did not leave of its own accord? Then nobody does any more what is waited for. (If all have
    /// left, this node's other threads may.)
    fn death_of_all(&self) -> Option<(Rank, Death)> {
        if !self.mourns.load(Ordering::Acquire) {
            return None;
        }
        let others = (0..self.bootstrap.size()).filter(|rank| *rank != self.bootstrap.rank());
        let deaths: Option<Vec<(Rank, Death)>> = others.map(|rank| Some((rank, self.death_of(rank)?))).collect();
        deaths?.into_iter().find(|(_, death)| *death != Death::Closed)
    }

    /// Is this peer lost, or, if it is none in particular, are all? Or has this node left, so that nothing comes any more?
    pub fn loss_of(&self, peer: Option<Rank>) -> Option<Failure> {
        let lost = match peer {
            Some(peer) => self.death_of(peer).map(|death| (peer, death)),
            None => self.death_of_all(),
        };
        lost.map(|(peer, death)| Failure::PeerLost { peer, death }).or_else(|| self.has_left())
    }

    /// Has this node left the job, so that every operation of it has ended and nothing comes any more?
    fn has_left(&self) -> Option<Failure> {
        self.left.load(Ordering::Acquire).then_some(Failure::Left)
    }

    /// What is next of this node's own doing; or that there will be none.
    pub fn next_or_left<T>(&self, next: impl FnMut() -> Option<T>) -> Option<Result<T, Failure>> {
        mailbox::next_or_end(next, || self.has_left())
    }

    /// What is next of this peer, or of any; or why there will be none, when nothing of it is left (MEM-7.6).
    pub fn next_or_loss<T>(&self, from: Option<Rank>, next: impl FnMut() -> Option<T>) -> Option<Result<T, Failure>> {
        mailbox::next_or_end(next, || self.loss_of(from))
    }
}
