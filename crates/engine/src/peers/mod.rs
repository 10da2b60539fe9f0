//! Holds all peers of a node, found by rank or by connection, and the set that a turn must visit.

pub(crate) mod active;
pub(crate) mod deadlines;
pub(crate) mod peer;
use super::shm::LocalPeer;
use active::Active;
use deadlines::Deadlines;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Lane;
use peer::Peer;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The peers, and what a turn must know of them without asking each.
///
/// Code that changes a connection calls [`touch`](Self::touch), which marks the peer as active. At
/// the end of the turn, [`settle`](Self::settle) asks each active peer for its remaining work and
/// its next deadline. A peer at rest has nothing small to send, no event to report, and a known
/// deadline. A peer at rest costs a turn nothing.
pub(crate) struct Peers {
    slots: Vec<Option<Peer>>,
    by_connection: HashMap<u64, Rank, BuildHasherDefault<IdHasher>>,
    /// The connection of the last datagram: the next one is likely to be for the same.
    last: (u64, Rank),
    pub active: Active,
    /// Peers at rest that have bulk to send: it goes in its turn, and nobody needs to ask until
    /// then.
    pub bulk: Active,
    deadlines: Deadlines,
    /// Peers that have not acknowledged all, or have not had all acknowledged.
    busy: usize,
    /// Looks at peers, all stages together: the work of the turns.
    pub visits: u64,
}

impl Peers {
    /// Creates room for the ranks below `nodes`, all absent.
    pub fn new(nodes: u32) -> Self {
        Self {
            slots: (0..nodes).map(|_| None).collect(),
            by_connection: HashMap::default(),
            last: (0, Rank::MAX),
            active: Active::new(nodes),
            bulk: Active::new(nodes),
            deadlines: Deadlines::new(nodes),
            busy: 0,
            visits: 0,
        }
    }

    /// Inserts a peer. Returns `false` if the rank does not exist or its connection id is taken.
    pub fn insert(&mut self, rank: Rank, peer: Peer) -> bool {
        let id = peer.connection.id();
        let Some(slot) = self.slots.get_mut(rank as usize) else { return false };
        let new = self.by_connection.insert(id, rank).is_none() && id != 0;
        *slot = Some(peer);
        self.active.mark(rank);
        new
    }

    /// Returns a peer, read only.
    pub fn get(&self, rank: Rank) -> Option<&Peer> {
        self.slots.get(rank as usize)?.as_ref()
    }

    /// Returns a peer for changes that give its connection no event to report and no data to send.
    pub fn get_mut(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.slots.get_mut(rank as usize)?.as_mut()
    }

    /// Returns the rings to a local peer.
    #[inline]
    pub fn local_peer(&self, rank: Rank) -> Option<&LocalPeer> {
        self.get(rank)?.local_peer.as_deref()
    }

    /// Returns the rings to a local peer for use. It does not mark the peer as active.
    #[inline]
    pub fn local_peer_mut(&mut self, rank: Rank) -> Option<&mut LocalPeer> {
        self.get_mut(rank)?.local_peer.as_deref_mut()
    }

    /// Returns a peer for changes and marks it as active, so that this turn checks its state.
    pub fn touch(&mut self, rank: Rank) -> Option<&mut Peer> {
        let peer = self.slots.get_mut(rank as usize)?.as_mut()?;
        self.active.mark(rank);
        Some(peer)
    }

    /// Returns the next active peer to send small data, and moves it to the end of the queue.
    pub fn next_active(&mut self) -> Option<Rank> {
        self.visits += 1;
        self.active.rotate()
    }

    /// Returns the next peer to send bulk, removes it from the bulk queue and marks it as active.
    pub fn next_bulk(&mut self) -> Option<Rank> {
        let rank = self.bulk.take()?;
        self.visits += 1;
        self.active.mark(rank);
        Some(rank)
    }

    /// Returns all peers for changes and marks them as active. Rare: the cost grows with the number
    /// of peers.
    pub fn touch_all(&mut self) -> impl Iterator<Item = &mut Peer> {
        let Self { slots, active, visits, .. } = self;
        *visits += slots.len() as u64;
        (0..).zip(slots).filter_map(|(rank, slot)| {
            let peer = slot.as_mut()?;
            active.mark(rank);
            Some(peer)
        })
    }

