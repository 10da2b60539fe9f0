//! Fast path for small messages between local peers: from the caller's memory into the ring, and
//! from the ring to the caller, without a turn (spec/memory.md, MEM-16.9).

use crate::shm::{ShmChannel, ShmChannels};
use crate::{Arrived, Completion, Engine, Failure};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{FAST_BATCH_MAX, FAST_PER_TURN_MAX};
use oikaze_protocol::wind::Class;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of messages that were taken from a ring together with an awaited one and are the oldest
/// that have arrived. Only the thread inside the engine changes it.
#[derive(Clone, Debug, Default)]
pub struct Ahead(Arc<AtomicUsize>);

impl Ahead {
    #[inline]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A turn hands all of them up.
    pub(crate) fn take(&self) -> usize {
        let count = self.count();
        self.set(0);
        count
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Returns the thread-side view of the rings of all local peers.
    #[must_use]
    pub fn channels(&self) -> ShmChannels {
        let channel =
            |rank| self.peers.local_peer(rank).map(|local_peer| Arc::clone(&local_peer.channel));
        ShmChannels::new((0..self.nodes).map(channel).collect(), self.ahead.clone())
    }

    /// Returns `true` if so many messages took the fast path that a turn must poll for other work.
    #[inline]
    #[must_use]
    pub fn owes_a_look(&self) -> bool {
        self.fast_messages >= FAST_PER_TURN_MAX
    }

    /// Put a user's message into a local peer's ring, if nothing that was asked for before is in
    /// its way: the position that settles it. The local peer is to be woken if it sleeps.
    #[inline]
    pub fn send_fast(&mut self, to: Rank, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        let before = !self.submissions.is_empty() || self.order.holds_back();
        if self.owes_a_look() || self.ended.is_some() || before {
            return None;
        }
        let local_peer = self.peers.local_peer_mut(to)?;
        let position = local_peer.put_fast(class, tag, body)?;
        local_peer.sent_fast(position, self.operations.outstanding.begin(to));
        self.fast_messages += 1;
        Some(position)
    }

    /// Returns the sender of the user's oldest message, if that message is in a local peer's ring
    /// or was taken from it with an earlier one. Returns `None` if an earlier arrival waits to be
    /// read. The flag is `true` if the local peer was notified and must be woken if it sleeps.
    /// [`Engine::hand_out`] follows.
    ///
    /// If `sends_many`, several messages are taken at once and kept for later calls. Each record is
    /// in its writer's cache, and the processor fetches several at a time if no locked instruction
    /// stands between.
    #[inline]
    pub fn make_ready(&mut self, from: Option<Rank>, sends_many: bool) -> Option<(Rank, bool)> {
        if self.owes_a_look() {
            return None;
        }
        let is_first = self.arrived.is_empty();
        if is_first {
            self.take_from_rings(from, if sends_many { FAST_BATCH_MAX } else { 1 });
        }
        let ahead = self.ahead.count();
        let next = self
            .arrived
            .front()
            .filter(|next| ahead > 0 && from.is_none_or(|from| next.from == from))?;
        self.ahead.set(ahead - 1);
        // Of those that were taken out together it is told when they are, and when the last of them
        // is handed out.
        let is_told = ahead == 1 || is_first;
        if let Some(local_peer) = self.peers.local_peer_mut(next.from) {
            local_peer.handed(next.body.len() as u64, ahead == 1);
        }
        self.fast_messages += 1;
        Some((next.from, is_told))
    }

    /// Takes the message that [`Engine::make_ready`] found. The message is moved unread: a read
    /// would move it in other pieces than it was written in, which waits for the writes.
    #[inline]
    pub fn hand_out(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Takes the oldest messages of a local peer, at most `most`.
    #[inline]
    fn take_from_rings(&mut self, from: Option<Rank>, most: usize) {
        match from {
            Some(rank) => self.take_fast_from(rank, most),
            // Round robin, so that no local peer waits for ever behind others that send much.
            None => {
                let count = self.local_peers.ranks.len();
                let first = self.local_peers.first;
                for at in first..first + count {
                    let Some(rank) = self.local_peers.ranks.get(at % count) else { return };
                    self.take_fast_from(*rank, most);
                    if !self.arrived.is_empty() {
                        self.local_peers.first = at % count + 1;
                        break;
                    }
                }
            }
        }
        self.ahead.set(self.arrived.len());
    }

    #[inline]
    fn take_fast_from(&mut self, from: Rank, most: usize) {
        let Self { peers, buffer_pool, arrived, .. } = self;
        if let Some(local_peer) = peers.local_peer_mut(from) {
            local_peer.take_fast(most, buffer_pool, |class, tag, body| {
                // Made when there is room for it, it is written where it stays.
                arrived.extend(std::iter::once_with(|| Arrived { from, class, tag, body }));
            });
        }
    }

    /// Settle `completion` as the message that went directly to this local peer and ends at this
    /// position.
    pub(crate) fn promise(
        &mut self,
        peer: Rank,
        channel: &ShmChannel,
        position: u64,
        completion: Arc<Completion>,
    ) {
        let settled = match self.peers.local_peer_mut(peer) {
            Some(local_peer) => local_peer.promise(position, completion),
            None => {
                completion.settle(channel.outcome(position).unwrap_or(Err(Failure::Left)));
                true
            }
        };
        self.news += usize::from(settled);
    }
}
