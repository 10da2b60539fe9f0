//! Fences and flushes (MEM-15). A fence holds operations to a peer back until the earlier ones have
//! ended. A flush waits until they have ended.
//!
//! The requester holds operations back, at the price of a round trip. Wind's ordered class would
//! let the target hold them without a round trip (paper 004), but only some of them. A get's answer
//! is read after its request was delivered, so that a put behind the get would still overtake it. A
//! body in fragments goes to its place only unordered (MEM-2.4). A put with a signal needs no
//! fence.

#[cfg(test)]
mod tests;

use super::outstanding::Outstanding;
use crate::client::completion::{Completion, Value};
use crate::client::fence_watch::Fences;
use crate::client::submission::Request;
use crate::failure::Failure;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::MESSAGES_IN_FLIGHT;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::wind::Token;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Requests that wait for operations to end.
#[derive(Default)]
pub(crate) struct FenceQueue {
    /// Requests that the fences of each peer hold back, for peers with a fence that has not ended.
    /// The first entry of each queue is a fence, or a request that found no room.
    fences: BTreeMap<Rank, VecDeque<HeldRequest>>,
    flushes: Vec<Flush>,
    /// Number of fences that were requested.
    asked: u64,
    /// Fences as threads see them.
    watch: Arc<Fences>,
    /// Peers whose fences have ended, but whose connection had no room for all requests.
    no_room: Vec<Rank>,
}

enum HeldRequest {
    /// Fence: no request behind it begins until this epoch has ended.
    Fence(u32),
    Request(Request, Token),
}

struct Flush {
    completion: Arc<Completion>,
    /// The epoch of each peer that has not ended.
    left: BTreeMap<Rank, u32>,
}

impl FenceQueue {
    /// Returns `true` if any fence holds a request back.
    #[inline]
    pub fn holds_back(&self) -> bool {
        !self.fences.is_empty()
    }

    /// Returns the thread-side view of this node's fences.
    pub fn watch(&self) -> &Arc<Fences> {
        &self.watch
    }

    /// Returns `true` if a fence holds back requests to this peer.
    #[inline]
    pub fn hold(&self, peer: Rank) -> bool {
        self.holds_back() && self.fences.contains_key(&peer)
    }

    /// Keeps a request that a fence holds back.
    ///
    /// # Errors
    /// Too many requests wait for this peer's fences (MEM-15.4).
    pub fn add(&mut self, peer: Rank, request: Request, token: Token) -> Result<(), Failure> {
        let queue = self.fences.entry(peer).or_default();
        if queue.len() >= MESSAGES_IN_FLIGHT {
            return Err(Failure::TooMany { peer });
        }
        queue.push_back(HeldRequest::Request(request, token));
        Ok(())
    }

    /// Makes later operations to this peer, or to each peer, wait for the earlier ones (MEM-15.1).
    /// A fence is free if nothing is outstanding.
    pub fn fence(&mut self, peer: Option<Rank>, outstanding: &mut Outstanding) {
        self.asked += 1;
        if planted(Bug::IgnoreFence) {
            return;
        }
        for (peer, epoch) in close_epochs(peer, outstanding) {
            let queue = self.fences.entry(peer).or_default();
            if !matches!(queue.back(), Some(HeldRequest::Fence(last)) if *last == epoch) {
                queue.push_back(HeldRequest::Fence(epoch));
            }
        }
        self.report_if_over();
    }

    /// Settles the completion when all operations that have begun to this peer, or to all peers,
    /// have ended (MEM-15.3). Returns the completion if they have ended already.
    pub fn flush(
        &mut self,
        peer: Option<Rank>,
        completion: Option<Arc<Completion>>,
        outstanding: &mut Outstanding,
    ) -> Option<Arc<Completion>> {
        let left = close_epochs(peer, outstanding);
        let completion = completion?;
        if left.is_empty() || planted(Bug::EndFlushEarly) {
            return Some(completion);
        }
        self.flushes.push(Flush { completion, left: left.into_iter().collect() });
        None
    }

    /// Takes the peers of which operations have ended since the last call, and whose fences may
    /// therefore have ended. Only these are visited, however many other peers have fences.
    #[inline]
    pub fn take_due(&mut self, outstanding: &mut Outstanding) -> Vec<Rank> {
        if self.no_room.is_empty() && !outstanding.has_drained() {
            return Vec::new();
        }
        let mut peers = outstanding.take_drained();
        peers.append(&mut self.no_room);
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Takes the next request to this peer that no fence holds back any more (MEM-15.2). If
    /// `has_room` is false, the request waits for room.
    pub fn next_released(
        &mut self,
        peer: Rank,
        outstanding: &Outstanding,
        has_room: bool,
    ) -> Option<(Request, Token)> {
        let queue = self.fences.get_mut(&peer)?;
        while let Some(held) = queue.pop_front() {
            match held {
                HeldRequest::Fence(epoch) if outstanding.has_ended(peer, epoch) => {}
                HeldRequest::Request(request, token) if has_room => return Some((request, token)),
                held => {
                    if matches!(held, HeldRequest::Request(..)) {
                        self.no_room.push(peer);
                    }
                    queue.push_front(held);
                    return None;
                }
            }
        }
        self.fences.remove(&peer);
        None
    }

    /// Settles the flushes that waited for these peers alone. Returns their number.
    pub fn settle_flushes(&mut self, peers: &[Rank], outstanding: &Outstanding) -> usize {
        // Threads see that fences have ended before a flush that followed the fences settles.
        self.report_if_over();
        let before = self.flushes.len();
        self.flushes.retain_mut(|flush| {
            for peer in peers {
                if flush.left.get(peer).is_some_and(|epoch| outstanding.has_ended(*peer, *epoch)) {
                    flush.left.remove(peer);
                }
            }
            if flush.left.is_empty() {
                flush.completion.settle(Ok(Value::Done));
            }
            !flush.left.is_empty()
        });
        before - self.flushes.len()
    }

    /// Drops held requests that `cancelled` selects.
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        for queue in self.fences.values_mut() {
            queue.retain(
                |held| !matches!(held, HeldRequest::Request(_, token) if cancelled(*token)),
            );
        }
    }

    /// Drops all held requests and fails all flushes.
    pub fn end(&mut self, failure: &Failure) {
        for flush in std::mem::take(self).flushes {
            flush.completion.settle(Err(failure.clone()));
        }
    }

    /// Called whenever the last fence may have ended.
    fn report_if_over(&self) {
        if !self.holds_back() {
            self.watch.ended(self.asked);
        }
    }
}

/// Closes the open epoch of this peer, or of each peer. Returns the epochs to wait for.
fn close_epochs(peer: Option<Rank>, outstanding: &mut Outstanding) -> Vec<(Rank, u32)> {
    let peers = peer.map_or(outstanding.peers(), |peer| peer..peer.saturating_add(1));
    peers.filter_map(|peer| Some((peer, outstanding.close(peer)?))).collect()
}
