//! Messages on the fast path: sent into the rings of local peers, and taken out of them.

use super::parts::Node;
use super::parts::access::Access;
use super::parts::engine::RealEngine;
use super::parts::fast_path::FastPath;
use super::shm_route::ShmRoute;
use crate::node::driver::limits::{SPIN_PAUSES, SPIN_POLLS_BETWEEN_TURNS, STREAM_BATCH_MIN};
use crate::node::driver::lock::CombiningLockGuard;
use oikaze_engine::{Arrived, ShmChannel};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::wind::Class;

impl FastPath {
    /// Sends a message directly into a local peer's ring. Returns the position there that settles
    /// the message. Returns `None` if the engine is taken, or if earlier requests must go first.
    pub fn send_fast(
        &self,
        node: &Node,
        route: &ShmRoute,
        class: Class,
        tag: u64,
        body: &[u8],
    ) -> Option<u64> {
        // While the helper watches, each settlement would wake it. A turn tells the helper that
        // this thread polls often enough by itself.
        if self.bars_fast_sends(node) {
            return None;
        }
        let mut engine = node.engine.try_enter_often()?;
        if engine.shm().is_poll_due() {
            engine = self.poll_all_peers(node, engine)?;
        }
        // A turn may have to fetch elements of a shared array, while this thread sleeps in the
        // engine. Such a message is copied first and sent by a turn.
        let start = body.as_ptr().addr();
        let sent = if engine.pages().tracks(&(start..start + body.len())).is_none() {
            engine.send_fast(route.peer(), class, tag, body)
        } else {
            None
        };
        drop(engine);
        self.after_leaving_to(node, sent.is_some().then_some(route.channel()));
        sent
    }

    /// Sends a parcel directly into a local peer's ring. Returns `false` if the engine is taken, or
    /// if earlier requests must go first.
    pub fn send_parcel_fast(&self, node: &Node, to: Rank, head: &ParcelHead, body: &[u8]) -> bool {
        let Some(channel) = self.channels.of(to) else { return false };
        if self.bars_fast_sends(node) {
            return false;
        }
        let Some(mut engine) = node.engine.try_enter_often() else { return false };
        let is_sent = engine.send_parcel_fast(to, head, body);
        drop(engine);
        self.after_leaving_to(node, is_sent.then_some(channel));
        is_sent
    }

    /// Returns `true` if messages of the calling thread go through a turn.
    #[inline]
    fn bars_fast_sends(&self, node: &Node) -> bool {
        node.threads.driver.helper.is_watching()
            || node.engine.masks_entries()
            || !node.access().runs_turns()
    }

    /// Takes a message that is there, or comes within about a microsecond, for a thread that does
    /// not drive. Becoming the driver and leaving that role takes as long as a small message and
    /// its answer.
    #[inline]
    pub fn take_soon(&self, node: &Node, from: Option<Rank>) -> Option<Arrived> {
        // A node that shares no memory with this one sends no messages this way.
        let shares = from.is_none_or(|from| self.channels.of(from).is_some());
        self.take_within(
            node,
            if shares && node.spins_on_words() { self.pace.looks } else { 1 },
            from,
        )
    }

    /// Takes a message if there is one.
    #[inline]
    pub fn take_if_there(&self, node: &Node, from: Option<Rank>) -> Option<Arrived> {
        self.take_within(node, 1, from)
    }

    #[inline]
    fn take_within(&self, node: &Node, looks: usize, from: Option<Rank>) -> Option<Arrived> {
        let access = node.access();
        if access == Access::Refused {
            return None;
        }
        let soon = self.pace.soon();
        for look in 0..looks {
            if look > 0 {
                let pauses = if look == 1 { soon.max(SPIN_PAUSES) } else { SPIN_PAUSES };
                (0..pauses).for_each(|_| std::hint::spin_loop());
            }
            if let Some(arrived) = node.mail.take(node, from) {
                return Some(arrived);
            }
            if self.channels.have_records() && access.runs_turns() {
                self.pace.found_after(look);
                // A thread that finds a message without waiting finds more.
                return match self.make_ready_at_once(
                    node,
                    from,
                    look == 0 || soon >= STREAM_BATCH_MIN,
                ) {
                    Some(ready) => ready.hand_out(),
                    None => self.take_by_a_turn(node, from),
                };
            }
        }
        self.pace.found_nothing();
        None
    }

