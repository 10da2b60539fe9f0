//! Egress: the one stage that transmits, in the order of WIND-3.9 and WIND-3.10.
//!
//! Small datagrams go first, from every peer that the turn concerns. Bulk follows in runs, each as
//! long as one call of the link carries. The peers share the runs by deficit round robin (Shreedhar
//! and Varghese, SIGCOMM 1995), where a peer's deficit is at most one datagram. A turn hands over
//! few runs. Nothing can overtake bulk that the kernel has, and data that arrives or is posted
//! during a run waits for the next turn.

use crate::counters::Counters;
use crate::groups::Groups;
use crate::io::bulk_quota::BulkQuota;
use crate::io::cookies::Cookies;
use crate::peers::Peers;
use crate::sealing::seal::Seals;
use crate::sealing::session::{SealingKeys, Session};
use crate::sealing::tx_batch::TxBatch;
use oikaze_os::memory::{Gather, RegionTable};
use oikaze_os::net::{Link, PayloadForm, SendMode, TooBig};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{
    DATAGRAM_MAX, DATAGRAM_MIN, REFUSED_SIZES_A_TURN, SMALL_A_TURN, SMALL_SHARE, TAG_MAX,
};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::multicast::GroupTransmit;
use oikaze_protocol::wind::{Lane, PerLane, Transmit};
use oikaze_protocol::wire::{Builder, SealKind};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// State of sending: datagrams on their way to the link, and how much bulk a turn sends.
#[derive(Default)]
pub(crate) struct Egress {
    lanes: PerLane<TxBatch>,
    pub quota: BulkQuota,
}

impl Egress {
    /// Returns `true` if the link has no room for the waiting datagrams of either lane.
    pub fn is_stopped(&self) -> bool {
        self.lanes.both().iter().any(|batch| batch.is_stopped())
    }

    /// Drops waiting datagrams that refer to this region, as if they were lost on the wire.
    pub fn forget(&mut self, region: u32) {
        self.lanes.both_mut().into_iter().for_each(|batch| batch.forget(region));
    }

    /// Drops all waiting datagrams, as if they were lost on the wire.
    pub fn discard(&mut self) {
        self.lanes.both_mut().into_iter().for_each(TxBatch::discard);
    }
}

/// Parts of the engine from which datagrams are sent.
pub(crate) struct Transmitter<'e, L> {
    pub egress: &'e mut Egress,
    pub link: &'e mut L,
    pub peers: &'e mut Peers,
    pub groups: &'e mut Groups,
    pub memory: &'e RegionTable,
    pub seals: &'e Seals,
    pub counters: &'e mut Counters,
    pub now: Time,
}

/// Sender of a run of bulk.
#[derive(Clone, Copy)]
enum BulkSender {
    /// Connection to the node of this rank.
    Peer(Rank),
    /// Stream of this node at this index.
    Stream(usize),
}

