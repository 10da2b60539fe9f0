//! Timeouts of a connection: when the next one is, and what is due then.

use super::connection::{Connection, Phase};
use super::lanes::Sending;
use crate::limits::{PROBE_MAX, SETTLED_DELAY};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::received::ReceivedDatagrams;
use crate::wind::death::{Death, Stuck};
use crate::wind::event::Event;
use crate::wind::keepalive::Pulse;
use crate::wind::recovery::pto::Probe;
use crate::wire::header::Lane;

impl Connection {
    /// Returns the latest time at which the owner has to call [`timeout`](Self::timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Dead(_) => return None,
            Phase::Closing { next, .. } => return Some(next),
            Phase::Open => {}
        }
        let ends = self.ends.map(|(at, _)| at);
        if !self.handshake.is_established() {
            let gives_up = self
                .handshake
                .is_calling()
                .then(|| self.handshake.began() + self.settings.connect_time);
            return [gives_up, ends, self.handshake.next_timeout()].into_iter().flatten().min();
        }
        let mut first = self.liveness.next_timeout();
        let mut consider = |at: Option<Time>| first = at.map_or(first, |at| first.min(at));
        consider(ends);
        consider(self.received.small.deadline());
        consider(self.received.bulk.deadline());
        consider(self.sending.small.next_timeout());
        consider(self.sending.bulk.next_timeout());
        if self.outbox.has_bulk() {
            consider(self.sending.bulk.pace_time());
        }
        for sending in self.sending.both() {
            consider(sending.flight.progress.since().map(|since| self.liveness.stuck_at(since)));
        }
        if self.sending.both().iter().any(|sending| !sending.flight.is_empty()) {
            consider(self.mtu.raise_time());
        }
        if self.outbox.is_blocked() {
            consider(Some(self.credit_ask));
        }
        if let Some(groups) = &self.groups {
            consider(groups.next_timeout());
        }
        consider(self.outbox.tell_settled_time());
        Some(first)
    }

    /// Marks what has become due. Calling it early is harmless.
    pub fn timeout(&mut self, now: Time) {
        self.process_deferred_ack();
        self.liveness.note_running(now);
        self.sending.both_mut().into_iter().for_each(|sending| sending.set_now(now));
        if self.phase != Phase::Open {
            return;
        }
        if let Some((_, death)) = self.ends.filter(|(at, _)| *at <= now) {
            return self.die(death);
        }
        if !self.handshake.is_established() {
            if self.handshake.is_calling()
                && now - self.handshake.began() >= self.settings.connect_time
            {
                self.die(Death::Unreachable);
            }
            return;
        }
        match self.liveness.check(now) {
            Pulse::Dead => return self.die(Death::Silent),
            Pulse::Ask => self.ask(),
            Pulse::PeerSilent => {
                self.ask();
                self.events.push_back(Event::PeerSilent);
            }
            Pulse::Fine => {}
        }
        if let Some(stuck) = Lane::BOTH.into_iter().find_map(|lane| self.stuck(now, lane)) {
            return self.part(now, Death::NoProgress(stuck));
        }
        for lane in Lane::BOTH {
            if self.sending[lane].flight.loss_time().is_some_and(|at| at <= now) {
                self.detect_lost(now, lane);
            }
            if self.sending[lane].flight.probe_time().is_some_and(|at| at <= now) {
                self.probe(now, lane);
            }
            if self.sending[lane].flight.follow_time().is_some_and(|at| at <= now) {
                self.sending[lane].flight.followed();
                self.ping[lane] = true;
            }
            self.note_empty_queue(now, lane);
        }
        if self.groups.is_some() {
            self.group_timeout(now);
        }
        self.tell_settled(now);
        self.ask_for_credit(now);
    }

    /// Asks for a small datagram that tells the peer which messages are settled, if none has told
    /// it in time (WIND-12.14).
    fn tell_settled(&mut self, now: Time) {
        if self.outbox.tell_settled_time().is_some_and(|at| at <= now) {
            let round_trip = Probe::base(self.sending.small.flight.rtt(), true);
            self.outbox.tell_settled_again(now + round_trip.max(SETTLED_DELAY));
            self.ping.small |= !planted(Bug::TellSettledByChance);
        }
    }

    /// Returns details if the peer has acknowledged nothing that is outstanding in this lane for so
    /// long that it is given up (WIND-7.6).
    fn stuck(&mut self, now: Time, lane: Lane) -> Option<Stuck> {
        self.note_empty_queue(now, lane);
        let flight = &self.sending[lane].flight;
        let since =
            flight.progress.since().filter(|since| self.liveness.stuck_at(*since) <= now)?;
        let (messages, oldest) = (self.outbox.queues().unsettled, self.outbox.oldest());
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Stuck {
            datagrams: small(flight.datagrams()),
            messages: small(messages),
            oldest: oldest.map(|(class, _)| class),
            oldest_len: oldest.map_or(0, |(_, len)| len),
            lasted_ms: u32::try_from((now - since).as_millis()).unwrap_or(u32::MAX),
            bulk: lane == Lane::Bulk,
        })
    }

    /// Tells the lane's progress tracker if nothing is queued. Lost content may have left this
    /// lane's queue without being sent again.
    pub(super) fn note_empty_queue(&mut self, now: Time, lane: Lane) {
        let queued =
            if lane == Lane::Bulk { self.outbox.has_bulk() } else { self.outbox.has_small() };
        if !queued {
            let Sending { flight, probes, .. } = &mut self.sending[lane];
            let waits = !flight.is_empty() || *probes > 0 || self.ping[lane];
            flight.progress.nothing_queued(now, waits);
        }
    }

    /// Asks a silent peer for a sign of life (WIND-7.1). It asks even if an answer is expected
    /// anyway, because that answer may have been lost.
    fn ask(&mut self) {
        self.ping.small = !planted(Bug::ForgetKeepalive);
        self.shrink_if_idle();
    }

    /// Gives memory back if the connection is idle. Called after a silence, on the side that asks
    /// and on the side that answers.
    pub(super) fn shrink_if_idle(&mut self) {
        if self.is_idle() {
            self.outbox.shrink();
            self.inbox.shrink();
            self.received.both_mut().into_iter().for_each(ReceivedDatagrams::shrink);
            self.sending.both_mut().into_iter().for_each(Sending::shrink);
            self.groups.iter_mut().for_each(|groups| groups.shrink());
            self.events.shrink_to(8);
        }
    }

    /// Asks the peer for credit. The ACK that granted it may have been lost, and nobody would send
    /// that ACK again (WIND-6.4).
    fn ask_for_credit(&mut self, now: Time) {
        if !self.outbox.is_blocked() {
            self.credit_interval = Probe::base(self.sending.small.flight.rtt(), true);
        } else if self.credit_ask <= now {
            self.ping.small |= self.sending.small.flight.is_empty();
            self.credit_ask = now + self.credit_interval;
            self.credit_interval = (self.credit_interval * 2).min(PROBE_MAX);
        }
    }
}