    /// Prepares a message as [`FastPath::make_ready`] does, for a thread that does not drive.
    #[inline]
    fn make_ready_at_once<'n>(
        &self,
        node: &'n Node,
        from: Option<Rank>,
        sends_many: bool,
    ) -> Option<Ready<'n>> {
        if node.threads.driver.helper.is_watching() || node.engine.masks_entries() {
            None
        } else {
            self.make_ready(node, from, sends_many)
        }
    }

    /// Runs a turn for all work but messages between local peers.
    #[cold]
    fn poll_all_peers<'n>(
        &self,
        node: &'n Node,
        engine: CombiningLockGuard<'n, RealEngine>,
    ) -> Option<CombiningLockGuard<'n, RealEngine>> {
        let now = node.now();
        node.drive_meanwhile(now, || {
            Some(node.run_turns_in(engine, now, |engine, now| engine.turn_until_news(now, || None)))
        });
        node.engine.try_enter()
    }

    /// Runs a turn, because the rings hold something else, or because a turn is due.
    #[cold]
    fn take_by_a_turn(&self, node: &Node, from: Option<Rank>) -> Option<Arrived> {
        self.run_whole_turn(node);
        node.mail.take(node, from)
    }

    /// Runs a whole turn, because a caller that does not wait may not come again soon.
    fn run_whole_turn(&self, node: &Node) {
        let now = node.now();
        node.drive_meanwhile(now, || node.run_turns(now, RealEngine::turn));
    }

    /// Describes the next message if there is one. A turn first takes it out of a ring.
    pub fn probe_if_there(&self, node: &Node, from: Option<Rank>) -> Option<(Rank, u64, u64)> {
        node.enter()?;
        node.mail.probe(from).or_else(|| {
            if self.channels.have_records() && node.access().runs_turns() {
                self.run_whole_turn(node);
            }
            node.mail.probe(from)
        })
    }

    /// Takes a message from a local peer's ring that is the oldest for this caller.
    #[inline]
    pub fn take_fast(&self, node: &Node, from: Option<Rank>) -> Option<Arrived> {
        if !self.channels.have_records()
            || node.engine.masks_entries()
            || !node.access().runs_turns()
        {
            return None;
        }
        self.make_ready(node, from, false)?.hand_out()
    }

    #[inline]
    fn make_ready<'n>(
        &self,
        node: &'n Node,
        from: Option<Rank>,
        sends_many: bool,
    ) -> Option<Ready<'n>> {
        let mut engine = node.engine.try_enter_often()?;
        // Only the thread in the engine puts messages there. A posted receive gets its message from
        // a turn (MEM-26.2).
        let ready = if node.mail.mailbox.len() == 0 && !node.mail.mailbox.has_posted() {
            engine.make_ready(from, sends_many)
        } else {
            None
        };
        let Some((peer, is_notified)) = ready else {
            drop(engine);
            node.after_leaving();
            return None;
        };
        Some(Ready { node, engine, notified_peer: is_notified.then_some(peer) })
    }

    /// Finishes as [`Node::after_leaving`] does, after a write to a ring or a settlement in it.
    #[inline]
    fn after_leaving_to(&self, node: &Node, channel: Option<&ShmChannel>) {
        if let Some(channel) = channel {
            channel.wake();
        }
        node.after_leaving();
    }

    /// Polls the rings for a short while, until `ready` returns a value or a turn has something to
    /// take.
    pub(super) fn view<T>(&self, node: &Node, ready: &mut impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..SPIN_POLLS_BETWEEN_TURNS.checked_div(self.channels.count()).unwrap_or(0) {
            if let Some(value) = ready() {
                return Some(value);
            }
            if self.channels.have_records() || node.has_callers() {
                return None;
            }
        }
        std::hint::spin_loop();
        None
    }
}

/// A message that is the oldest for its caller, and the engine that has it.
struct Ready<'n> {
    node: &'n Node,
    engine: CombiningLockGuard<'n, RealEngine>,
    /// Rank of the peer whose ring got news, and which may sleep.
    notified_peer: Option<Rank>,
}

impl Ready<'_> {
    #[inline]
    fn hand_out(mut self) -> Option<Arrived> {
        let arrived = self.engine.inbox().take_arrived();
        drop(self.engine);
        let fast = &self.node.fast;
        fast.after_leaving_to(
            self.node,
            self.notified_peer.and_then(|peer| fast.channels.of(peer)),
        );
        arrived
    }
}
