//! The sender's part of multicast in one connection: which messages are shared, and the group
//! datagrams in flight to the peer (WIND-12.3, WIND-12.6 to WIND-12.8).

use super::groups::{GroupFate, MemberNews, SharedFlight};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::connection::{Connection, Phase};
use crate::wind::event::PostError;
use crate::wind::metrics::counters::Statistics;
use crate::wind::mtu::Mtu;
use crate::wind::receive::settle_items;
use crate::wind::recovery::in_flight::{Cause, Item};
use crate::wind::recovery::pto::Probe;
use crate::wind::recovery::retransmit::lost;
use crate::wind::recv::refusals::Refusals;
use crate::wind::send::message::Message;
use crate::wind::send::mode::SendMode;
use crate::wind::send::outgoing::{BodyPiece, SharedStage};
use crate::wind::send::queue::Outbox;
use crate::wire::group::{Carrier, GroupAcknowledgement};
use crate::wire::header::Lane;
use alloc::boxed::Box;
use core::ops::Range;
use core::time::Duration;

/// A group datagram that was sent, as one of its addressees sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::wind) struct GroupSent {
    pub stream: u64,
    pub number: u64,
    /// Bytes on the wire.
    pub bytes: usize,
    /// Whether it asks for an acknowledgement at once.
    pub asks: bool,
    /// Whether the peer is the first addressee.
    pub is_first: bool,
    /// Piece of the message in this connection, or `None` for a probe.
    pub piece: Option<BodyPiece>,
}

impl Connection {
    /// Queues a message as [`post`](Self::post) does, whose bytes wait for group datagrams until
    /// [`unshare`](Self::unshare) is called.
    pub(in crate::wind) fn post_shared(
        &mut self,
        now: Time,
        message: Message,
    ) -> Result<u64, PostError> {
        if let Some(death) = self.death() {
            return Err(PostError::Dead(death));
        }
        let number = self.outbox.post_shared(now, message)?;
        self.statistics.messages_posted += 1;
        Ok(number)
    }

    /// Returns what a shared message still needs of group datagrams. Nothing is needed after the
    /// peer has restarted, because the number may belong to another message by then.
    pub(in crate::wind) fn shared_stage(&self, stream: u64, number: u64) -> SharedStage {
        match self.group_fate(stream) {
            Some(_) => self.outbox.shared_stage(number),
            None => SharedStage::Ended,
        }
    }

    /// Returns the first range of a message that was sent to the peer and lost. There is none after
    /// the peer has restarted, as for [`shared_stage`](Self::shared_stage).
    pub(in crate::wind) fn group_lost(&self, stream: u64, number: u64) -> Option<Range<u64>> {
        self.group_fate(stream).and_then(|_| self.outbox.first_lost(number))
    }

    /// Lets the bytes of a message that were never sent go to the peer alone.
    pub(in crate::wind) fn unshare(&mut self, number: u64) {
        self.outbox.unshare(number);
    }

    /// Makes the peer the member of this index of this node's stream, which learns from `news` when
    /// to look. Returns `false` if the connection is not established.
    pub(in crate::wind) fn join_group(
        &mut self,
        stream: u64,
        member: u8,
        news: MemberNews,
    ) -> bool {
        let established = self.is_established();
        if established {
            let failure_time = self.settings.failure_time;
            let groups = self.groups.get_or_insert_with(Box::default);
            groups.join(stream, member, news, failure_time);
        }
        established
    }

    /// Ends what [`join_group`](Self::join_group) has begun. What is in flight is sent again to the
    /// peer alone.
    pub(in crate::wind) fn leave_group(&mut self, now: Time, stream: u64) {
        let Connection { groups, outbox, refusals, mtu, statistics, .. } = self;
        let Some(groups) = groups else { return };
        if let Some(shared) = groups.flight_mut(stream) {
            shared.flight.give_up(now, |cause, items| {
                if !planted(Bug::ForgetGroupFlight) {
                    repair(outbox, refusals, mtu, statistics, cause, items);
                }
            });
        }
        groups.flights.retain(|shared| shared.stream != stream);
        self.count_shared();
    }

