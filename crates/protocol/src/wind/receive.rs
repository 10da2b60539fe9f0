//! Receiving: processes a verified datagram and calls the layer above. Nothing here transmits.

use super::connection::{CLOSE_SENDS, Connection, Phase};
use super::handshake::Heard;
use crate::limits::{ACKS_A_DATAGRAM, DATAGRAM_NUMBER_MAX, FAREWELL_PAUSE_MIN, REFUSALS_MAX};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::received::Wants;
use crate::wind::death::{Death, Nonsense};
use crate::wind::event::Event;
use crate::wind::handler::Handler;
use crate::wind::handler::UpcallTarget;
use crate::wind::recovery::in_flight::{Acked, Flight, Item};
use crate::wind::recv::queue::FrameOutcome;
use crate::wind::send::queue::Outbox;
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::frame::{CloseReason, Fragment, Frame, Open};
use crate::wire::group::{Carrier, GroupAcknowledgement};
use crate::wire::header::{Flags, Lane};
use crate::wire::hello::CookieReply;
use crate::wire::view::{Frames, Malformed, View};
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;
use core::ops::Range;

/// Contents of a datagram, parsed before any of them is processed: a datagram is accepted as a
/// whole or not at all (WIRE-2.6).
#[derive(Debug, Default)]
struct Contents<'a> {
    elicits: bool,
    /// Whether there is a PING.
    pings: bool,
    /// Frames from the first one on that is a message or part of one, if there is one.
    messages: Option<Frames<'a>>,
    close: Option<CloseReason>,
    acknowledgements: ArrayVec<Acknowledgement<'a>, ACKS_A_DATAGRAM>,
    group_acknowledgement: Option<GroupAcknowledgement<'a>>,
    fragment: Option<Fragment>,
    /// Number below which the peer has settled all messages.
    settled: Option<u64>,
}

impl<'a> Contents<'a> {
    /// Parses all frames. The result stays in place, because a return value would be moved whole,
    /// however little it contains.
    fn see(&mut self, view: &View<'a>) -> Result<(), Malformed> {
        let mut frames = view.frames();
        let mut from_here = frames.clone();
        while let Some(frame) = frames.next() {
            if self.note(&frame?)? && self.messages.is_none() {
                self.messages = Some(from_here);
            }
            from_here = frames.clone();
        }
        Ok(())
    }

    /// Notes a frame. Returns `true` if it is a message or part of one.
    fn note(&mut self, frame: &Frame<'a>) -> Result<bool, Malformed> {
        self.elicits |= frame.elicits();
        match frame {
            Frame::Acknowledge(ack) => {
                self.acknowledgements.try_push(*ack).map_err(|_| Malformed::Frame)?
            }
            Frame::GroupAcknowledge(group) => {
                let before = self.group_acknowledgement.replace(*group);
                before.map_or(Ok(()), |_| Err(Malformed::Frame))?
            }
            Frame::Ping => self.pings = true,
            Frame::Close(reason) => self.close = Some(*reason),
            Frame::Fragment(bulk) => self.fragment = Some(*bulk),
            Frame::Settled(number) => self.settled = Some(*number),
            // WIRE-4.12: a connection's own datagrams have one addressee.
            Frame::Group(_) => return Err(Malformed::Frame),
            _ => {}
        }
        Ok(frame.elicits() && !matches!(frame, Frame::Ping))
    }

    fn wants(&self, ack_now: bool) -> Wants {
        if self.elicits { Wants::of(self.messages.is_some(), ack_now) } else { Wants::Nothing }
    }
}

/// Result of processing a datagram.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Whether something in it could not be accepted, so that it may not be acknowledged
    /// (WIND-3.4).
    dropped: bool,
    /// Whether it contains something that no correct peer sends.
    wrong: bool,
    /// Number of refusals that were waiting before its messages were processed.
    refusals_before: usize,
}

impl Connection {
    /// Processes a datagram for this connection, whose seal was verified. `path` is the number of
    /// the peer's candidate address that it came from. Never transmits.
    pub fn receive(&mut self, now: Time, view: &View<'_>, path: u8, handler: &mut impl Handler) {
        self.receive_ahead(now, view, path, handler);
        self.process_deferred_ack();
    }

