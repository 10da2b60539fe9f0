//! The receiver's part of multicast: a connection takes group datagrams of its peer and
//! acknowledges them (WIND-12.4, WIND-12.5).

use super::groups::NextGroupAck;
use crate::limits::DATAGRAM_NUMBER_MAX;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::received::{Ranges, Wants};
use crate::wind::connection::{Connection, Phase};
use crate::wind::handler::{Handler, UpcallTarget};
use crate::wind::recovery::in_flight::Item;
use crate::wind::recv::queue::FrameOutcome;
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::build::Builder;
use crate::wire::frame::{Fragment, Frame, Open};
use crate::wire::group::Addressees;
use crate::wire::header::{Flags, Lane};
use crate::wire::view::View;
use alloc::boxed::Box;

/// Content of a group datagram, parsed before any of it is processed.
struct GroupContents<'a> {
    group: Addressees<'a>,
    /// Bytes of a message and perhaps its beginning, or `None` for a probe.
    part: Option<(Fragment, Option<Open<'a>>)>,
}

impl<'a> GroupContents<'a> {
    /// Returns the content, or `None` if it is not that of a group datagram (WIRE-4.12).
    fn see(view: &View<'a>) -> Option<GroupContents<'a>> {
        let (mut group, mut fragment, mut open, mut pings) = (None, None, None, false);
        for frame in view.frames() {
            let is_second = match frame.ok()? {
                Frame::Group(frame) => group.replace(frame).is_some(),
                Frame::Fragment(frame) => fragment.replace(frame).is_some(),
                Frame::Open(frame) => open.replace(frame).is_some(),
                Frame::Ping => core::mem::replace(&mut pings, true),
                Frame::Pad => false,
                _ => return None,
            };
            if is_second {
                return None;
            }
        }
        let group = group?;
        let part = fragment.map(|fragment| (fragment, open));
        let unnumbered = fragment.is_none_or(|fragment: Fragment| fragment.message_low == 0)
            && open.is_none_or(|open: Open<'_>| open.number == 0);
        let fits = group.is_probe() == part.is_none() && group.is_probe() == pings;
        let stray_open = part.is_none() && open.is_some();
        (fits && unnumbered && !stray_open).then_some(GroupContents { group, part })
    }
}

impl Connection {
    /// Lets this connection receive the group datagrams of a stream of its peer. Returns `false` if
    /// the connection follows too many streams or is not established.
    pub fn follow_stream(&mut self, id: u64) -> bool {
        let share = self.received.bulk.share;
        self.is_established() && self.groups.get_or_insert_with(Box::default).follow(id, share)
    }

    /// Ends what [`follow_stream`](Self::follow_stream) has begun.
    pub fn leave_stream(&mut self, id: u64) {
        if let Some(groups) = &mut self.groups {
            groups.leave(id);
        }
    }

    /// Returns `true` if the connection follows this stream. It no longer does after the peer has
    /// restarted or the connection has ended.
    #[must_use]
    pub fn follows_stream(&self, id: u64) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.followed(id).is_some())
    }

    /// Notes that the latest datagram of this stream given to
    /// [`receive_group`](Self::receive_group) was new and came marked CE (WIND-9.5).
    pub fn group_marked(&mut self, id: u64) {
        if let Some(stream) = self.groups.as_mut().and_then(|groups| groups.followed_mut(id)) {
            stream.note_mark();
            self.statistics.marked_received += 1;
        }
    }

