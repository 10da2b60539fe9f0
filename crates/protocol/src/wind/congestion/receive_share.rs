//! Receiver-driven credit (WIND-9.9 to WIND-9.11): the senders to a node share its receive buffer,
//! and the node tells each its share.

use crate::Rank;
use crate::limits::{ALLOWANCE_MIN, GRANT_TIME};
use crate::time::Time;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Returns the bytes that each peer of a node may have in flight to it at any time. Both ends
/// compute the value.
pub(crate) fn allowance(buffer: u64, nodes: u32) -> u64 {
    let peers = u64::from(nodes.saturating_sub(1)).max(1);
    (buffer / 4 / peers).max(ALLOWANCE_MIN).min(buffer.max(1))
}

/// Sender's side: the peer's grant, and how long it is valid.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grant {
    allowance: u64,
    share: u64,
    until: Time,
}

impl Grant {
    /// Creates the initial grant of a peer with this receive buffer, in a job of `nodes` nodes.
    pub fn new(buffer: u64, nodes: u32) -> Grant {
        let allowance = allowance(buffer, nodes);
        Grant { allowance, share: allowance, until: Time(0) }
    }

    /// Notes the share that an ACK frame reports.
    pub fn note(&mut self, now: Time, share: u32) {
        (self.share, self.until) = (u64::from(share), now + GRANT_TIME);
    }

    /// Returns the number of bytes that may be in flight.
    pub fn bytes(&self, now: Time) -> u64 {
        if now <= self.until { self.share.max(self.allowance) } else { self.allowance }
    }
}

/// Receiver's side: tracks which peers send much, and what each of them gets. Every operation is
/// O(1).
#[derive(Clone, Debug)]
pub struct Shares {
    buffer: u64,
    nodes: u32,
    allowance: u64,
    peers: Vec<Sender>,
    /// Number of peers that send much, and the bytes that each of them gets.
    senders: u64,
    each: u64,
    /// These peers, and some that no longer send much, with the time of their last check.
    queue: VecDeque<(Time, Rank)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// Bytes received since `since`.
    bytes: u64,
    since: Time,
    heard: Time,
    sends: bool,
    queued: bool,
}

impl Shares {
    /// Creates the shares of a node whose link buffers `buffer` bytes, in a job of `nodes` nodes.
    #[must_use]
    pub fn new(buffer: u64, nodes: u32) -> Shares {
        let peers = (0..nodes).map(|_| Sender::default()).collect();
        Shares {
            buffer,
            nodes,
            allowance: allowance(buffer, nodes),
            peers,
            senders: 0,
            each: 0,
            queue: VecDeque::new(),
        }
    }

    /// Called when a datagram of this peer was received.
    pub fn received(&mut self, from: Rank, bytes: u64, now: Time) {
        let much = self.allowance;
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        let sent = peer.sends;
        if now - peer.since >= GRANT_TIME {
            peer.sends = peer.bytes > much && now - peer.since < 2 * GRANT_TIME;
            (peer.bytes, peer.since) = (0, now);
        }
        peer.bytes += bytes;
        peer.heard = now;
        peer.sends |= peer.bytes > much;
        if peer.sends && !core::mem::replace(&mut peer.queued, true) {
            self.queue.push_back((now, from));
        }
        let sends = peer.sends;
        if sends != sent {
            self.divide(self.senders + u64::from(sends) - u64::from(sent));
        }
    }

    /// Returns the share to tell this peer now.
    pub fn of(&mut self, peer: Rank, now: Time) -> u64 {
        self.expire(now);
        if !self.peers.get(peer as usize).is_some_and(|peer| peer.sends) {
            return self.allowance;
        }
        self.each
    }

    /// Divides the buffer for this number of senders.
    fn divide(&mut self, senders: u64) {
        let others = u64::from(self.nodes.saturating_sub(1)).saturating_sub(senders);
        self.each = (self.buffer.saturating_sub(others * self.allowance) / senders.max(1))
            .max(self.allowance);
        self.senders = senders;
    }

    /// Returns the number of peers that send much.
    #[must_use]
    pub fn senders(&self) -> u64 {
        self.senders
    }

    /// Removes senders that were not heard for so long that their grant has ended.
    fn expire(&mut self, now: Time) {
        while let Some(&(_, rank)) =
            self.queue.front().filter(|(at, _)| now - *at >= 2 * GRANT_TIME)
        {
            self.queue.pop_front();
            let Some(peer) = self.peers.get_mut(rank as usize) else { continue };
            if peer.sends && now - peer.heard < 2 * GRANT_TIME {
                // The sender is checked again after that time. Until then, it may count as a sender
                // for that long once more.
                self.queue.push_back((now, rank));
            } else {
                let sent = core::mem::replace(&mut peer.sends, false);
                peer.queued = false;
                self.divide(self.senders - u64::from(sent));
            }
        }
    }
}