    /// Returns the fate of the group datagrams of a stream that were addressed to the peer, or
    /// `None` if the peer is not a member.
    pub(in crate::wind) fn group_fate(&self, stream: u64) -> Option<GroupFate> {
        self.groups.as_ref()?.flight(stream).map(|shared| GroupFate {
            largest: shared.flight.largest_acked(),
            given_up: shared.flight.probe.has_given_up(),
            ..shared.fate
        })
    }

    /// Returns `true` if window, grant and pace permit a group datagram now (WIND-12.6).
    pub(in crate::wind) fn group_has_room(&self, now: Time) -> bool {
        self.is_established() && self.sending.bulk.group_has_room(now)
    }

    /// Returns `true` if a group datagram of this length would leave no room for another.
    pub(in crate::wind) fn group_is_full_after(&self, now: Time, bytes: usize) -> bool {
        self.sending.bulk.group_is_full_after(now, bytes)
    }

    /// Returns when the pace permits a group datagram, if nothing else prevents it.
    pub(in crate::wind) fn group_pace_time(&self) -> Option<Time> {
        self.sending.bulk.group_pace_time()
    }

    /// Returns the largest datagram that the path to the peer carries, in bytes.
    pub(in crate::wind) fn datagram_size(&self) -> usize {
        self.mtu.size()
    }

    /// Returns the smoothed round trip of the small lane, which waits in no queue of its own.
    pub(in crate::wind) fn group_round_trip(&self) -> Duration {
        self.sending.small.flight.rtt().smoothed().unwrap_or_default()
    }

    /// Returns the time after which a probe counts as unanswered.
    pub(in crate::wind) fn group_probe_timeout(&self) -> Duration {
        Probe::base(self.sending.small.flight.rtt(), true)
    }

    /// Called when a group datagram was sent that is addressed to the peer.
    pub(in crate::wind) fn group_sent(&mut self, now: Time, sent: GroupSent) {
        let GroupSent { stream, number, bytes, asks, is_first, piece } = sent;
        let Connection { groups, outbox, sending, statistics, events, .. } = self;
        let Some(shared) = groups.as_mut().and_then(|groups| groups.flight_mut(stream)) else {
            return;
        };
        shared.flight.advance_to(number);
        if let Some(piece) = piece {
            let BodyPiece { number: message, offset, len, .. } = piece;
            shared.flight.carry(Item::Fragment { message, offset, len });
            outbox.shared_sent(&piece);
            if planted(Bug::CountForAllMembers) && !is_first {
                let bytes = offset..offset + u64::from(len);
                outbox.acked_fragment(Carrier::Group, message, bytes, events);
                outbox.advance(events);
            }
        }
        shared.flight.commit(now, bytes, SendMode::Plain, true, asks);
        sending.bulk.gate.sent(now, bytes);
        statistics.group_datagrams_sent += 1;
        self.count_shared();
    }

    /// Counts the bytes of group datagrams in flight for the window.
    fn count_shared(&mut self) {
        self.sending.bulk.shared = self.groups.as_ref().map_or(0, |groups| groups.in_flight());
    }