    /// Processes a group datagram of the peer, whose seal was verified. `member` is the index of
    /// this node among the members of the stream. Never transmits.
    ///
    /// Any member can have written the datagram. So whatever is wrong with it is counted and
    /// dropped, and the datagram is not a sign of life (WIND-12.11).
    pub fn receive_group(
        &mut self,
        now: Time,
        view: &View<'_>,
        member: u8,
        handler: &mut impl Handler,
    ) {
        self.process_deferred_ack();
        self.liveness.note_running(now);
        let (stream, number) = (view.header().connection, view.header().number);
        let is_current = self.phase == Phase::Open && view.header().seal == self.settings.seal;
        let followed = self.groups.as_ref().and_then(|groups| groups.followed(stream));
        let Some(followed) = followed.filter(|_| is_current) else {
            self.statistics.stale += 1;
            return;
        };
        let is_number = (1..=DATAGRAM_NUMBER_MAX).contains(&number);
        // A member that was left out got no number for long. A probe tells where the numbers are.
        let contents = GroupContents::see(view).filter(|contents| {
            is_number
                && (contents.part.is_none() || followed.is_plausible(number))
                && view.header().lane() == Lane::Bulk
        });
        let Some(GroupContents { group, part }) = contents else {
            self.statistics.malformed += 1;
            return;
        };
        if !group.has(member) {
            return;
        }
        if !followed.is_new(number) {
            self.statistics.duplicate_datagrams += 1;
            return;
        }
        let named = if planted(Bug::TakeNumberOfOther) { group.first() } else { member };
        if let (Some(low), Some((fragment, open))) = (group.number_of(named), part)
            && !self.take_part(low, fragment, open, view.payload(), handler)
        {
            return;
        }
        self.statistics.group_datagrams_received += 1;
        self.statistics.bytes_received += view.len() as u64;
        let asks = view.header().flags.has(Flags::ACK_NOW);
        if let Some(groups) = &mut self.groups {
            groups.record(stream, number, now, Wants::of(part.is_some(), asks));
        }
    }

    /// Takes bytes of a message, which has a number with this low half in this connection. Returns
    /// `false` if the datagram may not be acknowledged.
    fn take_part(
        &mut self,
        low: u32,
        fragment: Fragment,
        open: Option<Open<'_>>,
        payload: &[u8],
        handler: &mut impl Handler,
    ) -> bool {
        // WIND-4.6: no message is accepted before the refusals are confirmed.
        if self.refusals.is_withholding() {
            self.statistics.over_limit += 1;
            return false;
        }
        let before = self.refusals.len();
        let Connection { inbox, refusals, statistics, peer, .. } = self;
        let mut above = UpcallTarget {
            handler,
            from: *peer,
            refusals: &mut refusals.queue,
            delivered: &mut statistics.messages_delivered,
        };
        let fragment = Fragment { message_low: low, ..fragment };
        let outcome = match inbox.number(low) {
            None => FrameOutcome::Duplicate,
            Some(number) => inbox.group_part(number, fragment, open, payload, &mut above),
        };
        match outcome {
            FrameOutcome::New => {}
            FrameOutcome::Duplicate => statistics.duplicate_messages += 1,
            FrameOutcome::NoRoom => statistics.over_limit += 1,
            FrameOutcome::Unknown => statistics.unknown_fragments += 1,
            FrameOutcome::Wrong => statistics.malformed += 1,
        }
        // No group datagram is acknowledged that causes more refusals than one datagram reports.
        // Its content comes again by the connection, and is acknowledged when the refusals are
        // known. Number 0 withholds no other acknowledgement.
        self.refusals.withhold(Lane::Bulk, 0, before);
        matches!(outcome, FrameOutcome::New | FrameOutcome::Duplicate)
            && !self.refusals.is_withholding()
    }

    /// Writes the GROUP_ACK frame of one stream, if one is due, or if one has news and leaves room
    /// for `then` more bytes. It reports the refusals unless an ACK frame has `reported` them.
    /// Returns `true` if the frame reports refusals.
    pub(in crate::wind) fn write_group_ack(
        &mut self,
        now: Time,
        with_message: bool,
        then: usize,
        reported: bool,
        builder: &mut Builder<'_>,
    ) -> bool {
        let Connection { groups, refusals, inbox, received, sending, statistics, .. } = self;
        let Some(next) = groups.as_mut().and_then(|groups| groups.next_ack(now)) else {
            return false;
        };
        let NextGroupAck { stream, marked, key, received: arrivals } = next;
        let mut ranges = Ranges::new();
        arrivals.list(None, &mut ranges);
        let count = if reported { 0 } else { refusals.reportable() };
        let len = Acknowledgement::group_frame_len(ranges.len(), count);
        let then = if arrivals.is_due(now) { 0 } else { then };
        if then + len > builder.room() {
            // It goes with the next datagram.
            return false;
        }
        (arrivals.share, arrivals.marked) = (received.bulk.share, marked);
        let credit = inbox.report_credit();
        let (largest, through) = arrivals.write(
            now,
            (Some(stream), &ranges),
            credit,
            with_message,
            (refusals, count),
            builder,
        );
        let item = Item::GroupAckSent { key, largest, refusals: through };
        sending.small.flight.carry(item);
        statistics.acknowledgements_sent += 1;
        statistics.refusals_sent += count as u64;
        count > 0
    }
}
