//! [`Connection`] to one peer: the type, its contract, and its accessors. Receiving is in
//! `receive`, sending in `transmit`, and timeouts are in `timers`.

use super::congestion::Gate;
use super::handshake::{Handshake, Heard};
use super::keys::Keys;
use super::lanes::{FlowMaker, PerLane, Sending};
use super::mtu::Mtu;
use crate::Rank;
use crate::limits::{
    DATAGRAM_MIN, FLOWS_MAX, POST_INLINE, POST_INLINE_ALONE, QUIET_MAX, SMALL_WINDOW_MAX,
};
use crate::planted::{Bug, planted};
use crate::random::mix;
use crate::seal::{KeyExchange, SessionSecrets};
use crate::time::Time;
use crate::wind::ack::deferred::DeferredAck;
use crate::wind::ack::received::ReceivedDatagrams;
use crate::wind::death::{Death, Nonsense};
use crate::wind::event::{Event, Fallback, PostError};
use crate::wind::handler::Handler;
use crate::wind::keepalive::Liveness;
use crate::wind::metrics::counters::Statistics;
use crate::wind::metrics::histogram::Latency;
use crate::wind::multicast::groups::Groups;
use crate::wind::recovery::pto::Probe;
use crate::wind::recovery::retransmit::BulkPortDoubt;
use crate::wind::recovery::rtt::RoundTrip;
use crate::wind::recv::queue::Inbox;
use crate::wind::recv::refusals::Refusals;
use crate::wind::send::message::{Message, Token};
use crate::wind::send::mode::AckPath;
use crate::wind::send::outgoing::Sizes;
use crate::wind::send::queue::Outbox;
use crate::wind::settings::{FlowCount, Settings};
use crate::wire::header::Lane;
use crate::wire::hello::Introduction;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Number of times a CLOSE is sent, because the peer does not acknowledge it.
pub(super) const CLOSE_SENDS: u8 = 3;
/// Datagram numbers that are left for CLOSE when a lane has used up its numbers.
pub(super) const NUMBERS_LEFT_FOR_CLOSE: u64 = 64;

/// Connection to one peer: the state machine of spec/wind.md for reliable messages. It has no
/// thread and no clock.
///
/// # Contract
///
/// In one turn the owner calls, in this order:
///
/// 1. [`receive`](Self::receive) for each datagram for this connection whose seal is correct. It
///    calls up through [`Handler`] and marks what is due, and never transmits.
/// 2. [`timeout`](Self::timeout) if the time of [`next_timeout`](Self::next_timeout) has come.
/// 3. [`post`](Self::post), [`consumed`](Self::consumed), [`cancel`](Self::cancel),
///    [`close`](Self::close) as wanted.
/// 4. [`transmit`](Self::transmit) while it returns a datagram (it does if
///    [`has_due`](Self::has_due)). The owner may stop earlier.
/// 5. [`poll_event`](Self::poll_event) until it is empty.
///
/// Any other order is correct too, but slower. Time never goes back.
pub struct Connection {
    pub(super) settings: Settings,
    pub(super) peer: Rank,
    pub(super) phase: Phase,
    /// When the wait for the last datagrams of a vanished peer ends, and how the peer ended.
    pub(super) ends: Option<(Time, Death)>,
    pub(super) handshake: Handshake,
    pub(super) outbox: Outbox,
    pub(super) sending: PerLane<Sending>,
    pub(super) inbox: Inbox,
    pub(super) received: PerLane<ReceivedDatagrams>,
    /// Acknowledgement that is to be processed before this turn ends.
    pub(super) deferred_ack: Option<DeferredAck>,
    pub(super) refusals: Refusals,
    pub(super) liveness: Liveness,
    /// Whether to ask the peer for a sign of life.
    pub(super) ping: PerLane<bool>,
    /// Whether bulk goes to the peer's first port, because nothing got through to its bulk port
    /// (WIND-8.9).
    pub(super) avoids_bulk_port: bool,
    pub(super) bulk_port_doubt: BulkPortDoubt,
    /// Tracks whether datagrams that carry only acknowledgements arrive.
    pub(super) ack_path: AckPath,
    /// Fallbacks that were reported to the owner, as a bit each.
    pub(super) reported_fallbacks: u8,
    pub(super) mtu: Mtu,
    /// Streams that this node follows, and those of its own that have the peer as a member.
    pub(super) groups: Option<Box<Groups>>,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: Statistics,
    pub(super) round_trips: Latency,
    pub(super) credit_ask: Time,
    pub(super) credit_interval: Duration,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Open,
    /// This node has closed the connection, and sends CLOSE `left` more times, next at `next`.
    Closing {
        left: u8,
        next: Time,
        death: Death,
    },
    Dead(Death),
}

