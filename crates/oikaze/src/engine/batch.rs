//! Datagrams on their way to the link: written and sealed into slots that are used again and again, handed over in batches. Each lane
//! has its own, so that what is small goes although the link has no room for bulk.

use super::seal::{Checksum, HandshakeSeal};
use arrayvec::ArrayVec;
use oikaze_os::link::{Link, Outgoing};
use oikaze_os::memory::Gather;
use oikaze_protocol::limits::TAG_MAX;
use oikaze_protocol::wind::Transmit;
use oikaze_protocol::wire::Lane;
use oikaze_protocol::wire::Seal;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

/// Datagrams handed to the link in one call.
pub(super) const BATCH: usize = 64;

/// One datagram about to leave.
pub(super) struct Slot {
    to: SocketAddr,
    lane: Lane,
    /// Header and frames, and what was packed behind them.
    pub head: Vec<u8>,
    /// Bytes of payload that end the head: to the seal they are payload.
    packed: usize,
    tag: [u8; TAG_MAX],
    tag_len: usize,
    /// The region its payload lies in.
    region: Option<u32>,
}

impl Default for Slot {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self { to: nowhere, lane: Lane::Small, head: Vec::new(), packed: 0, tag: [0; TAG_MAX], tag_len: 0, region: None }
    }
}

impl Slot {
    fn seal(&mut self, payload: &Gather, seal: &impl Seal) {
        let Self { head, packed, tag, tag_len, .. } = self;
        *tag_len = seal.len();
        if let Some(out) = tag.get_mut(..*tag_len) {
            let (frames, packed) = head.split_at(head.len().saturating_sub(*packed));
            payload.with_bytes(|bytes| seal.tag(&[frames, packed, bytes], out));
            if payload.is_empty() {
                // One piece is less to gather.
                head.extend_from_slice(out);
                *tag_len = 0;
            }
        }
    }
}

/// The slots, filled from the front; those that the link has not taken wait.
#[derive(Default)]
pub(super) struct Batch {
    slots: Vec<Slot>,
    /// The payload of each waiting slot.
    payloads: VecDeque<Gather>,
    waiting: Range<usize>,
    /// The link had no room for those that wait.
    stopped: bool,
}

impl Batch {
    /// Has the link refused to take more for now?
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How many datagrams wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// No slot is left.
    pub fn is_full(&self) -> bool {
        self.waiting.end >= BATCH
    }

    /// The next slot, to write a datagram's head into. It counts when it is [`push`](Self::push)ed. `None`: the batch is full.
    pub fn next(&mut self) -> Option<&mut Slot> {
        if self.slots.len() < BATCH {
            self.slots.resize_with(BATCH, Slot::default);
        }
        let slot = self.slots.get_mut(self.waiting.end)?;
        slot.head.clear();
        slot.packed = 0;
        Some(slot)
    }

    /// Append so many bytes to the next slot's datagram, written by `fill`, if it can: rows, which are in no one place.
    pub fn pack(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let Some(slot) = self.slots.get_mut(self.waiting.end) else { return false };
        let begin = slot.head.len();
        slot.head.resize(begin + len, 0);
        slot.packed = len;
        slot.head.get_mut(begin..).is_some_and(fill)
    }

    /// The next slot's datagram is complete but for its seal. Bytes of the datagram.
    pub fn push(&mut self, to: SocketAddr, transmit: &Transmit, payload: Gather, seals: (&HandshakeSeal, &Checksum)) -> usize {
        let Some(slot) = self.slots.get_mut(self.waiting.end) else { return 0 };
        slot.to = to;
        slot.lane = transmit.lane;
        slot.region = transmit.payload.map(|segment| segment.region);
        if transmit.handshake {
            slot.seal(&payload, seals.0);
        } else {
            slot.seal(&payload, seals.1);
        }
        let len = slot.head.len() + payload.len() + slot.tag_len;
        self.payloads.push_back(payload);
        self.waiting.end += 1;
        len
    }

    /// Hand what waits to the link; how many went.
    ///
    /// # Errors
    /// The link's: what waited is gone, lost as on a bad wire.
    pub fn flush(&mut self, link: &mut impl Link) -> io::Result<usize> {
        if self.waiting.is_empty() {
            return Ok(0);
        }
        let slots = self.slots.get(self.waiting.clone()).unwrap_or_default();
        // Filled where it stays: collected, it would be moved whole, however little is in it.
        let mut batch = ArrayVec::<Outgoing<'_>, BATCH>::new();
        for (slot, payload) in slots.iter().zip(self.payloads.drain(..)) {
            let tag = slot.tag.get(..slot.tag_len).unwrap_or_default();
            batch.push(Outgoing { to: slot.to, lane: slot.lane, head: &slot.head, payload, tag });
        }
        let outcome = link.send(&batch);
        let went = outcome.as_ref().map_or(batch.len(), |went| batch.len().min(*went));
        self.payloads.extend(batch.drain(went..).map(|unsent| unsent.payload));
        self.waiting.start = (self.waiting.start + went).min(self.waiting.end);
        self.stopped = !self.waiting.is_empty();
        if !self.stopped {
            self.waiting = 0..0;
        }
        outcome
    }

    /// Forget what waits for the link and refers to this region: lost, as on a bad wire.
    pub fn forget(&mut self, region: u32) {
        let mut at = self.waiting.start;
        while at < self.waiting.end {
            if self.slots.get(at).is_some_and(|slot| slot.region == Some(region)) {
                let slot = self.slots.remove(at);
                self.slots.push(slot);
                self.payloads.remove(at - self.waiting.start);
                self.waiting.end -= 1;
            } else {
                at += 1;
            }
        }
        self.stopped &= !self.waiting.is_empty();
    }

    /// Forget all that waits for the link, and with it all references to memory: lost, as on a bad wire.
    pub fn discard(&mut self) {
        self.waiting = 0..0;
        self.payloads.clear();
        self.stopped = false;
    }
}
