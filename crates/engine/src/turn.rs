//! Turns of the engine: whole turns, and turns that end early for a thread that waits.

use crate::engine::{Engine, perform};
use crate::flow::events::{end_local_peers, settle};
use crate::flow::post::Outbound;
use crate::io::egress::Transmitter;
use crate::io::ingress::{Poll, Receiver};
use crate::regions;
use crate::work::{Pending, Work};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::time::Time;

/// Maximum number of submissions taken in one turn.
const SUBMISSIONS_PER_TURN: usize = 256;

impl<L: Link, P: Pages> Engine<L, P> {
    /// Runs one whole turn (WIND-10.4). A turn with new submissions does not poll if the latest
    /// poll is recent.
    pub fn turn(&mut self, now: Time) -> Work {
        let polls = self.ingress.must_poll(now, !self.submissions.is_empty());
        let received = if polls { self.receive(now) } else { 0 };
        self.finish_turn(now, received)
    }

    /// Runs a turn for a thread that waits. If something arrived and no other work is urgent, the
    /// turn ends there. The next turn acknowledges the arrivals and sets timers, most often
    /// together with the answer. The next turn is always a whole one (WIND-10.4).
    ///
    /// If nothing arrived, the turn polls again where data is most likely to arrive, as often as
    /// `again` returns the present time.
    pub fn turn_until_news(
        &mut self,
        mut now: Time,
        mut again: impl FnMut() -> Option<Time>,
    ) -> Work {
        if self.pending == Pending::RestOfTurn {
            return self.turn(now);
        }
        let received = self.receive(now);
        let mut work = self.end_with_news(now, received);
        while work.is_idle()
            && let Some(time) = again()
        {
            now = time;
            self.ingress.note_poll(now);
            let received = self.receive_from_link(now, L::receive_again);
            if received > 0 {
                work = self.end_with_news(now, received);
            }
        }
        work
    }

    /// Receives from the local peers and from the link. Returns the number of datagrams and
    /// records.
    fn receive(&mut self, now: Time) -> usize {
        self.ingress.note_poll(now);
        self.layers.unoffered = self.inbox.arrived.len();
        let received = self.shm.poll(now, &mut self.layers, &mut self.ops, &mut self.inbox);
        self.now = now;
        if self.shm.have_ended() {
            end_local_peers(&mut self.stages().0);
        }
        if self.shm.spares_link(now) {
            return received;
        }
        received + self.receive_from_link(now, L::receive_into)
    }

    /// Receives one bounded burst from the link. Returns the number of datagrams.
    fn receive_from_link(&mut self, now: Time, poll: Poll<L>) -> usize {
        let Self { link, layers, peers, ingress, egress, seals, counters, groups, .. } = self;
        let quota = &mut egress.quota;
        let senders = (peers, groups);
        Receiver::new(ingress, senders, layers, quota, seals, counters, now).receive(link, poll)
    }

    /// Ends a turn with its news, unless work is urgent.
    fn end_with_news(&mut self, now: Time, received: usize) -> Work {
        self.now = now;
        if received > 0 {
            let (mut out, _, inbox) = self.stages();
            settle(&mut out, inbox);
        }
        // Looking at streams comes first, because it may leave members something to send.
        let is_stream_due = self.groups.own.have_due(now, &mut self.peers);
        if is_stream_due || self.is_pressed(now) {
            return self.finish_turn(now, received);
        }
        if received > 0 {
            // The next turn may be long in coming.
            self.shm.wake_peers_that_need_it();
            self.pending = Pending::RestOfTurn;
        }
        Work {
            received,
            settled: self.take_news(),
            requests: self.take_requests(),
            ..Work::default()
        }
    }