    /// Processes a GROUP_ACK frame of this datagram. Numbers that were not addressed to the peer
    /// say nothing, because another member can have forged their datagrams (WIND-12.11).
    pub(in crate::wind) fn group_acknowledged(
        &mut self,
        now: Time,
        by: (Lane, u64),
        group: &GroupAcknowledgement<'_>,
    ) {
        self.statistics.acknowledgements_received += 1;
        let ack = &group.ack;
        let refused_any = self.take_refusals(now, ack);
        let Connection {
            groups, sending, outbox, received, events, statistics, round_trips, ..
        } = self;
        let bulk = &mut sending.bulk;
        let shared = groups.as_mut().and_then(|groups| groups.flight_mut(group.stream));
        if let Some(shared) = shared.filter(|shared| shared.flight.has_sent(ack.largest)) {
            shared.note_news();
            let SharedFlight { flight, marks, fate, .. } = shared;
            let limited = bulk.first_is_limited();
            let acked = settle_items(Carrier::Group, flight, now, ack, outbox, events, |_| {});
            let late = acked.spurious.min(fate.lost);
            fate.lost -= late;
            fate.acknowledged += late + u64::from(acked.datagrams);
            if let Some(round_trip) = acked.round_trip {
                round_trips.record(round_trip);
            }
            if acked.datagrams > 0 {
                // Also a probe's acknowledgement shows that multicast reaches the peer.
                flight.probe.answered();
            }
            if acked.bytes > 0 {
                let marked = marks.news(ack.fields.marked);
                let smoothed = flight.rtt().smoothed();
                statistics.marked_sent += bulk.acknowledged(now, &acked, marked, limited, smoothed);
            }
            statistics.spurious_losses += acked.spurious;
            if received[by.0].acknowledgement_came(by.1) && acked.probed_in_vain {
                flight.probe.was_in_vain();
            }
            if acked.undo {
                statistics.windows_restored += 1;
                bulk.controller.spurious(now);
            }
        }
        bulk.gate.granted(now, ack.fields.share);
        outbox.grant(ack.fields.credit.min(outbox.credit_possible()));
        outbox.advance(events);
        self.detect_group_lost(now);
        self.after_acknowledgement(now, ack, refused_any);
    }

    /// Finds group datagrams that are lost by now. Their content goes to the peer alone
    /// (WIND-12.7).
    fn detect_group_lost(&mut self, now: Time) {
        let Connection { groups, sending, outbox, refusals, mtu, statistics, .. } = self;
        for shared in groups.iter_mut().flat_map(|groups| &mut groups.flights) {
            let SharedFlight { flight, fate, .. } = shared;
            let before = fate.lost;
            let latest = flight.detect_lost(now, |cause, items| {
                fate.lost += 1;
                repair(outbox, refusals, mtu, statistics, cause, items);
            });
            if fate.lost != before {
                shared.note_news();
            }
            if let Some(sent) = latest {
                sending.bulk.controller.lost(sent, now);
            }
        }
        self.count_shared();
    }

    /// Acts on the timers of group datagrams. A timer that runs out is not congestion, because the
    /// repair by the connection has timers of its own.
    pub(in crate::wind) fn group_timeout(&mut self, now: Time) {
        if self.phase != Phase::Open {
            return;
        }
        self.detect_group_lost(now);
        let Connection { groups, outbox, refusals, mtu, statistics, ping, .. } = self;
        for shared in groups.iter_mut().flat_map(|groups| &mut groups.flights) {
            let SharedFlight { flight, fate, .. } = shared;
            if flight.probe_time().is_none_or(|at| at > now) {
                continue;
            }
            statistics.probe_timeouts += 1;
            flight.ran_out(now, |cause, items| {
                fate.lost += 1;
                repair(outbox, refusals, mtu, statistics, cause, items);
            });
            shared.note_news();
            // The member repeats its GROUP_ACK, which may have been lost.
            ping.small = true;
        }
        self.count_shared();
    }
}

/// Queues the content of a lost group datagram for the member that lost it.
fn repair(
    outbox: &mut Outbox,
    refusals: &mut Refusals,
    mtu: &mut Mtu,
    statistics: &mut Statistics,
    cause: Cause,
    items: &mut dyn Iterator<Item = Item>,
) {
    statistics.group_datagrams_lost += 1;
    if !planted(Bug::ForgetGroupRepair) {
        lost(outbox, refusals, mtu, statistics, cause, items);
    }
}
