//! Sending: the only place that transmits.

use super::connection::{Connection, NUMBERS_LEFT_FOR_CLOSE, Phase};
use super::lanes::Sending;
use crate::limits::{DATAGRAM_NUMBER_MAX, FAREWELL_PAUSE_MIN, FIRST_PORT_BULK_MAX, PROBE_MAX};
use crate::time::Time;
use crate::wind::ack::received::Ranges;
use crate::wind::death::Death;
use crate::wind::event::Transmit;
use crate::wind::recovery::in_flight::Item;
use crate::wind::send::mode::SendMode;
use crate::wind::send::outgoing::{BodyPiece, Outgoing, Stage};
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::build::Builder;
use crate::wire::frame::{
    Fragment, Open, SETTLED_FRAME_LEN, SmallMessage, Withdrawal, message_frame_len, open_frame_len,
};
use crate::wire::header::{Flags, Lane};
use alloc::vec::Vec;

/// Purpose of the next datagram of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatagramPurpose {
    /// Whole messages and other small frames.
    Small,
    /// Fragment of one message.
    Bulk,
    /// An acknowledgement or a sign of life, without messages.
    Control,
    /// One size probe.
    Size,
}

impl Connection {
    /// Returns `true` if [`transmit`](Self::transmit) would return a datagram. O(1).
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.lane_has_due(Lane::Small, now) || self.lane_has_due(Lane::Bulk, now)
    }

    /// Returns `true` if [`transmit_by`](Self::transmit_by) would return a datagram. O(1).
    #[must_use]
    pub fn lane_has_due(&self, lane: Lane, now: Time) -> bool {
        match (self.phase, lane) {
            (Phase::Closing { next, left, .. }, Lane::Small) => left > 0 && next <= now,
            (Phase::Dead(_), Lane::Small) => self.handshake.owes_refusal(),
            (Phase::Open, Lane::Small) if self.handshake.has_due(now) => true,
            (Phase::Open, _) => self.handshake.is_established() && self.turn(lane, now).is_some(),
            (Phase::Closing { .. } | Phase::Dead(_), Lane::Bulk) => false,
        }
    }

    /// Writes one datagram, of the small lane first (WIND-3.6), then of the bulk lane. Like
    /// [`transmit_by`](Self::transmit_by).
    pub fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        self.transmit_by(Lane::Small, now, into).or_else(|| self.transmit_by(Lane::Bulk, now, into))
    }

    /// Writes one datagram of a lane. Appends header, frames and inline payload to `into`. A
    /// segment payload follows them on the wire, and the engine writes the tag after that. Returns
    /// `None` if nothing is due, and `into` is unchanged.
    ///
    /// An owner with several peers asks all of them for small datagrams before bulk (WIND-3.9).
    pub fn transmit_by(&mut self, lane: Lane, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        if lane == Lane::Small {
            match self.phase {
                Phase::Closing { next, left, .. } if left > 0 && next <= now => {
                    return self.write_close(now, into);
                }
                Phase::Closing { .. } => return None,
                Phase::Dead(_) if !self.handshake.owes_refusal() => return None,
                Phase::Dead(_) | Phase::Open => {}
            }
            if self.handshake.has_due(now) {
                let path = self.handshake.transmit(now, into)?;
                self.statistics.handshakes_sent += 1;
                return Some(Transmit::small(path, true));
            }
        }
        if self.phase != Phase::Open || !self.handshake.is_established() {
            return None;
        }
        let first_path = self.handshake.path?;
        let port = self.bulk_port().filter(|_| lane == Lane::Bulk);
        let purpose = self.turn(lane, now)?;
        match (lane, purpose) {
            (Lane::Small, _) => {}
            (Lane::Bulk, DatagramPurpose::Bulk) => self.sending.bulk.begin_bulk(now),
            (Lane::Bulk, _) => self.sending.bulk.begin_question(now),
        }
        let flow = self.sending[lane].flight.flow;
        let path = match flow {
            0 => first_path,
            _ => self.sending[lane].path_of(flow, first_path),
        };
        let mode = self.send_mode(lane, now);
        let (mut payload, mut rows, mut was_sent, mut short) = (None, None, false, false);
        match purpose {
            DatagramPurpose::Small => self.write_small(now, into, true),
            DatagramPurpose::Control => self.write_control(lane, now, into),
            DatagramPurpose::Bulk => {
                let piece = self.outbox.peek_bulk()?;
                (payload, rows) = self.outbox.source_of(&piece);
                was_sent = piece.was_sent;
                // It goes by the first port, which counts for the first flow.
                short = flow == 0
                    && mode != SendMode::Plain
                    && self.is_short(&piece)
                    && !self.avoids_bypass(now);
                self.write_bulk(now, into, &piece, payload.is_none());
            }
            DatagramPurpose::Size => self.write_size_probe(lane, now, into),
        }
        let handshake = false;
        Some(Transmit { payload, rows, was_sent, path, lane, port, flow, short, mode, handshake })
    }

    /// Returns the fast paths that the next datagram of a lane may take (WIND-8.10). Probes and
    /// PINGs take none, so that they arrive if anything does.
    fn send_mode(&self, lane: Lane, now: Time) -> SendMode {
        let Sending { flight, probes, .. } = &self.sending[lane];
        let plain = lane == Lane::Small && (self.ack_path.is_plain() || self.avoids_bypass(now));
        if *probes > 0 || self.ping[lane] || plain {
            SendMode::Plain
        } else if flight.trains.is_avoided(now) {
            SendMode::Single
        } else {
            SendMode::Any
        }
    }

    fn avoids_bypass(&self, now: Time) -> bool {
        self.sending.both().iter().any(|sending| sending.flight.bypass.is_avoided(now))
    }

    /// Returns `true` if the piece belongs to a short message and little is in flight in the bulk
    /// lane. The bound allows for one message that has arrived without this node knowing yet
    /// (WIND-3.11).
    fn is_short(&self, piece: &BodyPiece) -> bool {
        let flying = self.sending.bulk.flight.in_flight();
        flying <= 2 * FIRST_PORT_BULK_MAX
            && self
                .outbox
                .get(piece.number)
                .is_some_and(|message| message.len <= FIRST_PORT_BULK_MAX)
    }

    fn turn(&self, lane: Lane, now: Time) -> Option<DatagramPurpose> {
        let sending = &self.sending[lane];
        let probes = sending.probes > 0;
        match lane {
            Lane::Small if self.refusals.go_alone() => return Some(DatagramPurpose::Control),
            Lane::Small if self.outbox.has_small() && sending.has_room(now) => {
                return Some(DatagramPurpose::Small);
            }
            // Small frames that may be sent go first. Those that may not do not hold the probe up
            // (WIND-8.5).
            _ if !probes && self.size_probe_is_due(lane, now) => {
                return Some(DatagramPurpose::Size);
            }
            Lane::Bulk if self.outbox.has_bulk() && sending.bulk_flow(now).is_some() => {
                return Some(DatagramPurpose::Bulk);
            }
            _ => {}
        }
        (probes || self.ping[lane] || (lane == Lane::Small && self.an_ack_is_due(now)))
            .then_some(DatagramPurpose::Control)
    }

    /// Returns `true` if a size probe is due. It is sent in a lane with other datagrams in flight,
    /// whose acknowledgement shows its loss (WIND-8.2), and with bulk if there is any.
    fn size_probe_is_due(&self, lane: Lane, now: Time) -> bool {
        self.mtu.probe_due(now)
            && !self.sending[lane].flight.is_empty()
            && (lane == Lane::Bulk || self.sending.bulk.flight.is_empty())
    }

    fn an_ack_is_due(&self, now: Time) -> bool {
        self.refusals.is_due()
            || self.inbox.credit_due()
            || self.received.both().iter().any(|arrivals| arrivals.is_due(now))
            || self.groups.as_ref().is_some_and(|groups| groups.ack_is_due(now))
    }

    fn begin<'b>(&self, lane: Lane, into: &'b mut Vec<u8>) -> Builder<'b> {
        let connection = self.handshake.them.map_or(0, |them| them.connection);
        let number = self.sending[lane].flight.next_number();
        let mut builder =
            Builder::new(into, connection, number, self.settings.seal, self.mtu.size());
        if lane == Lane::Bulk {
            builder.flag(Flags::BULK_LANE);
        }
        builder
    }

    /// Writes a size probe, which contains only padding (WIND-8.2).
    fn write_size_probe(&mut self, lane: Lane, now: Time, into: &mut Vec<u8>) {
        let size = self.mtu.probe();
        let mut builder = self.begin(lane, into).limited(size);
        builder.ping();
        builder.pad();
        builder.flag(Flags::ACK_NOW);
        self.sending[lane].flight.carry(Item::SizeProbe);
        self.statistics.size_probes_sent += 1;
        self.finish(lane, now, &mut builder, None, true);
    }

    /// Writes as many small frames as fit, with the acknowledgements there are.
    fn write_small(&mut self, now: Time, into: &mut Vec<u8>, messages: bool) {
        let mut builder = self.begin(Lane::Small, into);
        let first = self
            .outbox
            .peek_small()
            .filter(|_| messages)
            .map_or(0, |(_, message)| small_len(message));
        let reported = self.write_acks(Lane::Small, now, messages, first, &mut builder);
        let mut elicits = messages && self.pack_small(Lane::Small, &mut builder);
        if elicits {
            self.data_goes(now);
            if self.ping.small {
                // The datagram asks as a PING would.
                builder.flag(Flags::ACK_NOW);
            }
        }
        if !elicits
            && (reported || self.ping.small || self.sending.small.probes > 0 || builder.is_empty())
        {
            self.write_ping(&mut builder);
            elicits = true;
        }
        if let Some(number) = self.outbox.untold_settled()
            && builder.room() >= SETTLED_FRAME_LEN
        {
            builder.settled(number);
            self.sending.small.flight.carry(Item::SettledSent(number));
        }
        self.finish(Lane::Small, now, &mut builder, None, elicits);
        self.ping.small = false;
    }

    fn write_control(&mut self, lane: Lane, now: Time, into: &mut Vec<u8>) {
        if lane == Lane::Small {
            return self.write_small(now, into, false);
        }
        let mut builder = self.begin(lane, into);
        self.write_ping(&mut builder);
        self.finish(lane, now, &mut builder, None, true);
        self.ping.bulk = false;
    }

    fn write_ping(&mut self, builder: &mut Builder<'_>) {
        builder.ping();
        builder.flag(Flags::ACK_NOW);
        self.statistics.pings_sent += 1;
    }

    fn data_goes(&mut self, now: Time) {
        self.received.both_mut().into_iter().for_each(|arrivals| arrivals.data_goes(now));
        self.groups.iter_mut().for_each(|groups| groups.data_goes(now));
    }

    /// Fills the datagram from the small queue. Returns `true` if there was a frame. While nothing
    /// is acknowledged, each frame is sent alone. Otherwise a frame for which the peer has no room
    /// would keep the others from being acknowledged (WIND-6.6).
    fn pack_small(&mut self, lane: Lane, builder: &mut Builder<'_>) -> bool {
        let flight = &mut self.sending[lane].flight;
        let alone = flight.probe.has_given_up();
        let mut any = false;
        while let Some((number, message)) = self.outbox.peek_small() {
            if small_len(message) > builder.room() || (alone && any) {
                break;
            }
            let Outgoing { class, charge, charged, ref head, ref body, len, .. } = *message;
            let item = match message.stage {
                Stage::Withdrawn { .. } => {
                    let len = charge.of(len).unwrap_or(len);
                    builder.withdraw(Withdrawal { number, charged, len });
                    Item::Withdrawal(number)
                }
                _ => {
                    builder.message(&SmallMessage {
                        number,
                        class,
                        credited: charge.is_credited(),
                        head,
                        body: body.bytes(),
                    });
                    if message.urgent {
                        builder.flag(Flags::ACK_NOW);
                    }
                    Item::Message(number)
                }
            };
            flight.carry(item);
            self.outbox.take_small();
            any = true;
        }
        any
    }

    /// Writes one fragment, with its bytes if they are inline. All fragments of a run are equally
    /// long, so that one system call can send them, except for a shorter last one. Therefore
    /// acknowledgements travel with a message's last fragment, and small messages with its only one
    /// (WIND-3.7).
    fn write_bulk(&mut self, now: Time, into: &mut Vec<u8>, piece: &BodyPiece, inline: bool) {
        let mut builder = self.begin(Lane::Bulk, into);
        let Some(message @ Outgoing { stage: Stage::Bulk(progress), .. }) =
            self.outbox.get(piece.number)
        else {
            builder.discard();
            return;
        };
        let &Outgoing { class, charge, ref head, len, urgent, .. } = message;
        let credited = charge.is_credited();
        let only = u64::from(piece.len) == len;
        let fragment_len = u16::try_from(piece.len).unwrap_or(u16::MAX);
        builder.fragment(
            Fragment { message_low: piece.number as u32, offset: piece.offset },
            fragment_len,
        );
        let rides = piece.last && !self.sending.bulk.flight.probe.has_given_up();
        let mut open =
            (!progress.opened).then_some(Open { number: piece.number, class, credited, head, len });
        if rides && !only {
            let beside = open.as_ref().map_or(0, |open| open_frame_len(open.head.len()));
            let full =
                self.outbox.full_fragment(message, progress.opened).map_or(0, |full| full as usize);
            let whole = builder.len() - piece.len as usize + full + beside;
            builder = builder.limited(whole);
            // The fragments before this one bring the beginning, too.
            let news = self.received.both().iter().any(|arrivals| arrivals.has_news());
            // Only those of the connection count, and not those of group datagrams (WIND-12.11).
            let is_repair = message.by_group;
            open = open.filter(|_| {
                !news || is_repair || beside + Acknowledgement::frame_len(1, 0) <= builder.room()
            });
        }
        if let Some(open) = open {
            builder.open(&open);
        }
        if urgent && piece.last {
            builder.flag(Flags::ACK_NOW);
        }
        self.sending.bulk.flight.carry(Item::Fragment {
            message: piece.number,
            offset: piece.offset,
            len: piece.len,
        });
        self.outbox.take_bulk(piece);
        if rides {
            self.write_acks(Lane::Bulk, now, true, 0, &mut builder);
            if only {
                self.pack_small(Lane::Bulk, &mut builder);
            }
            self.data_goes(now);
        }
        if self.ping.bulk || !self.outbox.has_bulk() {
            builder.flag(Flags::ACK_NOW);
        }
        self.finish(Lane::Bulk, now, &mut builder, inline.then_some(piece), true);
        self.ping.bulk = false;
    }

    /// Writes the ACK frames of both lanes that are due. Writes others with news only if they leave
    /// room for `then` more bytes, so that an acknowledgement that is not urgent displaces no
    /// message. Returns `true` if the frames report refusals.
    fn write_acks(
        &mut self,
        by: Lane,
        now: Time,
        with_message: bool,
        then: usize,
        builder: &mut Builder<'_>,
    ) -> bool {
        let everything = self.refusals.is_due();
        let (mut written, mut reported) = (false, false);
        for lane in Lane::BOTH {
            let arrivals = &self.received[lane];
            let credit = lane == Lane::Small && self.inbox.credit_due();
            let must = by == Lane::Small && (everything || credit || arrivals.is_due(now));
            if !must && !arrivals.has_news() {
                continue;
            }
            let mut ranges = Ranges::new();
            arrivals.list(self.refusals.withheld(lane), &mut ranges);
            let refusals = if written { 0 } else { self.refusals.reportable() };
            let len = Acknowledgement::frame_len(ranges.len(), refusals);
            if must || then + len <= builder.room() {
                self.write_ack((lane, &ranges), refusals, by, now, with_message, builder);
                (written, reported) = (true, reported || refusals > 0);
            }
        }
        if by == Lane::Small && self.groups.is_some() {
            reported |= self.write_group_ack(now, with_message, then, written, builder);
        }
        if by == Lane::Small {
            self.refusals.all_reported();
        }
        reported
    }

    /// Writes the ACK frame of a lane with `refusals` refusals: all that are to be reported, or
    /// none if an earlier frame reports them (WIND-4.6).
    fn write_ack(
        &mut self,
        (lane, ranges): (Lane, &Ranges),
        refusals: usize,
        by: Lane,
        now: Time,
        with_message: bool,
        builder: &mut Builder<'_>,
    ) {
        let credit = self.inbox.report_credit();
        let reported = (&mut self.refusals, refusals);
        let (largest, through) =
            self.received[lane].write(now, (None, ranges), credit, with_message, reported, builder);
        self.sending[by].flight.carry(Item::AckSent { lane, largest, refusals: through });
        self.statistics.acknowledgements_sent += 1;
        self.statistics.refusals_sent += refusals as u64;
    }

    /// Completes the datagram. The builder stays in place, because a move would wait for the parts
    /// just stored (store forwarding).
    fn finish(
        &mut self,
        lane: Lane,
        now: Time,
        builder: &mut Builder<'_>,
        inline: Option<&BodyPiece>,
        elicits: bool,
    ) {
        let inline = inline.and_then(|piece| self.outbox.bytes_of(piece));
        let mode = self.send_mode(lane, now);
        let sending = &mut self.sending[lane];
        let full = sending.is_full_after(now, builder.len());
        if elicits && (full || sending.probes > 0) {
            builder.flag(Flags::ACK_NOW);
        }
        let asks = builder.has(Flags::ACK_NOW);
        let bytes = builder.finish(inline);
        sending.flight.commit(now, bytes, mode, elicits, asks);
        sending.sent(now, bytes);
        if lane == Lane::Small {
            self.ack_path.sent(now, mode, !elicits);
        }
        if elicits {
            sending.probes = sending.probes.saturating_sub(1);
        }
        self.statistics.datagrams_sent += 1;
        self.statistics.bytes_sent += bytes as u64;
        // The last numbers are left for CLOSE, which a peer that goes on sending may ask for again.
        let last = self.sending[lane].flight.next_number();
        if last + NUMBERS_LEFT_FOR_CLOSE > DATAGRAM_NUMBER_MAX && self.phase == Phase::Open {
            self.part(now, Death::NumbersUsedUp);
        }
    }

    /// Writes CLOSE with the last acknowledgement, so that the peer learns which of its messages
    /// have arrived.
    fn write_close(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        let Phase::Closing { left, death, .. } = self.phase else { return None };
        // The pause is never longer than the slowest probe's.
        let flight = &self.sending.small.flight;
        let pause = flight.probe.timeout(flight.rtt(), true).clamp(FAREWELL_PAUSE_MIN, PROBE_MAX);
        self.phase = match left {
            0 | 1 => Phase::Dead(death),
            _ => Phase::Closing { left: left - 1, next: now + pause, death },
        };
        let path = self.handshake.path?;
        let mut builder = self.begin(Lane::Small, into);
        builder.close(death.close_reason());
        for (lane, refusals) in [(Lane::Small, self.refusals.reportable()), (Lane::Bulk, 0)] {
            let mut ranges = Ranges::new();
            self.received[lane].list(self.refusals.withheld(lane), &mut ranges);
            self.write_ack((lane, &ranges), refusals, Lane::Small, now, false, &mut builder);
        }
        self.finish(Lane::Small, now, &mut builder, None, false);
        Some(Transmit::small(path, false))
    }
}

/// Returns the bytes of the frame for the front of the small queue.
fn small_len(message: &Outgoing) -> usize {
    match message.stage {
        Stage::Withdrawn { .. } => Withdrawal::FRAME_LEN,
        _ => message_frame_len(message.head.len(), message.len).unwrap_or(usize::MAX),
    }
}
