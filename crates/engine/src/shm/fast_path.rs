//! Fast path for small messages between local peers: from the caller's memory into the ring, and
//! from the ring to the caller, without a turn (spec/memory.md, MEM-16.9).
//!
//! Bench cases: `message_lat` and `message_rate` of 8 bytes (`bench shm`).

use super::table::ShmPeers;
use crate::buffer_pool::BufferPool;
use crate::client::completion::Completion;
use crate::client::shm_channel::ShmChannel;
use crate::failure::Failure;
use crate::inbox::{Arrived, Inbox};
use crate::ops::Ops;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::limits::{FAST_BATCH_MAX, FAST_PER_TURN_MAX};
use oikaze_protocol::wind::Class;
use std::sync::Arc;

impl ShmPeers {
    /// Returns `true` if so many messages took the fast path that a turn must poll for other work.
    #[inline]
    #[must_use]
    pub fn is_poll_due(&self) -> bool {
        self.fast_messages >= FAST_PER_TURN_MAX
    }

    /// Puts a user's message into a local peer's ring, if no earlier request is in its way. Returns
    /// the position that settles the message. The local peer is to be woken if it sleeps.
    #[inline]
    pub(crate) fn send_fast(
        &mut self,
        to: Rank,
        class: Class,
        tag: u64,
        body: &[u8],
        ops: &mut Ops,
    ) -> Option<u64> {
        if self.is_poll_due() || ops.ended.is_some() || ops.fences.holds_back() {
            return None;
        }
        let local_peer = self.rings.get_mut(to)?;
        let position = local_peer.put_fast(class, tag, body)?;
        local_peer.sent_fast(position, ops.in_flight.outstanding.begin(to), false);
        self.fast_messages += 1;
        Some(position)
    }

    /// Puts a parcel into a local peer's ring, if no earlier request is in its way. Returns `true`
    /// if it is there. The local peer is to be woken if it sleeps.
    #[inline]
    pub(crate) fn send_parcel_fast(
        &mut self,
        to: Rank,
        head: &ParcelHead,
        body: &[u8],
        ops: &mut Ops,
    ) -> bool {
        if self.is_poll_due() || ops.ended.is_some() || ops.fences.holds_back() {
            return false;
        }
        let Some(local_peer) = self.rings.get_mut(to) else { return false };
        let Some(position) = local_peer.put_parcel_fast(head, body) else { return false };
        local_peer.sent_fast(position, ops.in_flight.outstanding.begin(to), true);
        self.fast_messages += 1;
        true
    }

    /// Returns the sender of the user's oldest message, if that message is in a local peer's ring
    /// or was taken from it with an earlier one. Returns `None` if an earlier arrival waits to be
    /// read. The flag is `true` if the local peer was notified and must be woken if it sleeps.
    /// [`Inbox::take_arrived`] follows.
    ///
    /// If `sends_many`, several messages are taken at once and kept for later calls. Each record is
    /// in its writer's cache, and the processor fetches several at a time if no locked instruction
    /// stands between.
    #[inline]
    pub(crate) fn make_ready(
        &mut self,
        from: Option<Rank>,
        sends_many: bool,
        inbox: &mut Inbox,
        buffer_pool: &Arc<BufferPool>,
    ) -> Option<(Rank, bool)> {
        if self.is_poll_due() {
            return None;
        }
        let is_first = inbox.arrived.is_empty();
        if is_first {
            let most = if sends_many { FAST_BATCH_MAX } else { 1 };
            self.take_from_rings(from, most, inbox, buffer_pool);
        }
        let ahead = inbox.ahead.count();
        let next = inbox
            .arrived
            .front()
            .filter(|next| ahead > 0 && from.is_none_or(|from| next.from == from))?;
        inbox.ahead.set(ahead - 1);
        // The local peer is notified twice for messages taken together. The first message settles
        // their records, and the last one returns their credit.
        let is_notified = ahead == 1 || is_first;
        if let Some(local_peer) = self.rings.get_mut(next.from) {
            local_peer.handed(next.body.len() as u64, ahead == 1);
        }
        self.fast_messages += 1;
        Some((next.from, is_notified))
    }

    /// Takes the oldest messages of a local peer, at most `most`.
    #[inline]
    fn take_from_rings(
        &mut self,
        from: Option<Rank>,
        most: usize,
        inbox: &mut Inbox,
        buffer_pool: &Arc<BufferPool>,
    ) {
        match from {
            Some(rank) => self.take_fast_from(rank, most, inbox, buffer_pool),
            // Polls local peers round robin, so that none waits for ever behind busy ones.
            None => {
                let count = self.rings.ranks.len();
                let first = self.first;
                for at in first..first + count {
                    let Some(&rank) = self.rings.ranks.get(at % count) else { return };
                    self.take_fast_from(rank, most, inbox, buffer_pool);
                    if !inbox.arrived.is_empty() {
                        self.first = at % count + 1;
                        break;
                    }
                }
            }
        }
        inbox.ahead.set(inbox.arrived.len());
    }

    #[inline]
    fn take_fast_from(
        &mut self,
        from: Rank,
        most: usize,
        inbox: &mut Inbox,
        buffer_pool: &Arc<BufferPool>,
    ) {
        if let Some(local_peer) = self.rings.get_mut(from) {
            local_peer.take_fast(most, buffer_pool, |class, tag, body| {
                // `extend` reserves room before it makes the element, so the element is written in
                // place and not copied.
                inbox.arrived.extend(std::iter::once_with(|| Arrived { from, class, tag, body }));
            });
        }
    }

    /// Settles `completion` with the outcome of the fast-path message to this local peer that ends
    /// at this position, as soon as that outcome is known.
    pub(crate) fn promise(
        &mut self,
        peer: Rank,
        channel: &ShmChannel,
        position: u64,
        completion: Arc<Completion>,
        inbox: &mut Inbox,
    ) {
        let settled = match self.rings.get_mut(peer) {
            Some(local_peer) => local_peer.promise(position, completion),
            None => {
                completion.settle(channel.outcome(position).unwrap_or(Err(Failure::Left)));
                true
            }
        };
        inbox.add_settled(settled.into());
    }
}
