//! The way in: from a verified datagram up. Nothing here emits.

use super::arrivals::Wants;
use super::congestion::Sample;
use super::connection::{Connection, FAREWELLS, Phase};
use super::flight::{Acked, Item};
use super::inbox::{Above, Taken};
use super::{Death, Upper};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wire::{Acknowledgement, Flags, Fragment, Frame, Open, View};

/// What one datagram amounts to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    elicits: bool,
    /// There is a message in it, or part of one.
    message: bool,
    /// Something in it could not be taken in: it may not be acknowledged (WIND-3.4).
    dropped: bool,
    close: bool,
    /// So many refusals were waiting when its messages were taken in.
    refusals_before: usize,
}

impl Sum {
    fn wants(self, ack_now: bool) -> Wants {
        match (self.elicits, ack_now) {
            (false, _) => Wants::Nothing,
            (true, false) => Wants::Acknowledgement,
            (true, true) if self.message => Wants::Answer,
            (true, true) => Wants::AtOnce,
        }
    }
}

impl Connection {
    /// A datagram for this connection arrived on `path` (the number of the peer's candidate address that it came from); its seal
    /// was verified. Never transmits.
    pub fn receive(&mut self, now: Time, view: &View<'_>, path: u8, upper: &mut impl Upper) {
        self.liveness.look(now);
        // A datagram is taken as a whole or not at all: no frame is acted on before all have been read (WIRE-2.6).
        if view.frames().any(|frame| frame.is_err()) {
            self.statistics.malformed += 1;
        } else if view.is_handshake() {
            self.receive_handshake(now, view, path, upper);
        } else if view.header().connection != self.id() || view.header().seal != self.settings.seal {
            self.statistics.stale += 1;
        } else {
            self.receive_data(now, view, path, upper);
        }
    }

    fn receive_handshake(&mut self, now: Time, view: &View<'_>, path: u8, upper: &mut impl Upper) {
        self.statistics.handshakes_received += 1;
        if !matches!(self.phase, Phase::Open | Phase::Dead(Death::Refused(_))) {
            self.statistics.stale += 1;
            return;
        }
        for frame in view.frames().flatten() {
            let heard = match frame {
                Frame::Hello(hello) if hello.mine.rank == self.peer => self.handshake.hello(now, &hello, path),
                Frame::Refuse(refuse) => self.handshake.refused(&refuse),
                _ => super::handshake::Heard::Stale,
            };
            if self.phase == Phase::Open {
                self.heard(now, heard, upper);
            }
        }
        if self.is_established() {
            self.liveness.heard(now);
        }
    }

    fn receive_data(&mut self, now: Time, view: &View<'_>, path: u8, upper: &mut impl Upper) {
        let number = view.header().number;
        match self.phase {
            Phase::Open => {}
            Phase::Closing { left, .. } => {
                // WIND-7.3: who says goodbye too need not hear ours, but for not having to repeat its own. Everybody else has not heard
                // it: say it again.
                let parting = view.frames().flatten().any(|frame| matches!(frame, Frame::Close));
                self.phase = match parting {
                    true if left < FAREWELLS => Phase::Dead(Death::Closed),
                    true => Phase::Closing { left: 1, next: now },
                    false => Phase::Closing { left: left.max(1), next: now },
                };
                return;
            }
            Phase::Dead(_) => return,
        }
        // WIND-1.3: who names our id knows us.
        if self.handshake.proven(path) {
            self.established(now);
        }
        if !self.handshake.is_established() || number == 0 {
            self.statistics.stale += 1;
            return;
        }
        if !self.arrivals.is_new(number) {
            self.statistics.duplicate_datagrams += 1;
            return;
        }
        self.liveness.heard(now);
        let sum = self.take_frames(now, view, upper);
        self.arrivals.withhold(number, sum.refusals_before);
        if !sum.dropped || planted(Bug::AcknowledgeDropped) {
            self.statistics.datagrams_received += 1;
            self.statistics.bytes_received += (view.covered().len() + view.payload().len() + view.tag().len()) as u64;
            self.arrivals.record(number, now, sum.wants(view.header().flags.has(Flags::ACK_NOW)));
        } else if sum.elicits {
            // A sender of which nothing can be taken in must still hear that we live (WIND-7.5).
            self.arrivals.remind();
        }
        if sum.close {
            self.die(Death::Closed);
        }
    }

