//! Egress: the one place that transmits. Datagrams are collected into slots, sealed, and handed to the link in batches.

use super::Engine;
use arrayvec::ArrayVec;
use oikaze_os::link::{Link, Outgoing};
use oikaze_os::memory::Gather;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::TAG_MAX;
use oikaze_protocol::time::Time;
use oikaze_protocol::wire::Seal;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

/// Datagrams handed to the link in one call.
const BATCH: usize = 64;
/// Batches sent in one turn, so that a turn stays bounded and acknowledgements are seen.
const BATCHES_A_TURN: usize = 4;

/// One datagram about to leave.
struct Slot {
    to: SocketAddr,
    head: Vec<u8>,
    tag: [u8; TAG_MAX],
    tag_len: usize,
    /// The region its payload lies in.
    region: Option<u32>,
}

impl Default for Slot {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self { to: nowhere, head: Vec::new(), tag: [0; TAG_MAX], tag_len: 0, region: None }
    }
}

/// The slots, reused from turn to turn; `waiting` counts those the link had no room for.
#[derive(Default)]
pub(super) struct Egress {
    slots: Vec<Slot>,
    /// The payload of each waiting slot.
    payloads: VecDeque<Gather>,
    waiting: std::ops::Range<usize>,
}

impl Egress {
    /// Has the link refused to take more for now?
    pub fn is_stopped(&self) -> bool {
        !self.waiting.is_empty()
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
    }

    /// Forget all that waits for the link, and with it all references to memory: lost, as on a bad wire.
    pub fn discard(&mut self) {
        self.waiting = 0..0;
        self.payloads.clear();
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Send what is due: the number of datagrams, and whether the turn's share was used up before all had gone.
    pub(super) fn send_due(&mut self, now: Time) -> (usize, bool) {
        let mut sent = 0;
        for _ in 0..BATCHES_A_TURN {
            if !self.egress.is_stopped() {
                let filled = self.fill(now);
                self.egress.waiting = 0..filled;
            }
            let filled = self.egress.waiting.len();
            sent += self.flush();
            if filled < BATCH || self.egress.is_stopped() {
                return (sent, false);
            }
        }
        (sent, true)
    }

    /// Fill slots from the active peers in turn, each until it has nothing due or the batch is full. Who was asked goes to the end of
    /// the queue, so that none is always last.
    fn fill(&mut self, now: Time) -> usize {
        let Self { peers, memory, egress, handshake_seal, checksum, .. } = self;
        egress.slots.resize_with(BATCH, Slot::default);
        let mut filled = 0;
        for _ in 0..peers.active.len() {
            let Some(peer) = peers.next_active() else { continue };
            while filled < BATCH && peer.connection.has_due(now) {
                let Some(slot) = egress.slots.get_mut(filled) else { break };
                slot.head.clear();
                let Some(transmit) = peer.connection.transmit(now, &mut slot.head) else { break };
                let Some(&to) = peer.addresses.get(usize::from(transmit.path)) else { continue };
                slot.to = to;
                slot.region = transmit.payload.map(|segment| segment.region);
                // A segment whose region is gone belongs to a cancelled message: its datagram is lost, as on a bad wire.
                let Some(payload) = transmit.payload.map_or(Some(Gather::EMPTY), |segment| memory.gather(segment)) else {
                    continue;
                };
                if transmit.handshake {
                    slot.seal(&payload, handshake_seal)
                } else {
                    slot.seal(&payload, checksum)
                }
                egress.payloads.push_back(payload);
                filled += 1;
            }
            if filled == BATCH {
                break;
            }
        }
        filled
    }

    /// Hand the waiting slots to the link; how many went.
    fn flush(&mut self) -> usize {
        let Self { link, egress, counters, .. } = self;
        let waiting = egress.waiting.clone();
        if waiting.is_empty() {
            return 0;
        }
        let slots = egress.slots.get(waiting.clone()).unwrap_or_default();
        let batch: ArrayVec<Outgoing<'_>, BATCH> = slots
            .iter()
            .zip(egress.payloads.drain(..))
            .map(|(slot, payload)| {
                let tag = slot.tag.get(..slot.tag_len).unwrap_or_default();
                Outgoing { to: slot.to, head: &slot.head, payload, tag }
            })
            .collect();
        let went = match link.send(&batch) {
            Ok(went) => went,
            Err(_) => {
                // What cannot be sent is lost, as on a bad wire: Wind repeats it, or finds the peer dead.
                counters.send_errors += 1;
                batch.len()
            }
        };
        egress.payloads.extend(batch.into_iter().skip(went).map(|unsent| unsent.payload));
        egress.waiting = (waiting.start + went).min(waiting.end)..waiting.end;
        went
    }
}

impl Slot {
    fn seal(&mut self, payload: &Gather, seal: &impl Seal) {
        let Self { head, tag, tag_len, .. } = self;
        *tag_len = seal.len();
        if let Some(out) = tag.get_mut(..*tag_len) {
            payload.with_bytes(|bytes| seal.tag(&[head, bytes], out));
        }
    }
}
