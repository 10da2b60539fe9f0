//! Small messages between neighbours that take the shortest way: from the caller's memory into the ring, and from the ring to the caller, with
//! no turn between (spec/memory.md, MEM-16.9).

use super::neighbour::{Passage, Passages};
use super::{Arrived, Completion, Engine, Failure};
use oikaze_os::link::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::{STRAIGHT_A_TURN, STRAIGHT_TOGETHER};
use oikaze_protocol::wind::Class;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many messages were taken from a ring together with one that somebody waited for, and are the oldest that have arrived. Whoever is in the
/// engine changes it.
#[derive(Clone, Debug, Default)]
pub struct Ahead(Arc<AtomicUsize>);

impl Ahead {
    #[inline]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A turn hands all of them up.
    pub(super) fn take(&self) -> usize {
        let count = self.count();
        self.set(0);
        count
    }
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// What threads see of the rings of all neighbours.
    #[must_use]
    pub fn passages(&self) -> Passages {
        let passage = |rank| self.peers.neighbour(rank).map(|neighbour| Arc::clone(&neighbour.passage));
        Passages::new((0..self.nodes).map(passage).collect(), self.ahead.clone())
    }

    /// Have so many gone past the turns that one must look for what else there is?
    #[inline]
    #[must_use]
    pub fn owes_a_look(&self) -> bool {
        self.straight >= STRAIGHT_A_TURN
    }

    /// Put a user's message into a neighbour's ring, if nothing that was asked for before is in its way: the position that settles it. The
    /// neighbour is to be woken if it sleeps.
    #[inline]
    pub fn send_straight(&mut self, to: Rank, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        let before = !self.submissions.is_empty() || self.order.holds_back();
        if self.owes_a_look() || self.ended.is_some() || before {
            return None;
        }
        let neighbour = self.peers.neighbour_mut(to)?;
        let position = neighbour.put_straight(class, tag, body)?;
        neighbour.went_straight(position, self.operations.outstanding.begin(to));
        self.straight += 1;
        Some(position)
    }

    /// A message for the user, straight out of a neighbour's ring, if it is the oldest there; nothing that arrived earlier is waiting to be
    /// read. The neighbour is to be woken if it sleeps.
    ///
    /// Of one who sends many, some more are taken at once, and kept for who comes next: each record is in its writer's cache, and the processor
    /// fetches several at a time if no locked instruction stands between.
    #[inline]
    pub fn take_straight(&mut self, from: Option<Rank>, sends_many: bool) -> Option<Arrived> {
        if self.owes_a_look() {
            return None;
        }
        let arrived = match self.arrived.front() {
            Some(next) => {
                let ahead = self.ahead.count();
                let fits = ahead > 0 && from.is_none_or(|from| next.from == from);
                self.ahead.set(ahead - usize::from(fits));
                if fits { self.arrived.pop_front() } else { None }
            }
            None => self.take_from_rings(from, if sends_many { STRAIGHT_TOGETHER } else { 1 }),
        }?;
        if let Some(neighbour) = self.peers.neighbour_mut(arrived.from) {
            neighbour.handed(arrived.body.len() as u64, self.ahead.count() == 0);
        }
        self.straight += 1;
        Some(arrived)
    }

    #[inline]
    fn take_from_rings(&mut self, from: Option<Rank>, most: usize) -> Option<Arrived> {
        let first = match from {
            Some(rank) => self.take_straight_from(rank, most),
            // One after the other: none is to wait for ever because others say much.
            None => {
                let count = self.neighbours.ranks.len();
                let first = self.neighbours.first;
                (first..first + count).find_map(|at| {
                    let arrived = self.take_straight_from(*self.neighbours.ranks.get(at % count)?, most)?;
                    self.neighbours.first = at % count + 1;
                    Some(arrived)
                })
            }
        };
        if !self.arrived.is_empty() {
            self.ahead.set(self.arrived.len());
        }
        first
    }

    #[inline]
    fn take_straight_from(&mut self, from: Rank, most: usize) -> Option<Arrived> {
        let Self { peers, bodies, arrived, .. } = self;
        let mut first = None;
        peers.neighbour_mut(from)?.take_straight(most, bodies, |class, tag, body| {
            let next = Arrived { from, class, tag, body };
            if first.is_none() { first = Some(next) } else { arrived.push_back(next) }
        });
        first
    }

    /// Settle `completion` as the message that went straight to this neighbour and ends at this position.
    pub(super) fn promise(&mut self, peer: Rank, passage: &Passage, position: u64, completion: Arc<Completion>) {
        let settled = match self.peers.neighbour_mut(peer) {
            Some(neighbour) => neighbour.promise(position, completion),
            None => {
                completion.settle(passage.outcome(position).unwrap_or(Err(Failure::Left)));
                true
            }
        };
        self.news += usize::from(settled);
    }
}
