//! Small messages between neighbours that take the shortest way: from the caller's memory into the ring, and from the ring to the caller, with
//! no turn between (spec/memory.md, MEM-16.9).

use super::neighbour::{Passage, Passages};
use super::{Arrived, Completion, Engine, Failure};
use oikaze_os::link::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::STRAIGHT_A_TURN;
use oikaze_protocol::wind::Class;
use std::sync::Arc;

impl<L: Link, P: Pages> Engine<L, P> {
    /// What threads see of the rings of all neighbours.
    #[must_use]
    pub fn passages(&self) -> Passages {
        let passage = |rank| self.peer(rank)?.neighbour.as_ref().map(|neighbour| Arc::clone(&neighbour.passage));
        Passages::new((0..self.nodes).map(passage).collect())
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
        let neighbour = self.peers.get_mut(to)?.neighbour.as_mut()?;
        let position = neighbour.put_straight(class, tag, body)?;
        neighbour.went_straight(position, self.operations.outstanding.begin(to));
        self.straight += 1;
        Some(position)
    }

    /// A message for the user, straight out of a neighbour's ring, if it is the oldest there; nothing that arrived earlier is waiting to be
    /// read. The neighbour is to be woken if it sleeps.
    #[inline]
    pub fn take_straight(&mut self, from: Option<Rank>) -> Option<Arrived> {
        if self.owes_a_look() || !self.arrived.is_empty() {
            return None;
        }
        let arrived = match from {
            Some(rank) => self.take_straight_from(rank),
            // One after the other: none is to wait for ever because others say much.
            None => {
                let count = self.neighbours.ranks.len();
                let first = self.neighbours.first;
                (first..first + count).find_map(|at| {
                    let arrived = self.take_straight_from(*self.neighbours.ranks.get(at % count)?)?;
                    self.neighbours.first = at % count + 1;
                    Some(arrived)
                })
            }
        }?;
        self.straight += 1;
        Some(arrived)
    }

    #[inline]
    fn take_straight_from(&mut self, from: Rank) -> Option<Arrived> {
        let Self { peers, bodies, .. } = self;
        let (class, tag, body) = peers.get_mut(from)?.neighbour.as_mut()?.take_straight(bodies)?;
        Some(Arrived { from, class, tag, body })
    }

    /// Settle `completion` as the message that went straight to this neighbour and ends at this position.
    pub(super) fn promise(&mut self, peer: Rank, passage: &Passage, position: u64, completion: Arc<Completion>) {
        match self.peers.get_mut(peer).and_then(|peer| peer.neighbour.as_mut()) {
            Some(neighbour) => neighbour.promise(position, completion),
            None => completion.settle(passage.outcome(position).unwrap_or(Err(Failure::Left))),
        }
        self.news += 1;
    }
}
