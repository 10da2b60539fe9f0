//! Batches of datagrams on their way to the link. A batch writes and seals its datagrams in memory
//! that it reuses. Each lane has its own batch, so that small datagrams go although the link has no
//! room for bulk.

use crate::sealing::seal::{DataSeal, Seals, end_of_frames};
use crate::sealing::session::SealingKeys;
use arrayvec::ArrayVec;
use oikaze_os::memory::Gather;
use oikaze_os::net::{Link, Outgoing, SendMode};
use oikaze_protocol::limits::TAG_MAX;
use oikaze_protocol::wind::Transmit;
use oikaze_protocol::wire::Lane;
use oikaze_protocol::wire::{Header, Seal, SealKind};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

/// Maximum number of datagrams handed to the link in one call.
pub(crate) const BATCH_DATAGRAMS: usize = 64;

/// One datagram that is ready to be sent.
struct TxSlot {
    to: SocketAddr,
    lane: Lane,
    flow: u8,
    mode: SendMode,
    /// Range of the header, the frames and packed payload in the batch's bytes. Without a separate
    /// payload, the range includes the tag.
    head: Range<usize>,
    /// End of the tag in the batch's bytes. The tag begins where `head` ends, if there is a
    /// separate payload.
    end: usize,
    payload: Gather,
    /// Slot of the region in which the payload lies.
    region: Option<u32>,
}

impl Default for TxSlot {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            to: nowhere,
            lane: Lane::Small,
            flow: 0,
            mode: SendMode::Any,
            head: 0..0,
            end: 0,
            payload: Gather::EMPTY,
            region: None,
        }
    }
}

/// Batch of one lane. Slots are filled from the front. Datagrams that the link has not taken wait
/// for the next call.
#[derive(Default)]
pub(crate) struct TxBatch {
    /// Slots, allocated once and filled in place. Moving a slot that was built elsewhere would wait
    /// for the stores that built it.
    slots: Vec<TxSlot>,
    waiting: Range<usize>,
    /// Bytes written for all datagrams, one datagram behind the other. The link gathers a tag and
    /// the head that follows the tag as one piece.
    bytes: Vec<u8>,
    /// Position at which the head of the next datagram begins.
    begin: usize,
    /// Is `true` if the link had no room for the datagrams that wait.
    stopped: bool,
}

impl TxBatch {
    /// Returns `true` if the link has no room for now.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the number of datagrams that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns `true` if no slot is left.
    pub fn is_full(&self) -> bool {
        self.waiting.end >= BATCH_DATAGRAMS
    }

    /// Returns `true` if `count` slots are left.
    pub fn has_room(&self, count: usize) -> bool {
        self.waiting.end + count <= BATCH_DATAGRAMS
    }

    /// Returns the buffer to which the next datagram's head is appended, or `None` if the batch is
    /// full. The datagram counts once it is [`push`](Self::push)ed.
    pub fn next(&mut self) -> Option<&mut Vec<u8>> {
        if self.is_full() {
            return None;
        }
        // Drop a datagram that was begun and not pushed.
        self.bytes.truncate(self.begin);
        Some(&mut self.bytes)
    }

    /// Returns the number of bytes of the next datagram so far.
    pub fn begun(&self) -> usize {
        self.bytes.len() - self.begin
    }

    /// Appends payload to the next datagram through `fill`, and returns what `fill` returns.
    pub fn pack(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        fill(&mut self.bytes)
    }

    /// Seals the next datagram and adds it to the batch. Returns its number of bytes, or 0 if it
    /// cannot be sealed. With keys, the payload lies behind the head already.
    pub fn push(
        &mut self,
        to: &SocketAddr,
        transmit: &Transmit,
        payload: Gather,
        seals: &Seals,
        keys: Option<&mut impl SealingKeys>,
    ) -> usize {
        let (begin, end) = (self.begin, self.bytes.len());
        let is_sealed = match seals.data {
            _ if transmit.handshake => self.append_tag(&payload, &seals.handshake),
            DataSeal::Checksum(checksum) => self.append_tag(&payload, &checksum),
            DataSeal::Keyed(kind) => {
                payload.is_empty() && keys.is_some_and(|keys| self.encrypt(kind, keys))
            }
        };
        if !is_sealed {
            self.bytes.truncate(begin);
            return 0;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(BATCH_DATAGRAMS, TxSlot::default);
        }
        let Some(slot) = self.slots.get_mut(self.waiting.end) else { return 0 };
        slot.to = *to;
        if let Some(port) = transmit.port {
            slot.to.set_port(port);
        }
        slot.lane = transmit.lane;
        slot.flow = transmit.flow;
        slot.mode = transmit.mode;
        slot.region = transmit.payload.as_ref().map(|segment| segment.region);
        slot.end = self.bytes.len();
        // Without a payload between them, head and tag are one piece to gather.
        slot.head = begin..if payload.is_empty() { slot.end } else { end };
        let len = slot.end - begin + payload.len();
        slot.payload = payload;
        self.begin = slot.end;
        self.waiting.end += 1;
        len
    }

