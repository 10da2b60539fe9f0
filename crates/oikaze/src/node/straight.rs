//! Messages between neighbours that no turn is run for.

use super::Node;
use crate::engine::{Arrived, Passage, Passages};
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;

/// Looks at the rings between two idle turns, of all neighbours together: a turn looks at much else, and at the clock.
const GLANCES: usize = 32;

impl Node {
    /// Send a message straight into a neighbour's ring: the position there that settles it. Not if the engine is taken, or if what was asked for
    /// before must go before.
    #[inline]
    pub fn send_straight(&self, to: Rank, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        let passage = self.passages.of(to)?;
        // While it watches, each settlement would wake it: a turn tells it that this thread comes often enough to look itself.
        if self.helper.is_asleep() {
            return None;
        }
        let mut engine = self.engine.try_enter()?;
        let sent = engine.send_straight(to, class, tag, body);
        drop(engine);
        self.after_leaving_to(sent.is_some().then_some(passage));
        sent
    }

    /// As [`Node::take_straight`], for a thread that does not drive (or not yet).
    #[inline]
    pub fn take_straight_at_once(&self, from: Option<Rank>) -> Option<Arrived> {
        if self.helper.is_asleep() { None } else { self.take_straight(from) }
    }

    /// A message that is in a neighbour's ring, and is the oldest for whoever asks.
    #[inline]
    pub fn take_straight(&self, from: Option<Rank>) -> Option<Arrived> {
        if !self.passages.have_records() {
            return None;
        }
        let mut engine = self.engine.try_enter()?;
        // Only who is in the engine puts messages there.
        let taken = if self.mailbox.len() == 0 { engine.take_straight(from) } else { None };
        drop(engine);
        self.after_leaving_to(taken.as_ref().and_then(|arrived| self.passages.of(arrived.from)));
        taken
    }

    /// As [`Node::after_leaving`], having put something into a ring, or settled it.
    #[inline]
    fn after_leaving_to(&self, passage: Option<&Passage>) {
        // A sequentially consistent fence; also between what was written into the ring and the look whether the neighbour sleeps.
        let is_asked = self.engine.is_asked();
        if let Some(passage) = passage {
            passage.wake_after_fence();
        }
        if is_asked {
            self.try_turn(self.now());
        }
    }

    /// Look at the rings again and again for a short while, until `ready` has something or a turn has something to take.
    pub(super) fn glance<T>(&self, ready: &mut impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..GLANCES.checked_div(self.passages.count()).unwrap_or(0) {
            if let Some(value) = ready() {
                return Some(value);
            }
            if self.passages.have_records() {
                return None;
            }
        }
        std::hint::spin_loop();
        None
    }

    /// The rings to neighbours.
    pub fn passages(&self) -> &Passages {
        &self.passages
    }
}
