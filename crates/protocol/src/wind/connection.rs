//! One peer: the type, its contract, and what its owner may ask of it. The way in is in `receive`, the way out in `transmit`.

use super::arrivals::Arrivals;
use super::congestion::{Controller, Gate};
use super::flight::{Cause, Flight, Item};
use super::handshake::{Handshake, Heard};
use super::inbox::Inbox;
use super::liveness::{Liveness, Pulse};
use super::mtu::Mtu;
use super::outbox::Outbox;
use super::outgoing::Sizes;
use super::pto::{Probe, Silence};
use super::rtt::RoundTrip;
use super::{Death, Event, Introduction, Latency, Message, PostError, Settings, Statistics, Token, Upper};
use crate::Rank;
use crate::limits::{DATAGRAM_MIN, PROBE_MAX};
use crate::planted::{Bug, planted};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

/// CLOSE is said so often, for nobody acknowledges it.
pub(super) const FAREWELLS: u8 = 3;

/// One peer, reliably: the state machine of spec/wind.md. It does nothing by itself and knows no clock.
///
/// # Contract
///
/// In one turn the owner calls, in this order:
///
/// 1. [`receive`](Self::receive) for each datagram for this connection whose seal is right. It calls up through [`Upper`] and
///    marks what is due; it never emits.
/// 2. [`timeout`](Self::timeout) if [`next_timeout`](Self::next_timeout) has come.
/// 3. [`post`](Self::post), [`consumed`](Self::consumed), [`cancel`](Self::cancel), [`close`](Self::close) as wanted.
/// 4. [`transmit`](Self::transmit) while it yields something (it does when [`has_due`](Self::has_due)); stopping early is fine.
/// 5. [`poll_event`](Self::poll_event) until it is empty.
///
/// Any other order is sound too; it only costs time. Time never goes back.
pub struct Connection {
    pub(super) settings: Settings,
    pub(super) peer: Rank,
    pub(super) phase: Phase,
    pub(super) handshake: Handshake,
    pub(super) outbox: Outbox,
    pub(super) flight: Flight,
    pub(super) controller: Box<dyn Controller>,
    pub(super) gate: Gate,
    pub(super) inbox: Inbox,
    pub(super) arrivals: Arrivals,
    pub(super) liveness: Liveness,
    pub(super) due: Due,
    pub(super) mtu: Mtu,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: Statistics,
    pub(super) round_trips: Latency,
    pub(super) credit_ask: Time,
    pub(super) credit_interval: Duration,
}

/// From open to ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Open,
    /// We have said goodbye and say it again, so often, from then on.
    Closing {
        left: u8,
        next: Time,
    },
    Dead(Death),
}

/// Small things to be sent that are not messages.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Due {
    pub ping: bool,
    /// Datagrams that may go although the window is full, and must go although there is nothing to say.
    pub probes: u8,
    /// Bulk datagrams that may go before the small queue has its turn.
    pub bulk_turn: u32,
}

impl Connection {
    /// A connection to `peer`, which has `paths` candidate addresses (numbered from 0). Nothing is sent before
    /// [`connect`](Self::connect) or before the peer calls (WIND-1.1).
    #[must_use]
    pub fn new(settings: Settings, me: Introduction, peer: Rank, paths: u8, now: Time) -> Connection {
        let me = Introduction {
            datagram_max: settings.datagram_max,
            receive_buffer: settings.receive_buffer,
            credit: settings.credit,
            seal: settings.seal as u8,
            ..me
        };
        Connection {
            settings,
            peer,
            phase: Phase::Open,
            handshake: Handshake::new(me, peer, paths, now),
            outbox: Outbox::new(),
            flight: Flight::new(settings.failure_time),
            controller: settings.congestion.controller(DATAGRAM_MIN as u64, DATAGRAM_MIN as u64),
            gate: Gate::default(),
            inbox: Inbox::new(settings.held_max, settings.assembly_max, settings.credit),
            arrivals: Arrivals::new(settings.receive_buffer),
            liveness: Liveness::new(&settings, now),
            due: Due::default(),
            mtu: Mtu::new(DATAGRAM_MIN),
            events: VecDeque::new(),
            statistics: Statistics::default(),
            round_trips: Latency::default(),
            credit_ask: now,
            credit_interval: Probe::base(&RoundTrip::default(), true),
        }
    }

