//! Holds all peers of a node, found by rank or by connection, and the set that a turn must visit.

pub(crate) mod active;
pub(crate) mod deadlines;
pub(crate) mod peer;
use active::PeerQueue;
use deadlines::Deadlines;
use oikaze_protocol::Rank;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{self, Death, FlowSnapshot, Lane, Message, Nonsense, Snapshot};
use peer::Peer;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;

/// Peers of a node, with the summaries that let a turn skip peers at rest.
///
/// Code that changes a connection calls `touch`, which marks the peer as active. At
/// the end of the turn, `settle` asks each active peer for its remaining work and
/// its next deadline. A peer at rest has nothing small to send, no event to report, and a known
/// deadline. A peer at rest costs a turn nothing.
pub struct Peers {
    me: Rank,
    slots: Vec<Option<Peer>>,
    by_connection: HashMap<u64, Rank, BuildHasherDefault<IdHasher>>,
    /// Id and rank of the connection of the last datagram. The next datagram is likely to be for
    /// the same connection.
    last: (u64, Rank),
    pub(crate) active: PeerQueue,
    /// Peers at rest that have bulk to send. No turn visits such a peer until its bulk is next.
    pub(crate) bulk: PeerQueue,
    deadlines: Deadlines,
    /// Number of peers with unsettled work: data that the peer or this node has not acknowledged.
    busy: usize,
    /// Number of live peers for which bytes wait to be sent for the first time.
    unsent: usize,
    /// Number of visits to peers, all stages of all turns together.
    pub(crate) visits: u64,
    /// Peers with waiting messages for which their connection has no room.
    holding: Vec<Rank>,
    /// Is `true` if a change outside the stages of a turn left something to send at once.
    due: bool,
}

impl Peers {
    /// Creates room for the ranks below `nodes`, all absent.
    pub(crate) fn new(me: Rank, nodes: u32) -> Self {
        Self {
            me,
            slots: (0..nodes).map(|_| None).collect(),
            by_connection: HashMap::default(),
            last: (0, Rank::MAX),
            active: PeerQueue::new(nodes),
            bulk: PeerQueue::new(nodes),
            deadlines: Deadlines::new(nodes),
            busy: 0,
            unsent: 0,
            visits: 0,
            holding: Vec::new(),
            due: false,
        }
    }

    /// Returns the rank of this node.
    #[must_use]
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Returns the number of nodes in the job.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns `true` if the connection to this peer is established.
    #[must_use]
    pub fn is_connected(&self, rank: Rank) -> bool {
        rank == self.me || self.get(rank).is_some_and(|peer| peer.connection.is_established())
    }

