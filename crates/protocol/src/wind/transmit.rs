//! The way out: the one place that emits.

use super::connection::{Connection, Phase};
use super::flight::Item;
use super::outgoing::{Outgoing, Piece, Stage};
use super::{Body, Segment, Transmit, Urgency};
use crate::limits::{BULK_FRAME_LEN, BULK_TURN, FAREWELL_PAUSE_MIN, PROBE_MAX};
use crate::time::Time;
use crate::wire::{Builder, Flags, Fragment, Lane, Open, SmallMessage, Withdrawal, message_frame_len, open_frame_len};
use alloc::vec::Vec;

/// What the next datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Whole messages, and whatever else is small.
    Small,
    /// A fragment.
    Bulk(Piece),
    /// An acknowledgement or a sign of life; no messages.
    Control,
    /// A size probe.
    Size,
}

impl Connection {
    /// Would [`transmit`](Self::transmit) yield something? O(1).
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.next_due(now).is_some()
    }

    /// What [`transmit`](Self::transmit) would yield, if anything: who serves several peers asks first for what is small (WIND-3.9).
    #[must_use]
    pub fn next_due(&self, now: Time) -> Option<Urgency> {
        let small = |due: bool| due.then_some(Urgency::Small);
        match self.phase {
            Phase::Closing { next, left } => small(left > 0 && next <= now),
            Phase::Dead(_) => small(self.handshake.owes_refusal()),
            Phase::Open if self.handshake.has_due(now) => Some(Urgency::Small),
            Phase::Open if self.handshake.is_established() => Some(match self.turn(now)? {
                Turn::Small | Turn::Control => Urgency::Small,
                Turn::Bulk(_) | Turn::Size => Urgency::Bulk,
            }),
            Phase::Open => None,
        }
    }

    /// One datagram: header, frames and inline payload are appended to `into`; a segment payload follows it on the wire; the
    /// engine writes the tag after that. `None`: nothing is due, `into` is as it was.
    pub fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        match self.phase {
            Phase::Closing { next, left } if left > 0 && next <= now => return self.write_close(now, into),
            Phase::Closing { .. } => return None,
            Phase::Dead(_) if !self.handshake.owes_refusal() => return None,
            Phase::Dead(_) | Phase::Open => {}
        }
        if self.handshake.has_due(now) {
            let path = self.handshake.transmit(now, into)?;
            self.statistics.handshakes_sent += 1;
            return Some(Transmit { payload: None, path, lane: Lane::Small, port: None, handshake: true });
        }
        if !self.handshake.is_established() {
            return None;
        }
        let path = self.handshake.path?;
        let payload = match self.turn(now)? {
            Turn::Small => self.write_small(now, into, true),
            Turn::Control => self.write_small(now, into, false),
            Turn::Bulk(piece) => self.write_bulk(now, into, piece),
            Turn::Size => self.write_size_probe(now, into),
        };
        Some(Transmit { payload, path, lane: Lane::Small, port: None, handshake: false })
    }

    /// WIND-3.6: small messages are not queued behind bulk, nor bulk behind a flood of small ones.
    fn turn(&self, now: Time) -> Option<Turn> {
        let probes = self.due.probes > 0;
        let (in_flight, window) = (self.flight.in_flight(), self.gate.window(&*self.controller, now));
        if probes || in_flight < window {
            if self.mtu.probe_due(now) && !probes && !self.outbox.has_small() && !self.flight.is_empty() {
                return Some(Turn::Size);
            }
            let bulk_first = self.due.bulk_turn > 0 || !self.outbox.has_small();
            if bulk_first
                && (probes || self.gate.is_open(now))
                && let Some(piece) = self.outbox.peek_bulk()
            {
                return Some(Turn::Bulk(piece));
            }
            if self.outbox.has_small() {
                return Some(Turn::Small);
            }
        } else if self.outbox.has_small() && in_flight < window + self.mtu.size() as u64 {
            // Bulk has filled the window: what is small need not wait until some of it is acknowledged (WIND-6.1).
            return Some(Turn::Small);
        }
        let control = self.due.ping || self.due.probes > 0 || self.ack_is_due(now);
        control.then_some(Turn::Control)
    }

    fn ack_is_due(&self, now: Time) -> bool {
        self.arrivals.is_due(now) || self.inbox.credit_due()
    }

    fn begin<'b>(&self, into: &'b mut Vec<u8>) -> Builder<'b> {
        let connection = self.handshake.them.map_or(0, |them| them.connection);
        Builder::new(into, connection, self.flight.next_number(), self.settings.seal, self.mtu.size())
    }

    /// WIND-8.2: length and nothing else.
    fn write_size_probe(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Segment> {
        let size = self.mtu.probe();
        let mut builder = self.begin(into).limited(size);
        builder.ping();
        builder.pad();
        builder.flag(Flags::ACK_NOW);
        self.flight.carry(Item::SizeProbe);
        self.statistics.size_probes_sent += 1;
        self.finish(now, builder, None, true)
    }

    /// As many small frames as fit, with whatever acknowledgement there is.
    fn write_small(&mut self, now: Time, into: &mut Vec<u8>, messages: bool) -> Option<Segment> {
        if messages {
            self.due.bulk_turn = BULK_TURN;
        }
        let mut builder = self.begin(into);
        let first = self.outbox.peek_small().filter(|_| messages).map_or(0, |(_, message)| small_len(message));
        // An acknowledgement that is not urgent may not push a message out.
        let must_ack = self.ack_is_due(now);
        let may_ack = self.arrivals.has_news() && first + self.arrivals.frame_len() <= builder.room();
        let told = if must_ack || may_ack { self.write_ack(now, messages, &mut builder) } else { false };
        let mut elicits = messages && self.pack_small(&mut builder);
        if elicits {
            self.arrivals.data_goes(now);
            if self.due.ping {
                // It asks as a PING would.
                builder.flag(Flags::ACK_NOW);
            }
        }
        if !elicits && (told || self.due.ping || self.due.probes > 0 || builder.is_empty()) {
            builder.ping();
            builder.flag(Flags::ACK_NOW);
            self.statistics.pings_sent += 1;
            elicits = true;
        }
        self.due.ping = false;
        self.finish(now, builder, None, elicits)
    }

    /// Fill the datagram from the small queue. Was there anything? While nothing is acknowledged each goes alone: one for which
    /// the peer has no room would keep the others from being acknowledged (WIND-6.6).
    fn pack_small(&mut self, builder: &mut Builder<'_>) -> bool {
        let alone = self.flight.probe.has_given_up();
        let mut any = false;
        while let Some((number, message)) = self.outbox.peek_small() {
            if small_len(message) > builder.room() || (alone && any) {
                break;
            }
            let Outgoing { class, credited, charged, ref head, ref body, len, .. } = *message;
            let item = match message.stage {
                Stage::Withdrawn { .. } => {
                    builder.withdraw(Withdrawal { number, charged, len });
                    Item::Withdrawal(number)
                }
                Stage::Bulk(_) => {
                    builder.open(&Open { number, class, credited, head, len });
                    Item::Open(number)
                }
                _ => {
                    let body = if let Body::Inline(bytes) = body { bytes.as_slice() } else { &[] };
                    builder.message(&SmallMessage { number, class, credited, head, body });
                    if message.urgent {
                        builder.flag(Flags::ACK_NOW);
                    }
                    Item::Message(number)
                }
            };
            self.flight.carry(item);
            self.outbox.take_small();
            any = true;
        }
        any
    }

    /// One fragment. All of a run are equally long, so that one system call can carry them: only the run's first may carry an
    /// acknowledgement, and only a message's only fragment is packed with others (WIND-3.7).
    fn write_bulk(&mut self, now: Time, into: &mut Vec<u8>, piece: Piece) -> Option<Segment> {
        let Some(message) = self.outbox.get(piece.number) else { return self.write_small(now, into, false) };
        let room = self.begin(into);
        let mut left = room.room().saturating_sub(BULK_FRAME_LEN + piece.len as usize);
        room.discard();
        let progress = if let Stage::Bulk(progress) = &message.stage { progress } else { return None };
        let mut open = false;
        if !progress.opened {
            let len = open_frame_len(message.head.len());
            open = len <= left;
            left -= if open { len } else { 0 };
            if !open && !progress.open_alone {
                self.outbox.queue_open(piece.number);
                return self.write_small(now, into, true);
            }
        }
        let only = u64::from(piece.len) == message.len;
        let ack_fits = self.arrivals.frame_len() <= left;
        let ack_due = self.ack_is_due(now);
        if ack_due && !ack_fits {
            return self.write_small(now, into, false);
        }
        let mut builder = self.begin(into);
        let len = u16::try_from(piece.len).unwrap_or(u16::MAX);
        builder.fragment(Fragment { message_low: piece.number as u32, offset: piece.offset }, len);
        let Outgoing { class, credited, ref head, len, urgent, .. } = *message;
        if open {
            builder.open(&Open { number: piece.number, class, credited, head, len });
        }
        if urgent && piece.last {
            builder.flag(Flags::ACK_NOW);
        }
        self.flight.carry(Item::Fragment { message: piece.number, offset: piece.offset, len: piece.len });
        self.outbox.take_bulk(piece);
        if ack_due || (only && ack_fits && self.arrivals.has_news()) {
            self.write_ack(now, true, &mut builder);
        }
        if only && !self.flight.probe.has_given_up() {
            self.pack_small(&mut builder);
        }
        self.arrivals.data_goes(now);
        self.due.bulk_turn = self.due.bulk_turn.saturating_sub(1);
        if !self.outbox.has_bulk() {
            builder.flag(Flags::ACK_NOW);
        }
        self.finish(now, builder, Some(piece), true)
    }

    /// Write an ACK frame; does it tell refusals?
    fn write_ack(&mut self, now: Time, with_message: bool, builder: &mut Builder<'_>) -> bool {
        let refusals = self.arrivals.refusals.len();
        let (largest, through) = self.arrivals.write(now, self.inbox.tell_credit(), with_message, builder);
        self.flight.carry(Item::Told { largest, refusals: through });
        self.statistics.acknowledgements_sent += 1;
        self.statistics.refusals_sent += refusals.min(crate::limits::REFUSALS_MAX) as u64;
        refusals > 0
    }

    /// The datagram's frames are complete. What follows on the wire, if it lies in a segment.
    fn finish(&mut self, now: Time, mut builder: Builder<'_>, piece: Option<Piece>, elicits: bool) -> Option<Segment> {
        let (segment, inline) = piece.map_or((None, None), |piece| self.outbox.body_of(piece));
        let full = self.flight.in_flight() + builder.len() as u64 >= self.gate.window(&*self.controller, now);
        if elicits && (full || self.due.probes > 0) {
            builder.flag(Flags::ACK_NOW);
        }
        let asks = builder.has(Flags::ACK_NOW);
        let bytes = builder.finish(inline);
        self.flight.commit(now, bytes, elicits, asks);
        self.gate.sent(now, bytes);
        if elicits {
            self.due.probes = self.due.probes.saturating_sub(1);
        }
        self.statistics.datagrams_sent += 1;
        self.statistics.bytes_sent += bytes as u64;
        segment
    }

    /// Goodbye, with the last acknowledgement: the peer's messages that have arrived have arrived.
    fn write_close(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        let Phase::Closing { left, .. } = self.phase else { return None };
        // Nobody waits longer for leave-taking than for the slowest probe.
        let pause = self.flight.probe.timeout(&self.flight.rtt, true).clamp(FAREWELL_PAUSE_MIN, PROBE_MAX);
        self.phase = match left {
            0 | 1 => Phase::Dead(super::Death::Closed),
            _ => Phase::Closing { left: left - 1, next: now + pause },
        };
        let path = self.handshake.path?;
        let mut builder = self.begin(into);
        builder.close();
        self.write_ack(now, false, &mut builder);
        self.finish(now, builder, None, false);
        Some(Transmit { payload: None, path, lane: Lane::Small, port: None, handshake: false })
    }
}

/// Bytes of the frame that the small queue's front will be.
fn small_len(message: &Outgoing) -> usize {
    match message.stage {
        Stage::Withdrawn { .. } => Withdrawal::FRAME_LEN,
        Stage::Bulk(_) => open_frame_len(message.head.len()),
        _ => message_frame_len(message.head.len(), message.len).unwrap_or(usize::MAX),
    }
}