    /// Start calling the peer: HELLOs go to every candidate path in rotation until one answers (WIND-1.4).
    pub fn connect(&mut self, now: Time) {
        if self.phase == Phase::Open {
            self.handshake.call(now);
        }
    }

    /// The id by which the peer names this connection. Changes when the peer restarts ([`Event::Restarted`]).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.handshake.me.connection
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// What the peer has said of itself, once it was heard.
    #[must_use]
    pub fn peer_introduction(&self) -> Option<&Introduction> {
        self.handshake.them.as_ref()
    }

    /// Do both ends know each other?
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Open && self.handshake.is_established()
    }

    /// The candidate path in use, once established.
    #[must_use]
    pub fn path(&self) -> Option<u8> {
        self.handshake.path
    }

    /// Is nothing waiting to be sent, acknowledged or completed, in either direction?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbox.is_empty() && self.inbox.is_empty() && self.flight.is_empty() && !self.arrivals.has_news()
    }

    /// Queue a message, at any time, also before establishment. Its number.
    ///
    /// # Errors
    /// [`PostError`]; the message is dropped.
    pub fn post(&mut self, now: Time, message: Message) -> Result<u64, PostError> {
        match self.phase {
            Phase::Dead(death) => return Err(PostError::Dead(death)),
            Phase::Closing { .. } => return Err(PostError::Dead(Death::Closed)),
            Phase::Open => {}
        }
        let number = self.outbox.post(now, message, &mut self.events)?;
        self.statistics.messages_posted += 1;
        Ok(number)
    }

    /// Would [`post`](Self::post) answer [`PostError::Full`]? There is room again when the peer has acknowledged something.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.phase == Phase::Open && self.outbox.is_full()
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Would [`poll_event`](Self::poll_event) yield something?
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// So many *credited* messages delivered earlier have been read, with bodies of so many bytes together: their credit goes back to the
    /// peer. Once for each such message that was delivered and not refused.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.inbox.consumed(messages, bytes);
    }

    /// Forget the source of the messages with this token: it is never gathered again. No event follows for it. The peer learns
    /// that their numbers are done; whether it had them already is not known.
    pub fn cancel(&mut self, token: Token) {
        if token != Token::NONE && self.phase == Phase::Open {
            self.outbox.cancel(token);
            self.outbox.advance(&mut self.events);
        }
    }

    /// The peer may have so many bytes in flight to us (WIND-9.10); it is told with the next acknowledgement. An owner that never
    /// says lets it have the whole receive buffer.
    pub fn grant(&mut self, bytes: u64) {
        self.arrivals.share = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// The datagram that [`receive`](Self::receive) is given next came marked CE: some queue on its way is filling (WIND-9.5).
    pub fn marked(&mut self) {
        self.arrivals.marked = self.arrivals.marked.wrapping_add(1);
        self.statistics.marked_received += 1;
    }

    /// Say goodbye. Messages not settled fail; [`Event::Dead`] follows at once, the CLOSE at the next `transmit`, and again
    /// twice if the connection is kept for that long.
    pub fn close(&mut self, now: Time) {
        if self.phase != Phase::Open {
            return;
        }
        self.die(Death::Closed);
        if self.handshake.is_established() {
            self.phase = Phase::Closing { left: FAREWELLS, next: now };
        }
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// When [`timeout`](Self::timeout) wants to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Dead(_) => return None,
            Phase::Closing { next, .. } => return Some(next),
            Phase::Open => {}
        }
        if !self.handshake.is_established() {
            let gives_up = self.handshake.is_calling().then(|| self.handshake.began() + self.settings.connect_time);
            return [gives_up, self.handshake.next_timeout()].into_iter().flatten().min();
        }
        let credit = self.outbox.is_blocked().then_some(self.credit_ask);
        let timers = [
            self.arrivals.deadline(),
            self.flight.loss_time(),
            self.flight.probe_time(),
            self.pace_time(),
            credit,
            Some(self.liveness.next_timeout()),
        ];
        timers.into_iter().flatten().min()
    }

    /// When the pace lets the next fragment go, if nothing else is in its way.
    fn pace_time(&self) -> Option<Time> {
        let opens = self.gate.opens()?;
        (self.outbox.has_bulk() && self.flight.in_flight() < self.controller.window()).then_some(opens)
    }

    /// Mark what has become due. Calling it early is harmless.
    pub fn timeout(&mut self, now: Time) {
        self.liveness.look(now);
        self.gate.look(now);
        if self.phase != Phase::Open {
            return;
        }
        if !self.handshake.is_established() {
            if self.handshake.is_calling() && now - self.handshake.began() >= self.settings.connect_time {
                self.die(Death::Unreachable);
            }
            return;
        }
        match self.liveness.check(now) {
            Pulse::Dead => return self.die(Death::Silent),
            Pulse::Ask => self.ask(),
            Pulse::Fine => {}
        }
        if self.flight.loss_time().is_some_and(|at| at <= now) {
            self.detect_lost(now);
        }
        if self.flight.probe_time().is_some_and(|at| at <= now) {
            self.probe(now);
        }
        self.ask_for_credit(now);
    }

    /// The peer was silent: ask it (WIND-7.1), also if an answer is expected anyway, for that may have been lost. A good moment to give
    /// memory back.
    fn ask(&mut self) {
        self.due.ping = !planted(Bug::ForgetKeepalive);
        if self.is_idle() {
            self.outbox.shrink();
            self.inbox.shrink();
            self.flight.shrink();
            self.events.shrink_to(8);
        }
    }

    /// WIND-5.4: ask, or send the oldest again, whatever the window says.
    fn probe(&mut self, now: Time) {
        let Connection { flight, outbox, arrivals, mtu, statistics, .. } = self;
        statistics.probe_timeouts += 1;
        let silence = flight.ran_out(now, |cause, items| lost(outbox, arrivals, mtu, statistics, cause, items));
        let first = match silence {
            // A PING is small: it gets through a path that has become narrow, too.
            Silence::Ask => return self.due.ping = true,
            Silence::Tail { first } => first,
            Silence::Lost { first } => {
                if first {
                    self.controller.stalled(now);
                }
                false
            }
        };
        statistics.tail_probes += u64::from(matches!(silence, Silence::Tail { .. }));
        mtu.timed_out();
        outbox.resize(Sizes::within(mtu.size(), self.settings.seal));
        outbox.begin_with_lowest();
        // The first asks a peer that is slow, most likely; after that two, for one of them is as likely lost as what they repeat.
        self.due.probes = if first { 1 } else { 2 };
        self.due.bulk_turn = 0;
    }

    /// WIND-6.4: an ACK that granted credit may have been lost, and nobody would send it again.
    fn ask_for_credit(&mut self, now: Time) {
        if !self.outbox.is_blocked() {
            self.credit_interval = Probe::base(&self.flight.rtt, true);
        } else if self.credit_ask <= now {
            self.due.ping |= self.flight.is_empty();
            self.credit_ask = now + self.credit_interval;
            self.credit_interval = (self.credit_interval * 2).min(PROBE_MAX);
        }
    }

    pub(super) fn detect_lost(&mut self, now: Time) {
        let Connection { flight, outbox, arrivals, mtu, statistics, .. } = self;
        let latest = flight.detect_lost(now, |cause, items| lost(outbox, arrivals, mtu, statistics, cause, items));
        if let Some(sent) = latest {
            self.controller.lost(sent, now);
        }
    }

    /// Both ends know each other now.
    pub(super) fn established(&mut self, now: Time) {
        let Some(them) = self.handshake.them else { return };
        let datagram_max = usize::from(self.settings.datagram_max.min(them.datagram_max)).max(DATAGRAM_MIN);
        self.mtu = Mtu::new(datagram_max);
        let window = self.settings.window_max.min(u64::from(them.receive_buffer));
        self.controller = self.settings.congestion.controller(datagram_max as u64, window);
        self.gate = Gate::new(u64::from(them.receive_buffer), self.handshake.me.nodes);
        self.liveness = Liveness::new(&self.settings, now);
        self.events.push_back(Event::Established);
        self.outbox.open(Sizes::within(datagram_max, self.settings.seal), them.credit, &mut self.events);
    }

    /// What a handshake frame has brought about.
    pub(super) fn heard(&mut self, now: Time, heard: Heard, upper: &mut impl Upper) {
        match heard {
            Heard::Nothing => {}
            Heard::Stale => self.statistics.stale += 1,
            Heard::Established => self.established(now),
            Heard::Misfit(refusal) => {
                // An established peer cannot have become unfit; an old or misled HELLO is only answered.
                if !self.handshake.is_established() {
                    self.die(Death::Refused(refusal));
                }
            }
            Heard::Restarted { incarnation, was_established } => {
                self.statistics.restarts += 1;
                if was_established {
                    self.outbox.fail(Death::Restarted, &mut self.events);
                    upper.abandon(self.peer);
                }
                self.forget();
                self.events.push_back(Event::Restarted { incarnation });
            }
        }
    }

    /// All that was known of the peer's datagrams and messages.
    fn forget(&mut self) {
        self.flight = Flight::new(self.settings.failure_time);
        self.inbox = Inbox::new(self.settings.held_max, self.settings.assembly_max, self.settings.credit);
        if !planted(Bug::KeepNumbersOfDead) {
            self.arrivals = Arrivals::new(self.arrivals.share);
        }
        self.mtu = Mtu::new(DATAGRAM_MIN);
        self.due = Due::default();
    }

    pub(super) fn die(&mut self, death: Death) {
        self.phase = Phase::Dead(death);
        self.outbox.fail(death, &mut self.events);
        self.events.push_back(Event::Dead(death));
        self.inbox = Inbox::new(0, 0, 0);
        self.due = Due::default();
    }
}

