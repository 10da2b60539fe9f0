//! Node of the model: a real [`Connection`], its clock, and the layer above it.

use super::scenario::{FRAGMENT, Scenario, bytes};
use super::watcher::{Outcome, Watcher};
use crate::limits::{DATAGRAM_MIN, HEADER_LEN};
use crate::time::Time;
use crate::wind::Lane;
use crate::wind::congestion::{Controller, Gate, Sample};
use crate::wind::lanes::{PerLane, Sending};
use crate::wind::mtu::Mtu;
use crate::wind::send::outgoing::Sizes;
use crate::wind::{Connection, Introduction, Latency, Settings, Statistics, Token};
use crate::wire::{Frame, SealKind, View};
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::vec::Vec;

/// Window of either lane in bytes. A datagram with a message (or a fragment) has 84 to 141 bytes,
/// so two of them may be in flight.
pub const WINDOW: u64 = 142;
/// Size in which a message and an acknowledgement fit, and two messages do not.
pub const ROOM_FOR_ONE: usize = 141;
/// Size in which three messages and an acknowledgement fit.
pub const ROOM_FOR_ALL: usize = 300;
/// Distance of the timers of liveness, which is not part of the model. These timers do not run.
const FAR: Duration = Duration::from_secs(1_000_000);

/// Controller with a constant window.
#[derive(Debug)]
struct Fixed(u64);

impl Controller for Fixed {
    fn window(&self) -> u64 {
        self.0
    }
    fn acknowledged(&mut self, _: &Sample) {}
    fn lost(&mut self, _: Time, _: Time) {}
    fn spurious(&mut self, _: Time) {}
    fn stalled(&mut self, _: Time) {}
}

/// Returns a gate without a grant or a pace, so that only the window limits.
fn open_gate() -> Gate {
    Gate::new(1 << 30, 2)
}

/// Datagram in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datagram {
    pub to: usize,
    pub bulk: bool,
    pub number: u64,
    pub bytes: Arc<[u8]>,
}

pub struct Node {
    pub me: usize,
    pub connection: Connection,
    pub clock: Time,
    pub watcher: Watcher,
    /// Number of its messages that are posted.
    pub posted: usize,
    /// Numbers of the datagrams that it has accepted.
    taken: BTreeSet<(bool, u64)>,
}

impl Node {
    /// Creates two nodes that know each other and have nothing to send.
    pub fn pair(scenario: &Arc<Scenario>, room: usize) -> [Node; 2] {
        let settings = Settings {
            failure_time: FAR,
            keepalive: Some(FAR / 2),
            datagram_max: DATAGRAM_MIN as u16,
            ..Settings::default()
        };
        let mut nodes = [0, 1].map(|me| {
            let introduction = Introduction::here(me as u32, 2, 1, 7 + me as u64);
            let connection = Connection::new(settings, introduction, 1 - me as u32, 1, Time(0));
            Node {
                me,
                connection,
                clock: Time(0),
                watcher: Watcher::new(scenario, me),
                posted: 0,
                taken: BTreeSet::new(),
            }
        });
        nodes[0].connection.connect(Time(0));
        for _ in 0..100 {
            for n in 0..2 {
                while let Some(datagram) = nodes[n].send() {
                    nodes[1 - n].take(&datagram);
                }
                if !nodes[n].connection.is_established() && nodes[n].timer().is_some() {
                    nodes[n].tick();
                }
                while nodes[n].connection.poll_event().is_some() {}
            }
        }
        for node in &mut nodes {
            assert!(node.connection.is_established() && node.connection.is_idle());
            node.connection.mtu = Mtu::fixed(room);
            node.cut();
            for sending in node.connection.sending.both_mut() {
                (sending.controller, sending.gate) = (Box::new(Fixed(WINDOW)), open_gate());
            }
            node.taken.clear();
        }
        nodes
    }

    /// Fragments a long message at the model's size, whatever would fit.
    fn cut(&mut self) {
        let frames = self.connection.mtu.size() - HEADER_LEN - SealKind::EndToEnd.tag_len();
        self.connection.outbox.resize(Sizes { frames, fragment: FRAGMENT as usize });
    }

    /// Posts the next message of the scenario.
    pub fn post(&mut self, scenario: &Scenario) {
        let next = scenario.of(self.me).nth(self.posted);
        let number = next.map(|(id, spec)| self.connection.post(self.clock, spec.message(id)));
        self.watcher.check(
            number == Some(Ok(self.posted as u64)),
            "messages are numbered in order (WIND-2.2)",
        );
        self.posted += 1;
    }

    /// Cancels a message.
    pub fn cancel(&mut self, id: usize) {
        self.connection.cancel(Token(id as u64));
        self.watcher.outcomes[id] = Some(Outcome::Cancelled);
    }

    /// Returns one datagram, if one is due.
    pub fn send(&mut self) -> Option<Datagram> {
        let due = self.connection.has_due(self.clock);
        let open = PerLane::each(|lane| self.connection.sending[lane].has_room(self.clock));
        let mut out = Vec::new();
        let transmit = self.connection.transmit(self.clock, &mut out);
        self.watcher.check(due == transmit.is_some(), "has_due is exact");
        let transmit = transmit?;
        if let Some(segment) = transmit.payload {
            out.extend(bytes(segment.region as usize, segment.offset, segment.len));
        }
        let seal = if transmit.handshake { SealKind::Handshake } else { SealKind::EndToEnd };
        out.resize(out.len() + seal.tag_len(), 0);
        let says = |what: fn(&Frame<'_>) -> bool| {
            View::parse(&out)
                .is_ok_and(|view| view.frames().any(|frame| frame.is_ok_and(|frame| what(&frame))))
        };
        let content =
            says(|frame| matches!(frame, Frame::Message(_) | Frame::Open(_) | Frame::Fragment(_)));
        let kept = open[transmit.lane] || !content;
        self.watcher.check(
            kept,
            "nothing but acknowledgements and probes goes beyond the window (WIND-6.1)",
        );
        let number = View::parse(&out).map_or(0, |view| view.header().number);
        Some(Datagram {
            to: 1 - self.me,
            bulk: transmit.lane == Lane::Bulk,
            number,
            bytes: out.into(),
        })
    }