    /// Appends the tag over the next datagram's head, the payload packed behind the head, and the
    /// separate payload.
    fn append_tag(&mut self, payload: &Gather, seal: &impl Seal) -> bool {
        let end = self.bytes.len();
        self.bytes.extend_from_slice([0; TAG_MAX].get(..seal.len()).unwrap_or_default());
        let datagram = self.bytes.get_mut(self.begin..).unwrap_or_default();
        let Some((head, tag)) = datagram.split_at_mut_checked(end - self.begin) else {
            return false;
        };
        // The frames end where the header says. What is packed behind them is payload, whoever has
        // written it there, and some seals do not cover payload.
        let (frames, packed) = head.split_at(end_of_frames(head));
        payload.with_bytes(|bytes| seal.tag(&[frames, packed, bytes], tag));
        true
    }

    /// Seals the next datagram in place with keys, and appends the tag.
    fn encrypt(&mut self, kind: SealKind, keys: &mut impl SealingKeys) -> bool {
        self.bytes.extend_from_slice([0; TAG_MAX].get(..kind.tag_len()).unwrap_or_default());
        let datagram = self.bytes.get_mut(self.begin..).unwrap_or_default();
        // Datagrams that take a short way leave by another lane than they are numbered in.
        let header = Header::read(datagram);
        header.is_some_and(|header| keys.seal(kind, header.lane(), header.number, datagram))
    }

    /// Hands the waiting datagrams to the link and returns the number that the link took.
    ///
    /// # Errors
    /// Errors of the link. The datagrams then count as lost on the wire.
    pub fn flush(&mut self, link: &mut impl Link) -> io::Result<usize> {
        if self.waiting.is_empty() {
            return Ok(0);
        }
        let waiting = self.slots.get_mut(self.waiting.clone()).unwrap_or_default();
        // Fill the array in place, because `collect` would move the whole array even if it holds
        // few datagrams.
        let mut batch = ArrayVec::<Outgoing<'_>, BATCH_DATAGRAMS>::new();
        for TxSlot { to, lane, flow, mode, head, end, payload, .. } in waiting.iter() {
            let (tag, head) = (self.bytes.get(head.end..*end), self.bytes.get(head.clone()));
            let (tag, head) = (tag.unwrap_or_default(), head.unwrap_or_default());
            let (lane, flow, mode) = (*lane, *flow, *mode);
            batch.push(Outgoing { to, lane, flow, mode, head, payload, tag });
        }
        let outcome = link.send(&batch);
        let went = outcome.as_ref().map_or(batch.len(), |went| batch.len().min(*went));
        drop(batch);
        waiting.iter_mut().take(went).for_each(|slot| slot.payload = Gather::EMPTY);
        self.waiting.start += went;
        self.stopped = !self.waiting.is_empty();
        if !self.stopped {
            self.begin_anew();
        }
        outcome
    }

    /// Clears the batch.
    fn begin_anew(&mut self) {
        self.bytes.clear();
        (self.waiting, self.begin, self.stopped) = (0..0, 0, false);
    }

    /// Drops waiting datagrams that refer to this region, as if they were lost on the wire.
    pub fn forget(&mut self, region: u32) {
        let mut at = self.waiting.start;
        while at < self.waiting.end {
            if let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.region == Some(region)) {
                slot.payload = Gather::EMPTY;
                self.waiting.end -= 1;
                // The slots behind the freed one move up, and the freed slot moves to the end.
                self.slots.get_mut(at..=self.waiting.end).unwrap_or_default().rotate_left(1);
            } else {
                at += 1;
            }
        }
        if self.waiting.is_empty() {
            self.begin_anew();
        }
    }

    /// Drops all waiting datagrams and their references to memory, as if they were lost on the
    /// wire.
    pub fn discard(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.payload = Gather::EMPTY);
        self.begin_anew();
    }
}
