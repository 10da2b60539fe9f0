//! Sending group datagrams: which members a datagram goes to, and what it carries.

use super::flight::GroupSent;
use super::repair::PlannedPiece;
use super::stream::{GroupStream, Members, SharedMessage};
use crate::limits::{DATAGRAM_NUMBER_MAX, GROUP_MEMBERS_MAX, GROUP_RECEIVERS_MIN};
use crate::time::Time;
use crate::wind::send::message::{Rows, Segment};
use crate::wind::send::outgoing::{BodyPiece, Outgoing, SendProgress, SharedStage, Sizes, Stage};
use crate::wire::build::Builder;
use crate::wire::frame::{Fragment, Open};
use crate::wire::group::Addressees;
use crate::wire::header::Flags;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Result of [`GroupStream::transmit`]: how the appended datagram is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTransmit {
    /// Payload that follows the appended bytes on the wire. `None` if the payload was appended too,
    /// or if there is no payload.
    pub payload: Option<Segment>,
    /// Rows of the payload's region, as in [`Transmit`](crate::wind::Transmit).
    pub rows: Option<Arc<Rows>>,
    /// Whether the payload was sent before. The link then copies the payload before sealing it
    /// (WIND-5.5).
    pub was_sent: bool,
    /// Members to which the datagram is addressed, one bit for each index.
    pub members: u32,
    /// Length of the datagram in bytes, with payload and tag.
    pub bytes: usize,
}

/// Purpose of the next group datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GroupPurpose {
    /// A probe to the members that want one.
    Probe,
    /// The next piece of the oldest message.
    Piece,
    /// Bytes that several members have lost.
    Repair(PlannedPiece),
}

impl GroupStream {
    /// Returns `true` if [`transmit`](Self::transmit) would write a datagram now. It also leaves
    /// out members that hold the others up for too long, and members whose time has come otherwise.
    pub fn has_due(&mut self, now: Time, members: &mut impl Members) -> bool {
        self.purpose(now, members).is_some()
    }

    fn purpose(&mut self, now: Time, members: &mut impl Members) -> Option<GroupPurpose> {
        self.wake = None;
        self.count_busy(now);
        self.review(now, members);
        if self.next >= DATAGRAM_NUMBER_MAX {
            self.end(now, members);
        }
        let is_time = self.member_time.is_some_and(|at| at <= now);
        if is_time && self.members.iter().any(|member| member.wants_probe(now)) {
            return Some(GroupPurpose::Probe);
        }
        if let Some(repair) = self.find_repair(now, members) {
            return Some(GroupPurpose::Repair(repair));
        }
        self.is_piece_due(now, members).then_some(GroupPurpose::Piece)
    }

    /// Returns `true` if all members that wait for the oldest message have room for a datagram.
    fn is_piece_due(&mut self, now: Time, members: &mut impl Members) -> bool {
        loop {
            self.drop_ended(members);
            let id = self.id();
            let GroupStream { queue, members: states, wake, holding, .. } = self;
            let to = queue.front().map_or(&[][..], |message| &message.to);
            *wake = None;
            let mut lacking = 0u32;
            for &(index, number) in to {
                let Some(member) = states.get(usize::from(index)) else { continue };
                let Some(connection) = members.connection(member.rank) else { continue };
                let waits = connection.shared_stage(id, number) == SharedStage::Waiting;
                if waits || !connection.group_has_room(now) {
                    lacking |= 1 << index;
                    *wake = (*wake).into_iter().chain(connection.group_pace_time()).min();
                }
            }
            let holds = if (lacking.count_ones() as usize) < to.len() { lacking } else { 0 };
            let mut late = None;
            for index in bits(core::mem::replace(holding, holds) | holds) {
                let Some(member) = states.get_mut(usize::from(index)) else { continue };
                let lacks = holds >> index & 1 == 1;
                let connection = if lacks { members.connection(member.rank) } else { None };
                let round_trip = connection.map(|connection| connection.group_round_trip());
                let until = member.holds_up(round_trip, now);
                late = late.or(until.filter(|until| *until <= now).map(|_| index));
                *wake = (*wake).into_iter().chain(until).min();
            }
            let Some(late) = late else { return lacking == 0 && !to.is_empty() };
            self.leave_out(late, now, members);
        }
    }