    /// Processes a datagram.
    pub fn take(&mut self, datagram: &Datagram) {
        let Ok(view) = View::parse(&datagram.bytes) else {
            return self.watcher.check(false, "what is sent is well-formed");
        };
        for frame in view.frames() {
            match frame {
                Ok(Frame::Message(message)) => self.watcher.arrives(message.number, 1),
                Ok(Frame::Open(open)) => self.watcher.opens(open.number),
                _ => {}
            }
        }
        for frame in view.frames() {
            if let Ok(Frame::Fragment(fragment)) = frame {
                let bits = (0..view.payload().len() as u64)
                    .step_by(FRAGMENT as usize)
                    .map(|at| (fragment.offset + at) / FRAGMENT);
                self.watcher.arrives(
                    u64::from(fragment.message_low),
                    bits.fold(0, |all, bit| all | 1 << bit),
                );
            }
        }
        let before = self.connection.statistics().datagrams_received;
        self.connection.receive_ahead(self.clock, &view, 0, &mut self.watcher);
        if self.connection.is_established() {
            // An acknowledgement restores the path's fragment size.
            self.cut();
        }
        if self.connection.statistics().datagrams_received > before {
            self.watcher.check(
                self.taken.insert((datagram.bulk, datagram.number)),
                "a datagram is taken in once (WIND-3.2)",
            );
        }
        self.watcher.nothing_waits_in_vain();
        self.watcher.check(
            self.connection.statistics().malformed == 0,
            "a sound peer says nothing malformed",
        );
    }

    /// Returns `true` if an acknowledgement is deferred (WIND-3.11). No node sleeps before it has
    /// processed it.
    pub fn owes_deferred_ack(&self) -> bool {
        self.connection.deferred_ack.is_some()
    }

    /// Processes the deferred acknowledgement.
    pub fn process(&mut self) {
        self.connection.process_deferred_ack();
        self.cut();
    }

    /// Returns when a timer wants to run, if one is armed.
    pub fn timer(&self) -> Option<Time> {
        self.connection.next_timeout().filter(|at| *at < self.clock + FAR / 4)
    }

    /// Lets the next timer run.
    pub fn tick(&mut self) {
        self.clock = self.timer().map_or(self.clock, |at| at.max(self.clock));
        self.connection.timeout(self.clock);
        if self.connection.is_established() {
            self.cut();
        }
    }
}

/// Clones the node without counters and without events, which are always read at once. The window
/// and the gate never change.
impl Clone for Node {
    fn clone(&self) -> Node {
        let Connection {
            settings,
            peer,
            phase,
            ends,
            handshake,
            outbox,
            sending,
            inbox,
            received,
            deferred_ack,
            refusals,
            liveness,
            ping,
            avoids_bulk_port,
            bulk_port_doubt,
            ack_path,
            reported_fallbacks,
            mtu,
            groups: _,
            events: _,
            statistics: _,
            round_trips: _,
            credit_ask,
            credit_interval,
        } = &self.connection;
        let connection = Connection {
            settings: *settings,
            peer: *peer,
            phase: *phase,
            ends: *ends,
            handshake: handshake.without_keys(),
            outbox: outbox.clone(),
            sending: PerLane::each(|lane| Sending {
                flight: sending[lane].flight.clone(),
                controller: Box::new(Fixed(sending[lane].controller.window())),
                gate: open_gate(),
                shared: 0,
                probes: sending[lane].probes,
                spray: None,
            }),
            inbox: inbox.clone(),
            received: received.clone(),
            deferred_ack: *deferred_ack,
            refusals: refusals.clone(),
            liveness: *liveness,
            ping: *ping,
            avoids_bulk_port: *avoids_bulk_port,
            bulk_port_doubt: *bulk_port_doubt,
            ack_path: *ack_path,
            reported_fallbacks: *reported_fallbacks,
            mtu: Mtu::fixed(mtu.size()),
            groups: None,
            events: VecDeque::new(),
            statistics: Statistics::default(),
            round_trips: Latency::default(),
            credit_ask: *credit_ask,
            credit_interval: *credit_interval,
        };
        Node {
            me: self.me,
            connection,
            clock: self.clock,
            watcher: self.watcher.clone(),
            posted: self.posted,
            taken: self.taken.clone(),
        }
    }
}

/// Hashes everything that the future depends on. The handshake is over, and liveness is far away.
impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Connection {
            phase,
            outbox,
            sending,
            inbox,
            received,
            deferred_ack,
            refusals,
            ping,
            credit_ask,
            credit_interval,
            ..
        } = &self.connection;
        (phase, outbox, inbox, received, deferred_ack, refusals, ping, credit_ask, credit_interval)
            .hash(state);
        sending.both().map(|sending| (&sending.flight, sending.probes)).hash(state);
        (self.clock, &self.watcher, self.posted, &self.taken).hash(state);
    }
}