    /// Like [`receive`](Self::receive), but may leave an acknowledgement that came beside a message
    /// for [`process_deferred_ack`](Self::process_deferred_ack). The owner calls that before the
    /// turn ends, after sending what the message has caused.
    pub fn receive_ahead(
        &mut self,
        now: Time,
        view: &View<'_>,
        path: u8,
        handler: &mut impl Handler,
    ) {
        self.process_deferred_ack();
        self.liveness.note_running(now);
        let mut contents = Contents::default();
        if contents.see(view).is_err() {
            self.statistics.malformed += 1;
            return;
        }
        if view.is_handshake() {
            self.receive_handshake(now, view, path, handler);
        } else if view.header().connection != self.id() || view.header().seal != self.settings.seal
        {
            self.statistics.stale += 1;
        } else {
            self.receive_data(now, view, &contents, path, handler);
        }
    }

    fn receive_handshake(
        &mut self,
        now: Time,
        view: &View<'_>,
        path: u8,
        handler: &mut impl Handler,
    ) {
        self.statistics.handshakes_received += 1;
        if !matches!(self.phase, Phase::Open | Phase::Dead(Death::Refused(_))) {
            self.statistics.stale += 1;
            return;
        }
        let number = view.header().number;
        let mut lives = false;
        for frame in view.frames().flatten() {
            let heard = match frame {
                Frame::Hello(hello) if hello.mine.rank == self.peer => {
                    self.handshake.hello(now, &hello, number, path)
                }
                Frame::Refuse(refuse) => self.handshake.refused(&refuse),
                Frame::Cookie(reply) => {
                    self.handshake.cookie_demanded(now, &reply, Some(path));
                    Heard::Stale
                }
                _ => Heard::Stale,
            };
            lives |= !matches!(heard, Heard::Stale | Heard::Misfit(_));
            if self.phase == Phase::Open {
                self.heard(now, heard, handler);
            }
        }
        if lives && self.is_established() {
            self.liveness.heard(now);
        }
    }

    /// Returns `true` if this handshake datagram is worth verifying. It is not if it can be a
    /// replay by anybody who has seen it (WIND-1.9).
    #[must_use]
    pub fn is_fresh(&self, view: &View<'_>) -> bool {
        view.frames().flatten().any(|frame| match frame {
            Frame::Hello(hello) => self.handshake.is_fresh(&hello, view.header().number),
            Frame::Refuse(refuse) => self.handshake.refused(&refuse) != Heard::Stale,
            Frame::Cookie(reply) => self.handshake.expects(&reply),
            _ => false,
        })
    }

    /// Processes a demand for a cookie that came from an unknown address. Its seal was verified.
    pub fn cookie_demanded(&mut self, now: Time, reply: &CookieReply) {
        if self.phase == Phase::Open {
            self.handshake.cookie_demanded(now, reply, None);
        }
    }

