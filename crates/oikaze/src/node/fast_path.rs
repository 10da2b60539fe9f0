//! Sending and receiving messages of local peers by the fast path, without a turn.

use super::combining_lock::CombiningLockGuard;
use super::{Node, RealEngine, Way};
use crate::engine::{Arrived, ShmChannel};
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks at the rings between two idle turns, of all local peers together: a turn looks at much
/// else, and at the clock.
const BUSY_POLLS: usize = 32;
/// Looks for a message, at the rings of all local peers together, before a thread becomes the
/// driver to wait for it: about a microsecond.
const MOMENT: usize = 32;
/// Pauses between two of them. Each look takes the cache line of the next record from who is about
/// to write it.
const PAUSES: usize = 2;
/// A message that is found by so many looks has come soon. An answer to what the reader itself has
/// said takes more of them, so that no exchange of messages is a stream.
const SOON: usize = 2;
/// Maximum number of pauses for which the reader of a stream backs off. While streaming, the reader
/// waits for one pause per message that came soon in a row. The writer gets some records ahead
/// meanwhile, and the reader then fetches each of their cache lines once. The pauses add at most
/// half of the time that the stream has taken so far.
const LONGEST: usize = 128;
/// From so many in a row on it takes several together.
const STREAM: usize = 16;

/// How messages come.
#[derive(Debug)]
pub(super) struct Pace {
    /// Looks of one thread before it becomes the driver.
    looks: usize,
    /// Messages in a row that came soon. Threads may overwrite each other's counts: it is a hint.
    soon: AtomicUsize,
}

impl Pace {
    /// From so many local peers.
    pub fn new(local_peers: usize) -> Pace {
        Pace { looks: (MOMENT / local_peers.max(1)).max(1), soon: AtomicUsize::new(0) }
    }

    /// Messages in a row that came soon.
    #[inline]
    fn soon(&self) -> usize {
        self.soon.load(Ordering::Relaxed)
    }

    /// A message was found, after so many looks in vain.
    #[inline]
    fn found_after(&self, looks: usize) {
        if looks >= SOON {
            return self.found_nothing();
        }
        let soon = self.soon();
        if soon < LONGEST {
            self.soon.store(soon + 1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn found_nothing(&self) {
        self.soon.store(0, Ordering::Relaxed);
    }
}

impl Node {
    /// Send a message directly into a local peer's ring: the position there that settles it. Not if
    /// the engine is taken, or if what was asked for before must go before.
    pub fn send_fast(&self, way: &Way, class: Class, tag: u64, body: &[u8]) -> Option<u64> {
        // While it watches, each settlement would wake it: a turn tells it that this thread comes
        // often enough to look itself.
        if self.helper.is_asleep() || self.is_forked() || self.engine.holds_handlers_off() {
            return None;
        }
        let mut engine = self.engine.try_enter_often()?;
        if engine.owes_a_look() {
            engine = self.look_around(engine)?;
        }
        // Elements of a shared array may have to be fetched by a turn, while this thread sleeps in
        // the engine. They go the long way, copied before.
        let start = body.as_ptr().addr();
        let sent = if engine.pages().tracks(&(start..start + body.len())).is_none() {
            engine.send_fast(way.peer(), class, tag, body)
        } else {
            None
        };
        drop(engine);
        self.after_leaving_to(sent.is_some().then_some(way.channel()));
        sent
    }

    /// A message that is there, or comes within a moment, for a thread that does not drive: to
    /// become the driver, and to cease to be it, takes as long as a small message and its answer.
    #[inline]
    pub fn take_soon(&self, from: Option<Rank>) -> Option<Arrived> {
        // From a node that shares no memory with this one nothing comes this way.
        let shares = from.is_none_or(|from| self.channels.of(from).is_some());
        self.take_within(if shares && self.spins_on_words() { self.pace.looks } else { 1 }, from)
    }

    /// A message that is there.
    pub fn take_if_there(&self, from: Option<Rank>) -> Option<Arrived> {
        self.take_within(1, from)
    }

    #[inline]
    fn take_within(&self, looks: usize, from: Option<Rank>) -> Option<Arrived> {
        if self.is_forked() {
            return None;
        }
        let soon = self.pace.soon();
        for look in 0..looks {
            if look > 0 {
                let pauses = if look == 1 { soon.max(PAUSES) } else { PAUSES };
                (0..pauses).for_each(|_| std::hint::spin_loop());
            }
            if let Some(arrived) = self.take_mail(from) {
                return Some(arrived);
            }
            if self.channels.have_records() {
                self.pace.found_after(look);
                // Who finds something without waiting for it finds more.
                return match self.make_ready_at_once(from, look == 0 || soon >= STREAM) {
                    Some(ready) => ready.hand_out(),
                    None => self.take_by_a_turn(from),
                };
            }
        }
        self.pace.found_nothing();
        None
    }

    /// As [`Node::make_ready`], for a thread that does not drive.
    #[inline]
    fn make_ready_at_once(&self, from: Option<Rank>, sends_many: bool) -> Option<Ready<'_>> {
        if self.helper.is_asleep() || self.engine.holds_handlers_off() {
            None
        } else {
            self.make_ready(from, sends_many)
        }
    }

    /// A turn, for all that is not messages between local peers.
    #[cold]
    fn look_around<'n>(
        &'n self,
        engine: CombiningLockGuard<'n, RealEngine>,
    ) -> Option<CombiningLockGuard<'n, RealEngine>> {
        let now = self.now();
        self.drive_meanwhile(now, || {
            Some(self.run_turns_in(engine, now, RealEngine::turn_for_news))
        });
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

    /// A message that is in a local peer's ring, and is the oldest for whoever asks.
    #[inline]
    pub fn take_fast(&self, from: Option<Rank>) -> Option<Arrived> {
        if !self.channels.have_records() || self.engine.holds_handlers_off() {
            return None;
        }
        self.make_ready(from, false)?.hand_out()
    }

    #[inline]
    fn make_ready(&self, from: Option<Rank>, sends_many: bool) -> Option<Ready<'_>> {
        let mut engine = self.engine.try_enter_often()?;
        // Only who is in the engine puts messages there.
        let ready =
            if self.mailbox.len() == 0 { engine.make_ready(from, sends_many) } else { None };
        let Some((peer, is_told)) = ready else {
            drop(engine);
            self.after_leaving();
            return None;
        };
        Some(Ready { node: self, engine, told: is_told.then_some(peer) })
    }