/// A datagram was lost: what it carried is to be sent again (WIND-5.5).
pub(super) fn lost(
    outbox: &mut Outbox,
    arrivals: &mut Arrivals,
    mtu: &mut Mtu,
    statistics: &mut Statistics,
    cause: Cause,
    items: &mut dyn Iterator<Item = Item>,
) {
    let mut items = items.peekable();
    if items.next_if_eq(&Item::SizeProbe).is_some() {
        statistics.size_probes_lost += 1;
        return mtu.probe_lost(cause != Cause::Probe);
    }
    *match cause {
        Cause::Reordering => &mut statistics.lost_by_reordering,
        Cause::Time => &mut statistics.lost_by_time,
        Cause::Probe => &mut statistics.lost_by_probe,
        Cause::Size => &mut statistics.lost_by_size,
    } += 1;
    if planted(Bug::ForgetRetransmission) || (planted(Bug::ForgetProbed) && cause == Cause::Probe) {
        return;
    }
    for item in items {
        match item {
            Item::Message(number) | Item::Open(number) | Item::Withdrawal(number) => outbox.lost_small(number),
            Item::Fragment { message, offset, len } => {
                let len = u64::from(len) - u64::from(planted(Bug::RepeatTooLittle));
                outbox.lost_fragment(message, offset..offset + len);
            }
            Item::Told { .. } => arrivals.tell_again(),
            Item::SizeProbe => {}
        }
    }
}