impl Connection {
    /// Creates a connection to `peer`, which has `paths` candidate addresses (numbered from 0). The
    /// connection sends nothing before [`connect`](Self::connect) is called or the peer's HELLO
    /// arrives (WIND-1.1).
    #[must_use]
    pub fn new(
        settings: Settings,
        me: Introduction,
        peer: Rank,
        paths: u8,
        now: Time,
    ) -> Connection {
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
            ends: None,
            handshake: Handshake::new(me, peer, paths, now),
            outbox: Outbox::new(),
            sending: PerLane::each(|lane| Sending::new(&settings, lane)),
            inbox: Inbox::new(settings.held_max, settings.assembly_max, settings.credit),
            received: PerLane::each(|lane| ReceivedDatagrams::new(lane, settings.receive_buffer)),
            deferred_ack: None,
            refusals: Refusals::default(),
            liveness: Liveness::new(&settings, now),
            ping: PerLane::default(),
            avoids_bulk_port: false,
            bulk_port_doubt: BulkPortDoubt::default(),
            ack_path: AckPath::default(),
            reported_fallbacks: 0,
            mtu: Mtu::new(DATAGRAM_MIN),
            groups: None,
            events: VecDeque::new(),
            statistics: Statistics::default(),
            round_trips: Latency::default(),
            credit_ask: now,
            credit_interval: Probe::base(&RoundTrip::default(), true),
        }
    }

    /// Lets the handshake agree on keys, for a kind of seal that needs them (SEAL-2). Called before
    /// anything else. Without keys, such a connection is never established.
    #[must_use]
    pub fn with_key_exchange(mut self, exchange: Box<dyn KeyExchange>) -> Connection {
        self.handshake.keys = Some(Box::new(Keys::new(exchange, &self.handshake.me, self.peer)));
        self
    }

    /// Returns new secrets of the connection, once. Datagrams under [`Connection::id`] are sealed
    /// with them, and with no others.
    pub fn take_secrets(&mut self) -> Option<SessionSecrets> {
        self.handshake.keys.as_mut()?.secrets.take()
    }

    /// Starts the handshake. HELLOs go to every candidate path in rotation until the peer answers
    /// on one (WIND-1.4).
    pub fn connect(&mut self, now: Time) {
        if self.phase == Phase::Open {
            self.handshake.call(now);
        }
    }

    /// Returns the id by which the peer names this connection. The id changes when the peer
    /// restarts ([`Event::Restarted`]).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.handshake.me.connection
    }

    /// Returns the rank of the peer.
    #[must_use]
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Returns what the peer has announced about itself, once its HELLO was received.
    #[must_use]
    pub fn peer_introduction(&self) -> Option<&Introduction> {
        self.handshake.them.as_ref()
    }

    /// Returns the version of the wire format that both ends use (WIRE-6.4), once the peer's HELLO
    /// was received.
    #[must_use]
    pub fn version(&self) -> Option<u16> {
        let Handshake { me, them, .. } = &self.handshake;
        them.as_ref().and_then(|them| me.versions.common(them.versions))
    }

    /// Returns `true` if both ends know each other.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Open && self.handshake.is_established()
    }

    /// Returns the candidate path in use, once established.
    #[must_use]
    pub fn path(&self) -> Option<u8> {
        self.handshake.path.filter(|_| self.handshake.is_established())
    }

    /// Returns `true` if nothing waits to be sent, acknowledged or completed, in either direction.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let in_flight = self.sending.both().iter().any(|sending| !sending.flight.is_empty());
        let unreported = self.refusals.is_due()
            || self.received.both().iter().any(|arrivals| arrivals.has_news());
        self.outbox.is_empty()
            && self.inbox.is_empty()
            && !in_flight
            && !unreported
            && self.deferred_ack.is_none()
            && self.groups.as_ref().is_none_or(|groups| groups.is_idle())
    }

    /// Returns `true` if bytes wait to be sent for the first time.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.outbox.has_small() || self.outbox.has_bulk() || self.outbox.has_shared()
    }

    /// Queues a message and returns its number. The connection need not be established yet.
    ///
    /// # Errors
    /// [`PostError`]; the message is dropped.
    pub fn post(&mut self, now: Time, message: Message) -> Result<u64, PostError> {
        if let Some(death) = self.death() {
            return Err(PostError::Dead(death));
        }
        let number = self.outbox.post(now, message)?;
        self.statistics.messages_posted += 1;
        Ok(number)
    }

    /// Returns the cause of the connection's end, if it accepts no more messages.
    #[must_use]
    pub fn death(&self) -> Option<Death> {
        match self.phase {
            Phase::Dead(death) | Phase::Closing { death, .. } => Some(death),
            Phase::Open => None,
        }
    }

    /// Cuts the message that was just posted at page boundaries (WIND-2.5). Its body begins with a
    /// page, and a page within one datagram is cheaper to send, unless it is copied to be sealed.
    pub fn cut_between_pages(&mut self, number: u64) {
        if !self.settings.seal.is_keyed() {
            self.outbox.cut_between_pages(number);
        }
    }

    /// Returns `true` if a body of `len` bytes, behind a head of `head` bytes, is better copied now
    /// and sent whole than gathered later as fragments. Short bodies always are. A longer body is
    /// if it fits into a datagram and nothing else is under way, because a caller may be waiting
    /// for it alone.
    #[must_use]
    pub fn is_better_whole(&self, head: usize, len: u64) -> bool {
        len <= POST_INLINE
            || (len <= POST_INLINE_ALONE && self.outbox.holds(head, len) && self.is_quiet())
    }

    /// Returns `true` if nothing is queued and hardly anything is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        let in_flight: u64 =
            self.sending.both().map(|sending| sending.flight.in_flight()).iter().sum();
        in_flight <= QUIET_MAX && !self.outbox.has_small() && !self.outbox.has_bulk()
    }

    /// Returns `true` if [`post`](Self::post) would return [`PostError::Full`]. There is room again
    /// when the peer has acknowledged something.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.phase == Phase::Open && self.outbox.is_full()
    }

    /// Number of posted messages that are not settled (see
    /// [`MESSAGES_IN_FLIGHT`](crate::limits::MESSAGES_IN_FLIGHT)).
    #[must_use]
    pub fn open_messages(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the oldest event that was not polled yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the message after an [`Event::Returned`].
    pub fn take_returned(&mut self) -> Option<Message> {
        self.outbox.take_returned()
    }

    /// Returns `true` if [`poll_event`](Self::poll_event) would return an event.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Gives credit back to the peer for `messages` *credited* messages that were delivered and
    /// have now been read. Their bodies have `bytes` bytes together. The owner reports each such
    /// message once, unless it was refused.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        self.inbox.consumed(messages, bytes);
    }

    /// Forgets the source of the messages with this token, which is never gathered again. No event
    /// follows for the token. The peer learns that the message numbers are done; whether the peer
    /// already had the messages is unknown.
    pub fn cancel(&mut self, token: Token) {
        self.cancel_all(|other| other == token);
    }

    /// Like [`cancel`](Self::cancel), for all messages whose tokens satisfy `cancelled`.
    pub fn cancel_all(&mut self, cancelled: impl Fn(Token) -> bool) {
        if self.phase == Phase::Open {
            self.process_deferred_ack();
            self.outbox.cancel(cancelled);
            self.outbox.advance(&mut self.events);
        }
    }

    /// Sets how many bytes of each lane the peer may have in flight to this node (WIND-9.10). The
    /// next acknowledgement tells the peer. Without a call, the peer may use the whole receive
    /// buffer.
    pub fn grant(&mut self, bytes: u64) {
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.received.both_mut().into_iter().for_each(|arrivals| arrivals.share = share);
    }

    /// Notes that the latest datagram of this lane given to [`receive`](Self::receive) was new and
    /// came marked CE, because a queue on its way is filling (WIND-9.5).
    pub fn marked(&mut self, lane: Lane) {
        let arrivals = &mut self.received[lane];
        arrivals.marked = arrivals.marked.wrapping_add(1);
        self.statistics.marked_received += 1;
    }

    /// Returns `true` if the connection has ended, and neither sends nor reads anything any more
    /// but handshakes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Dead(_))
    }

    /// Closes the connection. Messages that are not settled fail, and [`Event::Dead`] follows at
    /// once. The next `transmit` sends CLOSE, and sends it twice more if the owner keeps the
    /// connection that long.
    pub fn close(&mut self, now: Time) {
        if self.phase != Phase::Open {
            return;
        }
        self.part(now, Death::Closed);
    }

    /// Ends the connection because the owner has found a statement of the peer impossible, and
    /// tells the peer why (WIND-7.9).
    pub fn give_up(&mut self, now: Time, nonsense: Nonsense) {
        if self.phase == Phase::Open {
            self.part(now, Death::Nonsense(nonsense));
        }
    }

    /// Ends the connection and tells the peer.
    pub(super) fn part(&mut self, now: Time, death: Death) {
        self.die(death);
        // A peer that this node has heard may know this node, and be established already.
        if self.handshake.path.is_some() {
            self.phase = Phase::Closing { left: CLOSE_SENDS, next: now, death };
        }
    }

    /// Reports a fallback to the owner, once (WIND-8.12).
    pub(super) fn fall_back(&mut self, fallback: Fallback) {
        let bit = fallback.bit();
        if self.reported_fallbacks & bit == 0 {
            self.reported_fallbacks |= bit;
            self.events.push_back(Event::Fallback(fallback));
        }
    }

    /// Ends the connection at once, as after the failure time (WIND-7.2). Called when the owner
    /// knows from elsewhere that the peer is gone.
    pub fn end(&mut self, death: Death) {
        if self.phase == Phase::Open {
            self.die(death);
        }
    }

    /// Like [`end`](Self::end), but at time `at`, for a peer whose handshake may still be running.
    /// The peer's last datagrams, perhaps with the reason why it left, may still be on their way.
    /// The connection waits for them whether or not both ends know each other by then.
    pub fn end_by(&mut self, at: Time, death: Death) {
        self.ends = Some((at, death));
    }

    /// Returns the counters of the connection.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Called when both ends know each other.
    pub(super) fn established(&mut self, now: Time) {
        let Some(them) = self.handshake.them else { return };
        let datagram_max =
            usize::from(self.settings.datagram_max.min(them.datagram_max)).max(DATAGRAM_MIN);
        self.mtu = Mtu::new(datagram_max);
        let buffer = u64::from(them.receive_buffer);
        let window = self.flow_maker().window_max;
        let nodes = self.handshake.me.nodes;
        for (sending, most) in
            self.sending.both_mut().into_iter().zip([window.min(SMALL_WINDOW_MAX), window])
        {
            sending.controller = self.settings.congestion.controller(datagram_max as u64, most);
            sending.gate = Gate::new(buffer, nodes);
        }
        let count = match self.settings.flows {
            FlowCount::Fixed(count) if them.bulk_port != 0 => count.min(FLOWS_MAX),
            FlowCount::Fixed(_) | FlowCount::Auto => 1,
        };
        self.sending.bulk.use_flows(count, self.flow_maker());
        self.liveness = Liveness::new(&self.settings, now);
        self.events.push_back(Event::Established);
        self.outbox.open(Sizes::within(datagram_max, self.settings.seal), them.credit);
    }

    /// Returns what makes flows of bulk.
    fn flow_maker(&self) -> FlowMaker {
        let buffer = self.handshake.them.map_or(0, |them| them.receive_buffer);
        FlowMaker {
            algorithm: self.settings.congestion,
            datagram: self.mtu.size() as u64,
            window_max: self.settings.window_max.min(buffer.into()),
        }
    }

    /// Lets flows of bulk go by different networks (WIND-14.8). Each list has candidate paths of
    /// one family, one for each network that both hosts are attached to. Flows use the list that
    /// has the path in use.
    pub fn use_networks(&mut self, networks: Vec<Vec<u8>>) {
        if self.settings.flows != FlowCount::Fixed(1) && !networks.is_empty() {
            let maker = self.flow_maker();
            self.sending.bulk.use_networks(networks, maker);
        }
    }

    /// Lets the number of flows of bulk follow what was acknowledged, if the user wants that
    /// (WIND-14.7).
    pub(super) fn weigh_flows(&mut self, now: Time, bytes: u64) {
        if self.settings.flows == FlowCount::Auto && self.bulk_port().is_some() {
            let (limited, maker) = (self.outbox.has_bulk(), self.flow_maker());
            self.sending.bulk.weigh_flows(now, bytes, limited, maker);
        }
        self.sending.bulk.forget_unused();
    }

    /// Acts on the effect of a handshake frame.
    pub(super) fn heard(&mut self, now: Time, heard: Heard, handler: &mut impl Handler) {
        match heard {
            Heard::Nothing => {}
            Heard::Stale => self.statistics.stale += 1,
            Heard::Established => self.established(now),
            Heard::Misfit(refusal) => {
                // An established peer cannot become unfit. An old or misdirected HELLO is only
                // answered.
                if !self.handshake.is_established() {
                    self.die(Death::Refused(refusal));
                }
            }
            Heard::Restarted { incarnation, was_established } => {
                self.statistics.restarts += 1;
                if was_established {
                    self.outbox.fail(Death::Restarted, &mut self.events);
                    handler.abandon(self.peer);
                }
                self.forget();
                self.events.push_back(Event::Restarted { incarnation });
            }
        }
    }

    /// Forgets all state about the peer's datagrams and messages.
    pub(super) fn forget(&mut self) {
        // Numbers that were skipped before must not tell which will be. 0 stays 0.
        self.settings.private_seed = mix(self.settings.private_seed);
        let networks = self.sending.bulk.take_networks();
        self.sending = PerLane::each(|lane| Sending::new(&self.settings, lane));
        self.use_networks(networks);
        self.inbox =
            Inbox::new(self.settings.held_max, self.settings.assembly_max, self.settings.credit);
        if !planted(Bug::KeepNumbersOfDead) {
            let share = self.received.small.share;
            self.received = PerLane::each(|lane| ReceivedDatagrams::new(lane, share));
            self.refusals = Refusals::default();
        }
        self.mtu = Mtu::new(DATAGRAM_MIN);
        (self.ends, self.groups) = (None, None);
        (self.ping, self.avoids_bulk_port) = (PerLane::default(), false);
        self.bulk_port_doubt = BulkPortDoubt::default();
        self.ack_path = AckPath::default();
        self.reported_fallbacks = 0;
    }

    pub(super) fn die(&mut self, death: Death) {
        self.process_deferred_ack();
        self.phase = Phase::Dead(death);
        self.outbox.fail(death, &mut self.events);
        self.events.push_back(Event::Dead(death));
        self.inbox = Inbox::new(0, 0, 0);
        self.groups = None;
        self.ping = PerLane::default();
    }
}