    /// Acknowledgements first: they may make room for what follows.
    fn take_frames(&mut self, now: Time, view: &View<'_>, upper: &mut impl Upper) -> Sum {
        let mut sum = Sum::default();
        let mut fragment = None;
        let number = view.header().number;
        for frame in view.frames().flatten() {
            sum.elicits |= frame.elicits();
            sum.message |= frame.elicits() && !matches!(frame, Frame::Ping);
            match frame {
                Frame::Acknowledge(ack) if !self.acknowledged(now, number, &ack) => {
                    self.statistics.malformed += 1;
                    sum.dropped = true;
                }
                Frame::Close => sum.close = true,
                Frame::Fragment(bulk) => fragment = Some(bulk),
                _ => {}
            }
        }
        sum.refusals_before = self.arrivals.refusals.len();
        if self.arrivals.is_withholding() && sum.elicits {
            self.statistics.over_limit += 1;
            sum.dropped = true;
            return sum;
        }
        let Connection { inbox, arrivals, statistics, peer, .. } = self;
        let mut above =
            Above { upper, from: *peer, refusals: &mut arrivals.refusals, delivered: &mut statistics.messages_delivered };
        let mut worst = [0u64; 4];
        let mut note = |taken: Taken| {
            let [duplicate, no_room, unknown, wrong] = &mut worst;
            match taken {
                Taken::New => {}
                Taken::Duplicate => *duplicate += 1,
                Taken::NoRoom => *no_room += 1,
                Taken::Unknown => *unknown += 1,
                Taken::Wrong => *wrong += 1,
            }
        };
        for frame in view.frames().flatten() {
            match frame {
                Frame::Message(message) => note(inbox.message(&message, &mut above)),
                Frame::Withdraw(withdrawal) => note(inbox.withdraw(withdrawal, &mut above)),
                Frame::Open(open) => {
                    let whole = fragment.take_if(|bulk| is_whole(bulk, &open, view.payload()));
                    let whole = whole.map(|bulk| (bulk, view.payload()));
                    note(inbox.open(&open, whole, &mut above));
                }
                _ => {}
            }
        }
        if let Some(fragment) = fragment {
            note(inbox.fragment(fragment, view.payload(), &mut above));
        }
        let [duplicate, no_room, unknown, wrong] = worst;
        statistics.duplicate_messages += duplicate;
        statistics.over_limit += no_room;
        statistics.unknown_fragments += unknown;
        statistics.malformed += wrong;
        sum.dropped |= no_room + unknown + wrong > 0;
        sum
    }

    /// An ACK frame came in this datagram; `false` if it cannot be from a correct peer.
    fn acknowledged(&mut self, now: Time, number: u64, ack: &Acknowledgement<'_>) -> bool {
        let Connection { flight, outbox, arrivals, events, controller, gate, mtu, statistics, round_trips, .. } = self;
        statistics.acknowledgements_received += 1;
        outbox.look(now);
        let limited = flight.in_flight() * 2 >= controller.window();
        // WIND-4.6: before what is acknowledged with them.
        for refused in ack.refusals() {
            statistics.refusals_received += 1;
            outbox.refused(refused.number, refused.refusal, events);
        }
        let acked = flight.acknowledge(now, ack, |item| match item {
            Item::Message(number) => outbox.acked_small(number, false, events),
            Item::Withdrawal(number) => outbox.acked_small(number, true, events),
            Item::Open(number) => outbox.acked_open(number),
            Item::Fragment { message, offset, len } => {
                outbox.acked_fragment(message, offset..offset + u64::from(len), events);
            }
            Item::Told { largest, refusals } => arrivals.confirm(largest, refusals),
            Item::SizeProbe => mtu.probe_acked(now),
        });
        let Some(acked) = acked else { return false };
        if let Some(round_trip) = acked.round_trip {
            round_trips.record(round_trip);
        }
        if acked.bytes > 0 {
            let Acked { bytes, datagrams, latest, round_trip, .. } = acked;
            let sample = Sample { now, bytes, sent: latest, delay: round_trip, datagrams, marked: 0, limited };
            statistics.marked_sent += gate.acknowledged(&mut **controller, sample, ack.told.marked, flight.rtt.smoothed());
        }
        if acked.bytes + acked.spurious > 0 {
            self.due.probes = 0;
        }
        statistics.spurious_losses += acked.spurious;
        if arrivals.acknowledgement_came(number) && acked.probed_in_vain {
            flight.probe.was_in_vain();
        }
        if acked.undo {
            statistics.windows_restored += 1;
            controller.spurious(now);
        }
        gate.granted(now, ack.told.share);
        outbox.grant(ack.told.credit);
        outbox.advance(events);
        self.detect_lost(now);
        self.weigh_sizes(now);
        true
    }
}

/// Is the whole body of this message in this datagram?
fn is_whole(fragment: &Fragment, open: &Open<'_>, payload: &[u8]) -> bool {
    fragment.message_low == open.number as u32 && fragment.offset == 0 && payload.len() as u64 == open.len
}