    fn receive_data(
        &mut self,
        now: Time,
        view: &View<'_>,
        contents: &Contents<'_>,
        path: u8,
        handler: &mut impl Handler,
    ) {
        let (number, lane) = (view.header().number, view.header().lane());
        match self.phase {
            Phase::Open => {}
            Phase::Closing { left, next, death } => {
                if !self.received[lane].is_plausible(number) || !self.received[lane].is_new(number)
                {
                    // Nobody who repeats the peer's datagrams makes this node send (SEAL-5.1).
                    self.statistics.duplicate_datagrams += 1;
                    return;
                }
                self.received[lane].record(number, now, Wants::Nothing);
                // WIND-7.3: a peer that closes too does not need this node's CLOSE, except to stop
                // repeating its own. Any other peer has not received the CLOSE. Send it again soon,
                // and after that as often as to a silent peer.
                let lasts = now - self.liveness.heard_at() < self.settings.failure_time;
                self.phase = match contents.close.is_some() {
                    true if left < CLOSE_SENDS => Phase::Dead(death),
                    true => Phase::Closing { left: 1, next: now, death },
                    false if lasts => Phase::Closing {
                        left: left.max(CLOSE_SENDS - 1),
                        next: next.min(now + FAREWELL_PAUSE_MIN),
                        death,
                    },
                    false => Phase::Closing { left, next, death },
                };
                return;
            }
            Phase::Dead(_) => return,
        }
        // WIND-1.3: a peer that uses this node's id knows this node.
        if self.handshake.proven(path) {
            self.established(now);
        }
        // No correct peer uses other numbers (WIRE-2.2).
        if !self.handshake.is_established() || number == 0 || number > DATAGRAM_NUMBER_MAX {
            self.statistics.stale += 1;
            return;
        }
        if !self.received[lane].is_plausible(number) {
            self.statistics.malformed += 1;
            return;
        }
        // SEAL-5.1: what opens may be a replay.
        if !self.received[lane].is_new(number) {
            self.statistics.duplicate_datagrams += 1;
            return;
        }
        // WIND-7.8: check before processing anything of the datagram.
        if let Some(nonsense) = self.nonsense(contents) {
            self.statistics.malformed += 1;
            return self.part(now, Death::Nonsense(nonsense));
        }
        if self.liveness.ends_a_silence(now) {
            self.shrink_if_idle();
        }
        let sum = self.take_frames(now, view, contents, handler);
        self.weigh_fast_paths(now, Lane::Small);
        // WIND-7.7: a datagram that is disbelieved is not a sign of life.
        if !sum.wrong {
            self.liveness.heard(now);
        }
        self.refusals.withhold(lane, number, sum.refusals_before);
        if !sum.dropped || planted(Bug::AcknowledgeDropped) {
            self.statistics.datagrams_received += 1;
            self.statistics.bytes_received +=
                (view.covered().len() + view.payload().len() + view.tag().len()) as u64;
            self.received[lane].record(
                number,
                now,
                contents.wants(view.header().flags.has(Flags::ACK_NOW)),
            );
        } else if contents.elicits {
            // A sender whose datagrams cannot be accepted must still hear that this node is alive
            // (WIND-7.5).
            self.received[lane].remind();
        }
        if contents.pings {
            // WIND-12.5: the peer may ask because a GROUP_ACK was lost.
            self.groups.iter_mut().for_each(|groups| groups.remind());
        }
        if let Some(reason) = contents.close {
            self.die(Death::by_peer(reason));
        }
    }

    /// Returns what no correct peer sends: an acknowledgement, credit or refusal of something that
    /// never existed (WIND-7.8).
    fn nonsense(&self, contents: &Contents<'_>) -> Option<Nonsense> {
        for ack in &contents.acknowledgements {
            let flight = &self.sending[ack.fields.lane].flight;
            if !flight.has_sent(ack.largest) {
                return Some(Nonsense::Acknowledged {
                    number: ack.largest,
                    next: flight.next_number(),
                });
            }
            if let Some(number) = flight.skipped_in(ack) {
                return Some(Nonsense::Skipped { number });
            }
            let (granted, most) = (ack.fields.credit, self.outbox.credit_possible());
            if granted > most {
                return Some(Nonsense::Credit { granted, most });
            }
            if let Some(refused) =
                ack.refusals().find(|refused| !self.outbox.may_be_refused(refused.number))
            {
                return Some(Nonsense::Refused { number: refused.number });
            }
        }
        None
    }