    /// Returns the rank of the peer with this connection id.
    pub fn of_connection(&mut self, id: u64) -> Option<Rank> {
        if self.last.0 != id {
            self.last = (id, *self.by_connection.get(&id)?);
        }
        Some(self.last.1)
    }

    /// Called when a peer's connection has a new id. Datagrams with the old id then belong to no
    /// connection.
    pub fn renamed(&mut self, rank: Rank) {
        let Some(peer) = self.slots.get_mut(rank as usize).and_then(Option::as_mut) else { return };
        let id = peer.connection.id();
        let old = std::mem::replace(&mut peer.id, id);
        self.by_connection.remove(&old);
        self.by_connection.insert(id, rank);
        self.last = (id, rank);
    }

    /// Calls the timeout of every connection whose deadline has come.
    pub fn timers(&mut self, now: Time) {
        while let Some(rank) = self.deadlines.take_due(now) {
            self.visits += 1;
            if let Some(peer) = self.touch(rank) {
                peer.connection.timeout(now);
            }
        }
    }

    /// The end of a turn: who has nothing small left to send rests, until its deadline or until its
    /// bulk has its turn.
    pub fn settle(&mut self, now: Time) {
        let Self { slots, active, bulk, deadlines, busy, visits, .. } = self;
        *visits += active.len() as u64;
        active.retain(|rank| {
            let Some(peer) = slots.get_mut(rank as usize).and_then(Option::as_mut) else {
                return false;
            };
            deadlines.set(rank, peer.connection.next_timeout());
            let is_busy = peer.death.is_none() && !peer.connection.is_idle();
            match (std::mem::replace(&mut peer.busy, is_busy), is_busy) {
                (false, true) => *busy += 1,
                (true, false) => *busy -= 1,
                _ => {}
            }
            if peer.connection.lane_has_due(Lane::Bulk, now) {
                bulk.mark(rank);
            }
            peer.connection.lane_has_due(Lane::Small, now)
        });
    }

    /// When a turn is needed at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        self.deadlines.earliest()
    }

    /// Is a peer to be sent something now, or has a deadline come? Also yes if to find out would
    /// take a while.
    pub fn is_any_pressed(&self, now: Time) -> bool {
        const FEW: usize = 4;
        let has_due = |rank| self.get(rank).is_some_and(|peer: &Peer| peer.connection.has_due(now));
        self.active.len() > FEW || self.resting_have_due(now) || self.active.iter().any(has_due)
    }

    /// Returns `true` if every live peer has acknowledged all data sent to it.
    pub fn are_settled(&self) -> bool {
        self.busy == 0
    }

    /// Returns `true` if anything is left to send or a deadline has come.
    pub fn have_due(&self, now: Time) -> bool {
        !self.active.is_empty() || self.resting_have_due(now)
    }

    /// Returns `true` if a peer at rest has bulk to send or a deadline that has come.
    fn resting_have_due(&self, now: Time) -> bool {
        !self.bulk.is_empty() || self.next_timeout().is_some_and(|at| at <= now)
    }

    /// A peer that rests although it has something to do, or whose deadline is not what is known of
    /// it: a defect of the marks.
    pub fn overlooked(&self, now: Time) -> Option<Rank> {
        (0..).zip(&self.slots).find_map(|(rank, slot)| {
            let peer = slot.as_ref()?;
            let rests = !self.active.contains(rank);
            let next = peer.connection.next_timeout();
            let bulk = peer.connection.lane_has_due(Lane::Bulk, now) && !self.bulk.contains(rank);
            let due = (bulk || peer.connection.lane_has_due(Lane::Small, now))
                && next.is_none_or(|at| at > now);
            (rests && (due || peer.connection.has_events() || next != self.deadlines.get(rank)))
                .then_some(rank)
        })
    }
}

/// For connection ids: this node chose them at random, so that one multiplication spreads them well
/// enough for the table's upper and lower bits, and nobody else can choose them so that they
/// collide.
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
        // 2⁶⁴ / φ (Knuth, volume 3, section 6.4).
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