impl<L: Link> Transmitter<'_, L> {
    /// Sends due data. Returns the number of datagrams, and `true` if the turn's share was used up
    /// before all data was sent.
    pub fn send_due(&mut self) -> (usize, bool) {
        let mut sent = self.flush(Lane::Small);
        let small_left = self.send_small(&mut sent);
        sent += self.flush(Lane::Small) + self.flush(Lane::Bulk);
        let share = self.egress.quota.bulk_share(self.now);
        let bulk_left = self.send_bulk(share, &mut sent);
        let PerLane { small, bulk } = &self.egress.lanes;
        (sent, (small_left && !small.is_stopped()) || (bulk_left && !bulk.is_stopped()))
    }

    /// Writes the demands for cookies that ingress has left.
    pub fn demand_cookies(&mut self, cookies: &mut Cookies) {
        while let Some((to, reply)) = cookies.take_demand() {
            let batch = &mut self.egress.lanes.small;
            let Some(into) = batch.next() else { continue };
            let mut builder =
                Builder::new(into, 0, reply.number, SealKind::Handshake, DATAGRAM_MIN);
            builder.cookie(&reply);
            builder.finish(None);
            let keys = None::<&mut Session>;
            batch.push(&to, &Transmit::small(0, true), Gather::EMPTY, self.seals, keys);
        }
    }

    /// Sends control and small messages of every active peer, each up to its share. Returns `true`
    /// if any are left.
    fn send_small(&mut self, sent: &mut usize) -> bool {
        let mut left = SMALL_A_TURN;
        let mut cut = false;
        for _ in 0..self.peers.active.len() {
            let Some(rank) = self.peers.next_active() else { break };
            let mut share = SMALL_SHARE;
            loop {
                if share == 0 || left == 0 || !self.make_room(Lane::Small, sent) {
                    cut |= self.lane_has_due(rank, Lane::Small);
                    break;
                }
                if self.write_one(rank, Lane::Small).is_none() {
                    break;
                }
                share -= 1;
                left -= 1;
            }
            if self.lane_has_due(rank, Lane::Bulk) {
                self.peers.bulk.mark(rank);
            }
        }
        cut
    }

    /// Sends bulk in runs, up to `share` bytes. Returns `true` if any bulk is left.
    fn send_bulk(&mut self, share: usize, sent: &mut usize) -> bool {
        if self.egress.lanes.bulk.is_stopped() {
            self.groups.own.note_all();
            return true;
        }
        let mut left = share;
        // Streams that have their turn after the peers, as one peer each.
        let mut streams = self.due_streams();
        let mut before_stream = self.peers.bulk.len();
        while left > 0 {
            let sender = match before_stream {
                0 => streams.pop_front().map(BulkSender::Stream),
                _ => None,
            };
            before_stream = before_stream.checked_sub(1).unwrap_or(self.peers.bulk.len());
            let sender = sender
                .or_else(|| self.peers.next_bulk().map(BulkSender::Peer))
                .or_else(|| streams.pop_front().map(BulkSender::Stream));
            let Some(sender) = sender else {
                *sent += self.flush(Lane::Bulk);
                return false;
            };
            let (mut run, mut count) = (0, 0);
            // Length of the latest datagram. The run ends when another datagram of this length
            // would need a second call of the link.
            let mut last = 0;
            let most = left.min(DATAGRAM_MAX);
            while run + last <= most {
                if !self.make_room(Lane::Bulk, sent) {
                    self.stays_due(sender);
                    return true;
                }
                let written = match sender {
                    BulkSender::Peer(rank) => self.write_one(rank, Lane::Bulk),
                    BulkSender::Stream(index) => self.write_to_group(index),
                };
                let Some(len) = written else { break };
                run += len;
                count += 1;
                last = len;
            }
            left = if run + last > most { left - most } else { left.saturating_sub(run) };
            // Put the flush off, so that the next run is written before the link sends this one.
            // The kernel's copy of the payload evicts from the L1 cache all that writing datagrams
            // needs. Flush now if the slots would run out in the middle of the next run.
            if left == 0 || !self.egress.lanes.bulk.has_room(count) {
                *sent += self.flush(Lane::Bulk);
            }
            if self.egress.lanes.bulk.is_stopped() {
                self.stays_due(sender);
                return true;
            }
            // A sender that yielded no datagram is not asked again in this turn.
            match sender {
                BulkSender::Peer(rank) if count > 0 && self.lane_has_due(rank, Lane::Bulk) => {
                    self.peers.bulk.mark(rank);
                }
                BulkSender::Stream(index) if count > 0 && self.stream_has_due(index) => {
                    streams.push_back(index);
                }
                BulkSender::Peer(_) | BulkSender::Stream(_) => {}
            }
            self.egress.quota.bulk_went(run);
        }
        !self.peers.bulk.is_empty() || !streams.is_empty()
    }

    /// Returns the indices of the streams that have something to send.
    fn due_streams(&mut self) -> VecDeque<usize> {
        self.groups.own.note_active(self.peers);
        let count = self.groups.own.len();
        (0..count).filter(|index| self.stream_has_due(*index)).collect()
    }

    fn stream_has_due(&mut self, index: usize) -> bool {
        self.groups.own.has_due(index, self.now, self.peers)
    }

    /// Called when the link has no room for the bulk of a sender. A stream is asked again in each
    /// turn, as long as it has something due.
    fn stays_due(&mut self, sender: BulkSender) {
        match sender {
            BulkSender::Peer(rank) => self.peers.bulk.mark(rank),
            BulkSender::Stream(_) => self.groups.own.note_all(),
        }
    }

    /// Writes one due datagram of a stream. Returns the datagram's number of bytes (0 if the
    /// datagram was lost on this node), or `None` if none is due.
    fn write_to_group(&mut self, index: usize) -> Option<usize> {
        let Self { peers, groups, memory, egress, seals, now, .. } = self;
        let batch = &mut egress.lanes.bulk;
        let own = groups.own.get_mut(index)?;
        let GroupTransmit { payload, rows, was_sent, .. } =
            own.stream.transmit(*now, *peers, batch.next()?)?;
        let transmit = Transmit {
            payload,
            rows,
            was_sent,
            lane: Lane::Bulk,
            mode: SendMode::Any,
            ..Transmit::small(0, false)
        };
        Some(write_payload(
            batch,
            &own.to,
            &transmit,
            false,
            memory,
            seals,
            own.keys.as_deref_mut(),
        ))
    }

    fn lane_has_due(&self, rank: Rank, lane: Lane) -> bool {
        self.peers.get(rank).is_some_and(|peer| peer.connection.lane_has_due(lane, self.now))
    }

    /// Ensures that there is a free slot. Returns `false` if the link has no room.
    fn make_room(&mut self, lane: Lane, sent: &mut usize) -> bool {
        if self.egress.lanes[lane].is_full() {
            *sent += self.flush(lane);
        }
        !self.egress.lanes[lane].is_stopped()
    }

    /// Writes one due datagram of a lane to a peer. Returns the datagram's number of bytes (0 if
    /// the datagram was lost on this node), or `None` if none is due.
    fn write_one(&mut self, rank: Rank, lane: Lane) -> Option<usize> {
        let Self { peers, memory, egress, link, seals, now, .. } = self;
        let batch = &mut egress.lanes[lane];
        let peer = peers.get_mut(rank)?;
        let mut transmit = peer.connection.transmit_by(lane, *now, batch.next()?);
        // Borrow the `Transmit` in place. A move would load it in other widths than it was stored,
        // and would wait for these stores.
        let transmit = transmit.as_mut()?;
        let Some(to) = peer.addresses.get(usize::from(transmit.path)) else { return Some(0) };
        let len = transmit.payload.as_ref().map_or(0, |segment| segment.len as usize);
        let form = PayloadForm::Contiguous(batch.begun() + len + TAG_MAX);
        let short = transmit.short && link.prefers(*to, form);
        let session = Session::of(&mut peer.session, peer.connection.id());
        if short {
            (transmit.port, transmit.lane, transmit.flow) = (None, Lane::Small, 0);
        }
        Some(write_payload(batch, to, transmit, short, memory, seals, session))
    }

    /// Reports datagrams that the kernel refused for their size to the connections on that path
    /// (WIND-8.8). Returns `true` if data must be sent again in another size.
    pub fn apply_refused_sizes(&mut self) -> bool {
        let mut any = false;
        // Refused sizes are rare, because they need a change of the network during the job. Each
        // refused size costs a visit to every peer, so a turn takes few.
        for _ in 0..REFUSED_SIZES_A_TURN {
            let Some(TooBig { to, fits, .. }) = self.link.poll_too_big() else { break };
            any = true;
            for rank in 0..self.peers.nodes() {
                let Some(path) = self.peers.get(rank).and_then(|peer| peer.path_of(to)) else {
                    continue;
                };
                if let Some(peer) = self.peers.touch(rank) {
                    peer.connection.too_big(self.now, path, fits);
                }
            }
        }
        any
    }

    /// Hands the waiting datagrams of a lane to the link. Returns the number that the link took.
    fn flush(&mut self, lane: Lane) -> usize {
        let batch = &mut self.egress.lanes[lane];
        let waiting = batch.waiting();
        batch.flush(self.link).unwrap_or_else(|_| {
            // A datagram that cannot be sent is lost, as on a bad wire. Wind retransmits it, or
            // finds the peer dead.
            self.counters.link_errors += 1;
            waiting
        })
    }
}