    /// Processes the frames, acknowledgements first, because they may make room for what follows.
    /// If nothing needs that room, an acknowledgement can be deferred.
    fn take_frames(
        &mut self,
        now: Time,
        view: &View<'_>,
        contents: &Contents<'_>,
        handler: &mut impl Handler,
    ) -> Sum {
        let mut sum = Sum::default();
        let by = (view.header().lane(), view.header().number);
        let can_wait = contents.messages.is_some()
            && contents.acknowledgements.len() == 1
            && contents.group_acknowledgement.is_none();
        for ack in &contents.acknowledgements {
            let sound = (can_wait && self.put_off(now, by, ack)) || self.acknowledged(now, by, ack);
            if !sound {
                self.statistics.malformed += 1;
                (sum.dropped, sum.wrong) = (true, true);
            }
        }
        if let Some(group) = &contents.group_acknowledgement {
            self.group_acknowledged(now, by, group);
        }
        sum.refusals_before = self.refusals.len();
        // WIND-4.6: datagrams that cannot cause refusals are accepted all the same, because they
        // may carry the peer's own refusals.
        if self.refusals.is_withholding() && contents.messages.is_some() {
            self.statistics.over_limit += 1;
            sum.dropped = true;
            return sum;
        }
        let Connection { inbox, refusals, statistics, peer, ack_path, sending, .. } = self;
        let mut above = UpcallTarget {
            handler,
            from: *peer,
            refusals: &mut refusals.queue,
            delivered: &mut statistics.messages_delivered,
        };
        if let Some(number) = contents.settled {
            inbox.settled_below(number, &mut above);
        }
        let mut worst = [0u64; 4];
        let mut note = |taken: FrameOutcome| {
            let [duplicate, no_room, unknown, wrong] = &mut worst;
            match taken {
                FrameOutcome::New => {}
                FrameOutcome::Duplicate => *duplicate += 1,
                FrameOutcome::NoRoom => *no_room += 1,
                FrameOutcome::Unknown => *unknown += 1,
                FrameOutcome::Wrong => *wrong += 1,
            }
        };
        let mut fragment = contents.fragment;
        let mut opens = false;
        let Some(frames) = contents.messages.clone() else {
            if contents.elicits {
                ack_path.asked();
            }
            return sum;
        };
        for frame in frames {
            match &frame {
                Ok(Frame::Message(message)) => note(inbox.message(message, &mut above)),
                Ok(Frame::Withdraw(withdrawal)) => note(inbox.withdraw(*withdrawal, &mut above)),
                Ok(Frame::Open(open)) => {
                    opens = true;
                    let whole = fragment.take_if(|bulk| is_whole(bulk, open, view.payload()));
                    let whole = whole.map(|bulk| (bulk, view.payload()));
                    note(inbox.open(open, whole, &mut above));
                }
                _ => {}
            }
        }
        if let Some(fragment) = fragment {
            note(inbox.fragment(fragment, opens, view.payload(), &mut above));
        }
        let [duplicate, no_room, unknown, wrong] = worst;
        statistics.duplicate_messages += duplicate;
        if by.0 == Lane::Small {
            ack_path.messages_came(duplicate > 0, &mut sending.small.flight.bypass, now);
        }
        statistics.over_limit += no_room;
        statistics.unknown_fragments += unknown;
        statistics.malformed += wrong;
        sum.dropped |= no_room + unknown + wrong > 0;
        sum.wrong |= wrong > 0;
        sum
    }

    /// Processes an ACK frame of this datagram. Returns `false` if it cannot be from a correct
    /// peer.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        by: (Lane, u64),
        ack: &Acknowledgement<'_>,
    ) -> bool {
        let lane = ack.fields.lane;
        self.statistics.acknowledgements_received += 1;
        // WIND-3.1: check before processing anything of the frame.
        if !self.sending[lane].flight.has_sent(ack.largest) {
            return false;
        }
        let refused_any = self.take_refusals(now, ack);
        let Connection {
            sending,
            outbox,
            received,
            refusals,
            events,
            mtu,
            statistics,
            round_trips,
            groups,
            ..
        } = self;
        let sending = &mut sending[lane];
        let limited = sending.note_limits();
        let mut settled_told = 0;
        let acked = settle_items(
            Carrier::Connection,
            &mut sending.flight,
            now,
            ack,
            outbox,
            events,
            |item| match item {
                Item::AckSent { lane, largest, refusals: through } => {
                    received[lane].confirm(largest);
                    refusals.confirm(through);
                }
                Item::GroupAckSent { key, largest, refusals: through } => {
                    groups.iter_mut().for_each(|groups| groups.confirm(key, largest));
                    refusals.confirm(through);
                }
                Item::SizeProbe => mtu.probe_acked(now),
                Item::SettledSent(number) => settled_told = number.max(settled_told),
                Item::Message(_) | Item::Withdrawal(_) | Item::Fragment { .. } => {}
            },
        );
        outbox.settled_told(settled_told);
        if let Some(round_trip) = acked.round_trip {
            round_trips.record(round_trip);
        }
        if acked.bytes > 0 {
            let marked = sending.gate.marks.news(ack.fields.marked);
            statistics.marked_sent += sending.flows_acknowledged(now, &acked, marked, limited);
        }
        if acked.bytes + acked.spurious > 0 {
            sending.probes = 0;
        }
        statistics.spurious_losses += acked.spurious;
        if received[by.0].acknowledgement_came(by.1) && acked.probed_in_vain {
            sending.flight.probe.was_in_vain();
        }
        if acked.undo {
            statistics.windows_restored += 1;
            sending.undo_losses(now);
        }
        sending.gate.granted(now, ack.fields.share);
        outbox.grant(ack.fields.credit.min(outbox.credit_possible()));
        outbox.advance(events);
        self.detect_lost(now, lane);
        if lane == Lane::Bulk && acked.bytes > 0 {
            self.weigh_flows(now, acked.bytes);
        }
        self.weigh_sizes(now, lane);
        self.after_acknowledgement(now, ack, refused_any);
        true
    }

    /// Processes the refusals of an acknowledgement, before the items that are acknowledged with
    /// them (WIND-4.6). Returns `true` if they settle anything.
    pub(super) fn take_refusals(&mut self, now: Time, ack: &Acknowledgement<'_>) -> bool {
        let Connection { outbox, events, statistics, .. } = self;
        outbox.set_now(now);
        let mut any = false;
        for refused in ack.refusals() {
            statistics.refusals_received += 1;
            any |= outbox.refused(refused.number, refused.refusal, events);
        }
        any
    }

    /// Notes the effects of an acknowledgement on what is waited for.
    pub(super) fn after_acknowledgement(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        refused_any: bool,
    ) {
        if refused_any {
            self.sending
                .both_mut()
                .into_iter()
                .for_each(|sending| sending.flight.progress.refused(now));
        }
        Lane::BOTH.into_iter().for_each(|lane| self.note_empty_queue(now, lane));
        if ack.refusals().count() >= REFUSALS_MAX {
            // WIND-4.6: there may be more refusals, and then the peer drops what is in flight.
            // Datagrams that overtake these show the loss.
            Lane::BOTH
                .into_iter()
                .for_each(|lane| self.ping[lane] |= !self.sending[lane].flight.is_empty());
        }
    }
}