    /// Drops messages from the front that nobody or too few members wait for. The rest goes to
    /// those alone.
    fn drop_ended(&mut self, members: &mut impl Members) {
        let id = self.id();
        while let Some(SharedMessage { to, .. }) = self.queue.front_mut() {
            to.retain(|(index, number)| {
                let rank = self.members.get(usize::from(*index)).map(|member| member.rank);
                let connection = rank.and_then(|rank| members.connection(rank));
                connection.is_some_and(|connection| {
                    connection.shared_stage(id, *number) != SharedStage::Ended
                })
            });
            if to.len() >= GROUP_RECEIVERS_MIN {
                return;
            }
            for (index, number) in core::mem::take(to) {
                let rank = self.members.get(usize::from(index)).map(|member| member.rank);
                if let Some(connection) = rank.and_then(|rank| members.connection(rank)) {
                    connection.unshare(number);
                }
            }
            self.queue.pop_front();
        }
    }

    /// Writes one group datagram. Appends header, frames and inline payload to `into`. A segment
    /// payload follows them on the wire, and the engine writes the tag after that. Returns `None`
    /// if nothing is due, and `into` is unchanged.
    pub fn transmit(
        &mut self,
        now: Time,
        members: &mut impl Members,
        into: &mut Vec<u8>,
    ) -> Option<GroupTransmit> {
        let transmit = match self.purpose(now, members)? {
            GroupPurpose::Probe => self.write_probe(now, members, into),
            GroupPurpose::Piece => self.write_next(now, members, into),
            GroupPurpose::Repair(repair) => {
                self.statistics.repairs += 1;
                self.write_piece(now, members, &repair, into).map(|(transmit, _)| transmit)
            }
        }?;
        self.next += 1;
        self.statistics.datagrams_sent += 1;
        self.statistics.bytes_sent += transmit.bytes as u64;
        Some(transmit)
    }

    /// Writes a probe to all members that want one. It is as long as the path carries, because
    /// multicast may be limited to shorter datagrams.
    fn write_probe(
        &mut self,
        now: Time,
        members: &mut impl Members,
        into: &mut Vec<u8>,
    ) -> Option<GroupTransmit> {
        let (stream, number) = (self.id(), self.next);
        let (mut mask, mut size) = (0u32, usize::MAX);
        for (index, member) in self.members.iter().enumerate() {
            if member.wants_probe(now)
                && let Some(connection) = members.connection(member.rank)
            {
                mask |= 1 << index;
                size = size.min(connection.datagram_size());
            }
        }
        if mask == 0 {
            return None;
        }
        let mut builder = Builder::new(into, stream, number, self.seal, size);
        builder.group(mask, core::iter::empty());
        builder.ping();
        builder.pad();
        builder.flag(Flags::BULK_LANE.with(Flags::ACK_NOW));
        let bytes = builder.finish(None);
        for (index, member) in self.members.iter_mut().enumerate() {
            if mask >> index & 1 == 1
                && let Some(connection) = members.connection(member.rank)
            {
                let is_first = mask.trailing_zeros() as usize == index;
                let sent = GroupSent { stream, number, bytes, asks: true, is_first, piece: None };
                connection.group_sent(now, sent);
                member.probed(now, connection.group_probe_timeout());
            }
        }
        self.note_member_times();
        let (payload, rows, was_sent) = (None, None, false);
        Some(GroupTransmit { payload, rows, was_sent, members: mask, bytes })
    }