/// Adds the payload to a datagram whose head is written, seals the datagram and adds it to the
/// batch. Returns the datagram's number of bytes, or 0 if the datagram is lost on this node. The
/// link prefers a contiguous datagram if `is_contiguous`.
fn write_payload(
    batch: &mut TxBatch,
    to: &SocketAddr,
    transmit: &Transmit,
    is_contiguous: bool,
    memory: &RegionTable,
    seals: &Seals,
    keys: Option<&mut impl SealingKeys>,
) -> usize {
    let is_keyed = seals.data.is_keyed();
    // Copy what is sealed with keys, because that changes it. Otherwise, copy three kinds of
    // payload: content that is sent again (WIND-5.5), rows, which are not contiguous, and payloads
    // that the link prefers contiguous. A payload that is not copied may change between the seal
    // and the kernel's copy, and the receiver then drops the datagram. Without the copy, every
    // retransmission could be dropped in the same way while the program writes the memory.
    let copied = transmit
        .payload
        .as_ref()
        .filter(|_| is_keyed || is_contiguous || transmit.was_sent || transmit.rows.is_some());
    if let Some(segment) = copied {
        let packed = batch.pack(|bytes| match &transmit.rows {
            Some(rows) => memory.pack_rows(rows, segment.offset, segment.len, bytes),
            None => memory.pack(segment, bytes),
        });
        return if packed { batch.push(to, transmit, Gather::EMPTY, seals, keys) } else { 0 };
    }
    // A segment whose region is gone belongs to a cancelled message. The datagram counts as lost on
    // the wire.
    let payload =
        transmit.payload.as_ref().map_or(Some(Gather::EMPTY), |segment| memory.gather(segment));
    payload.map_or(0, |payload| batch.push(to, transmit, payload, seals, keys))
}