/// Settles what an acknowledgement of this flight is about. Its datagrams are of one kind. Calls
/// `on_other` for each item that belongs to no message.
pub(super) fn settle_items(
    carrier: Carrier,
    flight: &mut Flight,
    now: Time,
    ack: &Acknowledgement<'_>,
    outbox: &mut Outbox,
    events: &mut VecDeque<Event>,
    mut on_other: impl FnMut(Item),
) -> Acked {
    // Fragments come latest first, and adjacent ones are recorded as one range.
    let mut row: Option<(u64, Range<u64>)> = None;
    let acked = flight.acknowledge(now, ack, |item| match item {
        Item::Message(number) => outbox.acked_small(number, false, events),
        Item::Withdrawal(number) => outbox.acked_small(number, true, events),
        Item::Fragment { message, offset, len } => {
            let bytes = offset..offset + u64::from(len);
            match &mut row {
                Some((number, last)) if *number == message && bytes.end == last.start => {
                    last.start = offset
                }
                _ => {
                    if let Some((number, before)) = row.replace((message, bytes)) {
                        outbox.acked_fragment(carrier, number, before, events);
                    }
                }
            }
        }
        other => on_other(other),
    });
    if let Some((number, bytes)) = row {
        outbox.acked_fragment(carrier, number, bytes, events);
    }
    acked
}

/// Returns `true` if the whole body of this message is in this datagram.
fn is_whole(fragment: &Fragment, open: &Open<'_>, payload: &[u8]) -> bool {
    fragment.message_low == open.number as u32
        && fragment.offset == 0
        && payload.len() as u64 == open.len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DATAGRAM_MIN;
    use crate::wire::{AckFields, Builder, SealKind};
    use std::vec::Vec;

    /// WIRE-2.6, WIRE-4.2.
    #[test]
    fn all_of_a_datagram_is_seen_before_any_of_it_counts() {
        let seen = |acks: usize, last_kind: Option<u8>| {
            let mut bytes = Vec::new();
            let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, DATAGRAM_MIN);
            (0..acks)
                .for_each(|_| builder.acknowledge([1..=1].into_iter(), AckFields::default(), &[]));
            builder.ping();
            builder.finish(None);
            let ping = bytes.len() - 4;
            bytes[ping] = last_kind.unwrap_or(bytes[ping]);
            bytes.extend([0; SealKind::EndToEnd.tag_len()]);
            let view = View::parse(&bytes).unwrap();
            let mut contents = Contents::default();
            contents.see(&view)?;
            Ok((contents.acknowledgements.len(), contents.elicits, contents.messages.is_some()))
        };
        assert_eq!(seen(0, None), Ok((0, true, false)));
        assert_eq!(seen(2, None), Ok((2, true, false)));
        assert_eq!(seen(3, None), Err(Malformed::Frame));
        assert_eq!(seen(1, Some(99)), Err(Malformed::Frame), "the last frame is of no kind");
    }
}