    /// Writes the next piece of the oldest message, to all members that wait for it.
    fn write_next(
        &mut self,
        now: Time,
        members: &mut impl Members,
        into: &mut Vec<u8>,
    ) -> Option<GroupTransmit> {
        let SharedMessage { offset, to } = self.queue.front()?;
        let next = PlannedPiece { to: to.clone(), bytes: *offset..u64::MAX, is_first_flight: true };
        let (transmit, piece) = self.write_piece(now, members, &next, into)?;
        if let Some(message) = self.queue.front_mut() {
            message.offset += u64::from(piece.len);
        }
        if piece.last {
            self.note_sent(next.to);
        }
        Some(transmit)
    }

    /// Writes as many of these bytes as fit into a group datagram (WIND-12.4). Returns the piece
    /// that was written, as the first addressee sees it.
    fn write_piece(
        &mut self,
        now: Time,
        members: &mut impl Members,
        planned: &PlannedPiece,
        into: &mut Vec<u8>,
    ) -> Option<(GroupTransmit, BodyPiece)> {
        let (stream, number, is_last_message) = (self.id(), self.next, self.queue.len() <= 1);
        let PlannedPiece { to, bytes: range, is_first_flight } = planned;
        let ranks: Vec<_> = to
            .iter()
            .filter_map(|(index, _)| self.members.get(usize::from(*index)))
            .map(|member| member.rank)
            .collect();
        let (mut size, mut opened, mut full) = (usize::MAX, true, false);
        for (&rank, &(_, message)) in ranks.iter().zip(to.iter()) {
            let connection = members.connection(rank)?;
            size = size.min(connection.datagram_size());
            full |= connection.group_is_full_after(now, size);
            opened &= connection.outbox.get(message).is_some_and(|message| {
                let is_told = |progress: &SendProgress| progress.opened || message.by_group;
                matches!(&message.stage, Stage::Bulk(progress) if is_told(progress))
            });
        }
        let frame_len = Addressees::frame_len(to.len());
        let sizes = Sizes::within(size.saturating_sub(frame_len), self.seal);
        let mask = to.iter().fold(0u32, |mask, (index, _)| mask | 1 << index);
        // The bytes are the same in all these connections. The first one has them.
        let (&first, &(_, message_number)) = ranks.first().zip(to.first())?;
        let outbox = &members.connection(first)?.outbox;
        let piece = outbox.shared_piece(message_number, range.clone(), sizes, opened)?;
        let &Outgoing { class, charge, ref head, len, urgent, .. } = outbox.get(piece.number)?;
        let (payload, rows) = outbox.source_of(&piece);
        let mut builder = Builder::new(into, stream, number, self.seal, size);
        let fragment_len = u16::try_from(piece.len).unwrap_or(u16::MAX);
        builder.fragment(Fragment { message_low: 0, offset: piece.offset }, fragment_len);
        builder.group(mask, to.iter().map(|(_, number)| *number as u32));
        if !opened {
            builder.open(&Open { number: 0, class, credited: charge.is_credited(), head, len });
        }
        builder.flag(Flags::BULK_LANE);
        let bytes = builder.len();
        let inline = if payload.is_none() { outbox.bytes_of(&piece) } else { None };
        if payload.is_none() && inline.is_none() {
            builder.discard();
            return None;
        }
        let asks = full || (piece.last && (urgent || is_last_message));
        if asks {
            builder.flag(Flags::ACK_NOW);
        }
        builder.finish(inline);
        for (&rank, &(_, message)) in ranks.iter().zip(to.iter()) {
            if let Some(connection) = members.connection(rank) {
                let piece = Some(BodyPiece { number: message, ..piece });
                let is_first = rank == first;
                let sent = GroupSent { stream, number, bytes, asks, is_first, piece };
                connection.group_sent(now, sent);
            }
        }
        let was_sent = !is_first_flight;
        Some((GroupTransmit { payload, rows, was_sent, members: mask, bytes }, piece))
    }
}

/// Returns the indices of the bits of a mask that are set.
fn bits(mask: u32) -> impl Iterator<Item = u8> {
    (0..GROUP_MEMBERS_MAX as u8).filter(move |index| mask >> index & 1 == 1)
}