    /// As [`Node::after_leaving`], having put something into a ring, or settled it.
    #[inline]
    fn after_leaving_to(&self, channel: Option<&ShmChannel>) {
        if let Some(channel) = channel {
            channel.wake();
        }
        self.after_leaving();
    }

    /// Look at the rings again and again for a short while, until `ready` has something or a turn
    /// has something to take.
    pub(super) fn view<T>(&self, ready: &mut impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..BUSY_POLLS.checked_div(self.channels.count()).unwrap_or(0) {
            if let Some(value) = ready() {
                return Some(value);
            }
            if self.channels.have_records() {
                return None;
            }
        }
        std::hint::spin_loop();
        None
    }
}

/// A message that is the oldest for whoever asked, and the engine that has it.
struct Ready<'n> {
    node: &'n Node,
    engine: CombiningLockGuard<'n, RealEngine>,
    /// Rank of the peer that was told something, and may sleep.
    told: Option<Rank>,
}

impl Ready<'_> {
    #[inline]
    fn hand_out(mut self) -> Option<Arrived> {
        let arrived = self.engine.hand_out();
        drop(self.engine);
        self.node.after_leaving_to(self.told.and_then(|peer| self.node.channels.of(peer)));
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_soon_again_and_again_is_a_stream_and_an_exchange_is_none() {
        let pace = Pace::new(1);
        (0..1000).for_each(|_| pace.found_after(SOON));
        assert_eq!(pace.soon(), 0, "each was an answer");
        for n in 0..2 * LONGEST {
            assert_eq!(pace.soon(), n.min(LONGEST));
            pace.found_after(n % SOON);
        }
        pace.found_nothing();
        assert_eq!(pace.soon(), 0);
    }

    #[test]
    fn a_thread_looks_as_long_at_many_local_peers_as_at_one_but_at_least_once() {
        assert_eq!(
            [0, 1, 4, 1000].map(|local_peers| Pace::new(local_peers).looks),
            [MOMENT, MOMENT, MOMENT / 4, 1]
        );
    }
}