    /// Runs the stages of a turn that follow ingress.
    fn finish_turn(&mut self, now: Time, received: usize) -> Work {
        self.counters.turns += 1;
        self.now = now;
        self.shm.clear_due();
        let Self { link, layers, peers, shm, ops, loopback, .. } = self;
        let Self { ingress, egress, inbox, seals, submissions, counters, groups, .. } = self;
        let mut out = Outbound { link, peers, shm, loopback, layers, ops, groups, seals, now };
        settle(&mut out, inbox);
        out.peers.timers(now);
        out.layers.timers(now);
        out.close_useless_streams();
        out.post_retries();
        for _ in 0..SUBMISSIONS_PER_TURN {
            let Some(submission) = submissions.pop() else { break };
            perform(submission, &mut out, egress, inbox);
        }
        ingress.forget_submissions();
        let owed = out.post_replies();
        let deferred = out.layers.rma.answers();
        let (link, peers, memory) = (&mut *out.link, &mut *out.peers, &out.layers.memory);
        let groups = &mut *out.groups;
        let mut transmitter =
            Transmitter { egress, link, peers, groups, memory, seals, counters, now };
        transmitter.demand_cookies(&mut ingress.cookies);
        let (sent, cut) = transmitter.send_due();
        let smaller = transmitter.apply_refused_sizes();
        out.peers.set_due(false);
        out.groups.show(now);
        regions::end_broken(&mut out, egress, inbox);
        let asked = out.shm.send(now, out.layers, out.ops, inbox);
        if out.shm.have_ended() {
            end_local_peers(&mut out);
        }
        while let Some(region) = out.shm.take_torn() {
            regions::shut(&region, &mut out, egress, inbox);
        }
        let late = out.peers.process_deferred_ack(now);
        // The next turn posts the messages that these events set free, such as a barrier's arrival
        // after its diffs.
        let begun = settle(&mut out, inbox);
        while let Some(slot) = out.layers.coherence.poll_unused_region() {
            regions::remove(slot, &mut out, egress);
        }
        out.peers.settle(now);
        inbox.trim_buffer_pool(now, &out.layers.buffer_pool);
        let unposted = self.layers.rma.answers() > deferred
            || self.layers.coherence.owes()
            || self.loopback.is_due();
        // A link without room says itself when to try again, if it can.
        let stopped = self.egress.is_stopped() && self.link.next_wakeup().is_none();
        let due = self.peers.is_due() || self.shm.is_due();
        let more = owed
            || late
            || asked
            || begun
            || unposted
            || cut
            || smaller
            || stopped
            || due
            || !self.submissions.is_empty();
        self.pending = if more { Pending::More } else { Pending::Nothing };
        Work { received, sent, settled: self.take_news(), requests: self.take_requests(), more }
    }

    fn take_requests(&mut self) -> usize {
        std::mem::take(&mut self.layers.requests)
    }

    fn take_news(&mut self) -> usize {
        self.take_settled() + self.inbox.ahead.take()
    }

    /// Returns the number of events settled since the last call, so that their waiters are woken.
    pub fn take_settled(&mut self) -> usize {
        let unplaced = std::mem::take(&mut self.layers.unplaced);
        self.inbox.take_news() + self.ops.in_flight.take_settled() + unplaced
    }

    /// Returns `true` if there is work now for which peers or other threads wait, or whose time has
    /// come.
    fn is_pressed(&self, now: Time) -> bool {
        self.pending != Pending::Nothing
            || self.peers.is_due()
            || self.shm.is_due()
            || self.egress.is_stopped()
            || self.loopback.is_due()
            || self.ops.retry.next().is_some_and(|due| due <= now)
            || self.layers.has_messages()
            || !self.submissions.is_empty()
            || self.peers.is_any_pressed(now)
    }

    /// Returns `true` if there is something to do at once. A thread must check this before it
    /// sleeps.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.pending != Pending::Nothing
            || self.peers.is_due()
            || self.shm.is_due()
            || self.inbox.ahead.count() > 0
    }

    /// Returns the latest time for the next turn, if nothing arrives and nothing is submitted.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if self.pending == Pending::RestOfTurn {
            return Some(self.now);
        }
        let peers = [self.peers.next_timeout(), self.shm.next_timeout()];
        let own = [self.layers.next_timeout(), self.ops.retry.next(), self.groups.next_timeout()];
        own.into_iter().chain(peers).flatten().min()
    }

    /// Returns `true` if every live peer has acknowledged all data and no loopback data is left to
    /// move.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pending != Pending::RestOfTurn
            && self.ops.retry.is_empty()
            && self.peers.are_settled()
            && self.shm.are_settled()
            && !self.loopback.is_due()
    }

    /// Returns `true` if bytes for a live peer wait to be sent for the first time, as of the last
    /// whole turn.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.peers.have_unsent()
    }

    /// Returns `true` if anything is left to send or a deadline has come.
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.pending == Pending::RestOfTurn || self.egress.is_stopped() || self.peers.have_due(now)
    }

    /// Returns `true` if, after [`Request::Close`](crate::Request::Close), every peer has been told
    /// as often as it takes.
    #[must_use]
    pub fn has_closed_all(&self, now: Time) -> bool {
        !self.has_due(now) && self.next_timeout().is_none()
    }

    /// Returns a peer that has work and that the next turn would skip. Used by audits: any such
    /// peer is a bug of the engine.
    #[must_use]
    pub fn missed_peer(&self, now: Time) -> Option<Rank> {
        if self.pending == Pending::RestOfTurn { None } else { self.peers.missed_peer(now) }
    }
}