    /// Returns the address in use for this peer, once one has answered.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<SocketAddr> {
        let peer = self.get(rank)?;
        peer.addresses.get(usize::from(peer.connection.path()?)).copied()
    }

    /// Returns the cipher of the latest keys for this peer, if it has keys.
    #[must_use]
    pub fn cipher_of(&self, rank: Rank) -> Option<CipherKind> {
        Some(self.get(rank)?.session.as_deref()?.cipher())
    }

    /// Returns the current state of this peer's connection.
    #[must_use]
    pub fn snapshot(&self, rank: Rank) -> Option<Snapshot> {
        self.get(rank).map(|peer| peer.connection.snapshot())
    }

    /// Returns the current state of each flow of bulk to this peer, if there are several, and the
    /// address that the flow goes to.
    pub fn flows(
        &self,
        rank: Rank,
        now: Time,
    ) -> impl Iterator<Item = (FlowSnapshot, Option<SocketAddr>)> + '_ {
        self.get(rank).into_iter().flat_map(move |peer| {
            let bulk_port = peer.connection.peer_introduction().map_or(0, |them| them.bulk_port);
            let address = move |path: u8| {
                let mut address = peer.addresses.get(usize::from(path)).copied()?;
                address.set_port(bulk_port);
                Some(address)
            };
            peer.connection.flows(now).map(move |flow| (flow, address(flow.path)))
        })
    }

    /// Returns the latencies of round trips and of messages to this peer.
    #[must_use]
    pub fn latencies(&self, rank: Rank) -> Option<wind::Latencies<'_>> {
        self.get(rank).map(|peer| peer.connection.latencies())
    }

    /// Returns the cause of a peer's death.
    pub(crate) fn death_of(&self, rank: Rank) -> Death {
        self.get(rank).and_then(|peer| peer.death).unwrap_or(Death::Silent)
    }

    /// Ends the connection to a peer that broke the protocol.
    pub(crate) fn give_up(&mut self, rank: Rank, nonsense: Nonsense, now: Time) {
        if let Some(peer) = self.touch(rank) {
            peer.connection.give_up(now, nonsense);
        }
    }

    /// Keeps a message until the connection to this peer has room for it.
    pub(crate) fn hold(&mut self, rank: Rank, message: Message) {
        let Some(peer) = self.slots.get_mut(rank as usize).and_then(Option::as_mut) else { return };
        if peer.held.is_empty() {
            self.holding.push(rank);
        }
        peer.held.push_back(message);
    }

    /// Takes the peers with held messages. [`Peers::put_holding`] follows.
    pub(crate) fn take_holding(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.holding)
    }

    /// Puts back the peers that still have held messages.
    pub(crate) fn put_holding(&mut self, holding: Vec<Rank>) {
        self.holding = holding;
    }

    /// Called when a change outside the stages of a turn left something to send at once.
    pub(crate) fn set_due(&mut self, due: bool) {
        self.due = due;
    }

    /// Returns `true` if such a change was made.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Inserts a peer. Returns `false` if the rank does not exist or its connection id is taken.
    pub(crate) fn insert(&mut self, rank: Rank, peer: Peer) -> bool {
        let id = peer.connection.id();
        let Some(slot) = self.slots.get_mut(rank as usize) else { return false };
        let new = self.by_connection.insert(id, rank).is_none() && id != 0;
        *slot = Some(peer);
        self.active.mark(rank);
        new
    }

    /// Returns a peer, read only.
    pub(crate) fn get(&self, rank: Rank) -> Option<&Peer> {
        self.slots.get(rank as usize)?.as_ref()
    }

    /// Returns a peer for changes that give its connection no event to report and no data to send.
    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.slots.get_mut(rank as usize)?.as_mut()
    }

    /// Returns a peer for changes and marks it as active, so that this turn checks its state.
    pub(crate) fn touch(&mut self, rank: Rank) -> Option<&mut Peer> {
        let peer = self.slots.get_mut(rank as usize)?.as_mut()?;
        self.active.mark(rank);
        Some(peer)
    }

    /// Returns the next active peer to send small data, and moves it to the end of the queue.
    pub(crate) fn next_active(&mut self) -> Option<Rank> {
        self.visits += 1;
        self.active.rotate()
    }

    /// Returns the next peer to send bulk, removes it from the bulk queue and marks it as active.
    pub(crate) fn next_bulk(&mut self) -> Option<Rank> {
        let rank = self.bulk.take()?;
        self.visits += 1;
        self.active.mark(rank);
        Some(rank)
    }

    /// Returns all peers for changes and marks them as active. Rare: the cost grows with the number
    /// of peers.
    pub(crate) fn touch_all(&mut self) -> impl Iterator<Item = (Rank, &mut Peer)> {
        let Self { slots, active, visits, .. } = self;
        *visits += slots.len() as u64;
        (0..).zip(slots).filter_map(|(rank, slot)| {
            let peer = slot.as_mut()?;
            active.mark(rank);
            Some((rank, peer))
        })
    }

    /// Returns the rank of the peer with this connection id.
    pub(crate) fn of_connection(&mut self, id: u64) -> Option<Rank> {
        if self.last.0 != id {
            self.last = (id, *self.by_connection.get(&id)?);
        }
        Some(self.last.1)
    }

    /// Called when a peer's connection has a new id. Datagrams with the old id then belong to no
    /// connection.
    pub(crate) fn renamed(&mut self, rank: Rank) {
        let Some(peer) = self.slots.get_mut(rank as usize).and_then(Option::as_mut) else { return };
        let id = peer.connection.id();
        if peer.session_mut().is_none() {
            // The keys of the old connection.
            peer.session = None;
        }
        let old = std::mem::replace(&mut peer.id, id);
        self.by_connection.remove(&old);
        self.by_connection.insert(id, rank);
        self.last = (id, rank);
    }

    /// Calls the timeout of every connection whose deadline has come.
    pub(crate) fn timers(&mut self, now: Time) {
        while let Some(rank) = self.deadlines.take_due(now) {
            self.visits += 1;
            if let Some(peer) = self.touch(rank) {
                peer.connection.timeout(now);
            }
        }
    }

    /// Processes acknowledgements that were deferred for the sake of answers (WIND-3.11). Returns
    /// `true` if anything is to be sent for them.
    pub(crate) fn process_deferred_ack(&mut self, now: Time) -> bool {
        let Self { slots, active, .. } = self;
        let mut due = false;
        for rank in active.iter() {
            if let Some(peer) = slots.get_mut(rank as usize).and_then(Option::as_mut) {
                due |= peer.connection.process_deferred_ack() && peer.connection.has_due(now);
            }
        }
        due
    }

    /// Ends a turn: a peer with nothing small left to send rests, until its deadline or until its
    /// bulk has its turn.
    pub(crate) fn settle(&mut self, now: Time) {
        let Self { slots, active, bulk, deadlines, busy, unsent, visits, .. } = self;
        *visits += active.len() as u64;
        active.retain(|rank| {
            let Some(peer) = slots.get_mut(rank as usize).and_then(Option::as_mut) else {
                return false;
            };
            deadlines.set(rank, peer.connection.next_timeout());
            let is_busy = peer.death.is_none() && !peer.connection.is_idle();
            count_change(busy, &mut peer.busy, is_busy);
            if peer.connection.is_over() {
                peer.session = None;
            }
            let has_unsent = peer.death.is_none() && peer.connection.has_unsent();
            count_change(unsent, &mut peer.has_unsent, has_unsent);
            if peer.connection.lane_has_due(Lane::Bulk, now) {
                bulk.mark(rank);
            }
            peer.connection.lane_has_due(Lane::Small, now)
        });
    }

    /// Returns the time at which a turn is needed at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.earliest()
    }

    /// Returns `true` if a peer is to be sent something now, or a deadline has come, or if finding
    /// out would take long.
    pub(crate) fn is_any_pressed(&self, now: Time) -> bool {
        /// Maximum number of active peers that are asked.
        const ASKED_PEERS_MAX: usize = 4;
        let has_due = |rank| self.get(rank).is_some_and(|peer: &Peer| peer.connection.has_due(now));
        self.active.len() > ASKED_PEERS_MAX
            || self.idle_peer_is_due(now)
            || self.active.iter().any(has_due)
    }

    /// Returns `true` if every live peer has acknowledged all data sent to it.
    pub(crate) fn are_settled(&self) -> bool {
        self.busy == 0
    }

    /// Returns `true` if bytes for a live peer wait to be sent for the first time.
    pub(crate) fn have_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Returns `true` if anything is left to send or a deadline has come.
    pub(crate) fn have_due(&self, now: Time) -> bool {
        !self.active.is_empty() || self.idle_peer_is_due(now)
    }

    /// Returns `true` if a peer at rest has bulk to send or a deadline that has come.
    fn idle_peer_is_due(&self, now: Time) -> bool {
        !self.bulk.is_empty() || self.next_timeout().is_some_and(|at| at <= now)
    }

    /// Returns a peer that rests although it has something to do, or whose deadline differs from
    /// the known one. Such a peer shows that a change was not marked.
    pub(crate) fn missed_peer(&self, now: Time) -> Option<Rank> {
        (0..).zip(&self.slots).find_map(|(rank, slot)| {
            let peer = slot.as_ref()?;
            let is_idle = !self.active.contains(rank);
            let next = peer.connection.next_timeout();
            let bulk = peer.connection.lane_has_due(Lane::Bulk, now) && !self.bulk.contains(rank);
            let due = (bulk || peer.connection.lane_has_due(Lane::Small, now))
                && next.is_none_or(|at| at > now);
            (is_idle && (due || peer.connection.has_events() || next != self.deadlines.get(rank)))
                .then_some(rank)
        })
    }
}

/// Hasher of connection ids. This node chose the ids at random, so one multiplication spreads them
/// well enough over the table, and no attacker can choose ids that collide.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // Multiplier 2⁶⁴ / φ (Knuth, The Art of Computer Programming, volume 3, section 6.4).
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Notes whether a peer counts, and changes the number of those that do.
fn count_change(number: &mut usize, counts: &mut bool, now: bool) {
    match (std::mem::replace(counts, now), now) {
        (false, true) => *number += 1,
        (true, false) => *number -= 1,
        _ => {}
    }
}
