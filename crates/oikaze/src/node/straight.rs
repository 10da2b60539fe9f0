//! Messages between neighbours that no turn is run for.

use super::turnstile::Inside;
use super::{Node, RealEngine, Way};
use crate::engine::{Arrived, Passage};
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;

/// Looks at the rings between two idle turns, of all neighbours together: a turn looks at much else, and at the clock.
const GLANCES: usize = 32;
/// Looks for a message, at the rings of all neighbours together, before a thread becomes the driver to wait for it: about a microsecond.
const MOMENT: usize = 32;
/// Pauses between two of them. Each look takes the cache line of the next record from who is about to write it: one who sends many gets some records
/// ahead meanwhile, and waits for a line once for all of them.
const PAUSES: usize = 2;

impl Node {
    /// Send a message straight into a neighbour's ring: the position there that settles it. Not if the engine is taken, or if what was asked for
    /// before must go before.
    pub fn send_straight(&self, way: &Way, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        // While it watches, each settlement would wake it: a turn tells it that this thread comes often enough to look itself.
        if self.helper.is_asleep() {
            return None;
        }
        let mut engine = self.engine.try_enter_often()?;
        if engine.owes_a_look() {
            engine = self.look_around(engine)?;
        }
        // Elements of a shared array may have to be fetched by a turn, while this thread sleeps in the engine. They go the long way, copied before.
        let sent = if engine.pages().tracks(body).is_none() { engine.send_straight(way.peer(), class, tag, body) } else { None };
        drop(engine);
        self.after_leaving_to(sent.is_some().then_some(way.passage()));
        sent
    }

    /// A message that is there, or comes within a moment, for a thread that does not drive: to become the driver, and to cease to be it, takes
    /// as long as a small message and its answer.
    #[inline]
    pub fn take_soon(&self, from: Option<Rank>) -> Option<Arrived> {
        // From a node that shares no memory with this one nothing comes this way.
        let shares = from.is_none_or(|from| self.passages.of(from).is_some());
        let looks = if shares && self.spins_on_words() { MOMENT / self.passages.count().max(1) } else { 1 };
        self.take_within(looks.max(1), from)
    }

    /// A message that is there.
    pub fn take_if_there(&self, from: Option<Rank>) -> Option<Arrived> {
        self.take_within(1, from)
    }

    #[inline]
    fn take_within(&self, looks: usize, from: Option<Rank>) -> Option<Arrived> {
        for look in 0..looks {
            if look > 0 {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            if let Some(arrived) = self.take_mail(from) {
                return Some(arrived);
            }
            if self.passages.have_records() {
                // Who finds something without waiting for it finds more.
                return self.take_straight_at_once(from, look == 0).or_else(|| self.take_by_a_turn(from));
            }
        }
        None
    }

    /// As [`Node::take_straight`], for a thread that does not drive.
    #[inline]
    fn take_straight_at_once(&self, from: Option<Rank>, sends_many: bool) -> Option<Arrived> {
        if self.helper.is_asleep() { None } else { self.take_out(from, sends_many) }
    }

    /// A turn, for all that is not messages between neighbours.
    #[cold]
    fn look_around<'n>(&'n self, engine: Inside<'n, RealEngine>) -> Option<Inside<'n, RealEngine>> {
        let now = self.now();
        self.drive_meanwhile(now, || Some(self.run_turns_in(engine, now, RealEngine::turn_for_news)));
        self.engine.try_enter()
    }

    /// Something else is in the rings, or it is time for a turn.
    #[cold]
    fn take_by_a_turn(&self, from: Option<Rank>) -> Option<Arrived> {
        let now = self.now();
        // A whole one: who does not wait may not come again soon.
        self.drive_meanwhile(now, || self.run_turns(now, RealEngine::turn));
        self.take_mail(from)
    }

    /// A message that is in a neighbour's ring, and is the oldest for whoever asks.
    #[inline]
    pub fn take_straight(&self, from: Option<Rank>) -> Option<Arrived> {
        if self.passages.have_records() { self.take_out(from, false) } else { None }
    }

    #[inline]
    fn take_out(&self, from: Option<Rank>, sends_many: bool) -> Option<Arrived> {
        let mut engine = self.engine.try_enter_often()?;
        // Only who is in the engine puts messages there.
        let taken = if self.mailbox.len() == 0 { engine.take_straight(from, sends_many) } else { None };
        drop(engine);
        self.after_leaving_to(taken.as_ref().and_then(|arrived| self.passages.of(arrived.from)));
        taken
    }

    /// As [`Node::after_leaving`], having put something into a ring, or settled it.
    #[inline]
    fn after_leaving_to(&self, passage: Option<&Passage>) {
        if let Some(passage) = passage {
            passage.wake();
        }
        self.after_leaving();
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
}
