//! Multicast state of one connection: the streams of the peer that this node follows, and the
//! flights of this node's own streams that have the peer as a member.

use crate::limits::{GROUP_MOVED_MIN, GROUP_NUMBERS_NEAR, GROUP_STREAMS_MAX};
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::ack::received::{ReceivedDatagrams, Wants};
use crate::wind::congestion::Marks;
use crate::wind::recovery::in_flight::Flight;
use crate::wire::header::Lane;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// Datagrams of a stream whose numbers lie near each other.
pub(in crate::wind) struct GroupArrivals {
    /// Name of these arrivals in this connection, which is never used again.
    key: u32,
    pub received: ReceivedDatagrams,
}

impl GroupArrivals {
    fn new(keys: &mut u32, share: u32) -> GroupArrivals {
        *keys = keys.wrapping_add(1);
        GroupArrivals { key: *keys, received: ReceivedDatagrams::new(Lane::Bulk, share) }
    }

    fn is_near(&self, number: u64) -> bool {
        planted(Bug::TrustFarNumbers) || self.received.is_near(number, GROUP_NUMBERS_NEAR)
    }
}

/// A stream of the peer, of which this node is a member.
///
/// The sender's numbers jump after the member was left out, and another member can forge any
/// number. So the member follows numbers at two places, and acknowledges each by itself. The sender
/// ignores what it has not sent (WIND-12.11).
pub(in crate::wind) struct FollowedStream {
    pub id: u64,
    /// Number of datagrams that came marked CE, modulo 2³².
    marked: u32,
    /// Datagrams with the numbers that came most often.
    usual: GroupArrivals,
    /// Datagrams with numbers far from those, the latest ones.
    far: Option<GroupArrivals>,
    /// Number of datagrams that came far away since the latest one that did not.
    far_count: u32,
}

impl FollowedStream {
    fn arrivals(&self) -> impl Iterator<Item = &GroupArrivals> {
        core::iter::once(&self.usual).chain(&self.far)
    }

    fn arrivals_mut(&mut self) -> impl Iterator<Item = &mut GroupArrivals> {
        core::iter::once(&mut self.usual).chain(&mut self.far)
    }

    /// Returns `true` if a datagram with a part of a message can have this number.
    pub fn is_plausible(&self, number: u64) -> bool {
        self.arrivals().any(|arrivals| arrivals.received.is_plausible(number))
    }

    /// Returns `true` if this datagram has not arrived before, as far as this node remembers.
    pub fn is_new(&self, number: u64) -> bool {
        let near = self.arrivals().find(|arrivals| arrivals.is_near(number));
        near.is_none_or(|arrivals| arrivals.received.is_new(number))
    }

    /// Notes that the latest datagram was new and came marked CE.
    pub fn note_mark(&mut self) {
        self.marked = self.marked.wrapping_add(1);
    }

    /// Records an accepted datagram.
    fn record(&mut self, number: u64, now: Time, wants: Wants, keys: &mut u32) {
        if self.usual.is_near(number) {
            self.far_count = 0;
            return self.usual.received.record(number, now, wants);
        }
        let share = self.usual.received.share;
        let far = match &mut self.far {
            Some(far) if far.is_near(number) => far,
            far => far.insert(GroupArrivals::new(keys, share)),
        };
        far.received.record(number, now, wants);
        self.far_count = self.far_count.saturating_add(1);
        if self.far_count >= GROUP_MOVED_MIN
            && !self.usual.received.has_news()
            && let Some(far) = self.far.take()
        {
            (self.usual, self.far_count) = (far, 0);
        }
    }
}

/// Acknowledgement that a stream needs next.
pub(in crate::wind) struct NextGroupAck<'g> {
    pub stream: u64,
    /// Number of datagrams of the stream that came marked CE.
    pub marked: u32,
    pub key: u32,
    pub received: &'g mut ReceivedDatagrams,
}

/// Tells a stream which members have news, so that the stream looks at no other member. Clones
/// share their state.
#[derive(Clone, Debug, Default)]
pub(in crate::wind) struct MemberNews {
    members: Arc<AtomicU32>,
}

impl MemberNews {
    /// Notes news of the member with this index.
    fn note(&self, member: u8) {
        self.members.fetch_or(1u32.wrapping_shl(u32::from(member)), Ordering::Relaxed);
    }

    /// Returns `true` if there are news.
    pub fn is_any(&self) -> bool {
        self.members.load(Ordering::Relaxed) != 0
    }

    /// Returns the members with news, one bit for each index, and forgets the news.
    pub fn take(&self) -> u32 {
        self.members.swap(0, Ordering::Relaxed)
    }
}

/// Group datagrams of one of this node's streams that are in flight to the peer.
pub(in crate::wind) struct SharedFlight {
    pub stream: u64,
    /// Index of the peer among the members.
    member: u8,
    news: MemberNews,
    pub flight: Flight,
    /// Marks that the peer has reported for the stream.
    pub marks: Marks,
    pub fate: GroupFate,
}

impl SharedFlight {
    /// Called when the fate may have changed.
    pub fn note_news(&self) {
        self.news.note(self.member);
    }
}

impl Drop for SharedFlight {
    /// The end of the connection is news, too.
    fn drop(&mut self) {
        self.note_news();
    }
}

/// Fate of the group datagrams that were addressed to one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::wind) struct GroupFate {
    /// Largest number that was acknowledged, or 0.
    pub largest: u64,
    pub acknowledged: u64,
    pub lost: u64,
    /// Whether everything in flight was given up, and nothing was acknowledged since.
    pub given_up: bool,
}

/// Multicast state of a connection that takes part in a stream.
#[derive(Default)]
pub(in crate::wind) struct Groups {
    followed: Vec<FollowedStream>,
    pub flights: Vec<SharedFlight>,
    keys: u32,
}

impl Groups {
    /// Begins to follow a stream. Returns `false` if there are too many.
    pub fn follow(&mut self, id: u64, share: u32) -> bool {
        if self.followed(id).is_some() {
            return true;
        }
        if self.followed.len() >= GROUP_STREAMS_MAX {
            return false;
        }
        let usual = GroupArrivals::new(&mut self.keys, share);
        self.followed.push(FollowedStream { id, marked: 0, usual, far: None, far_count: 0 });
        true
    }

    /// Records an accepted datagram of a stream.
    pub fn record(&mut self, stream: u64, number: u64, now: Time, wants: Wants) {
        let Groups { followed, keys, .. } = self;
        if let Some(stream) = followed.iter_mut().find(|one| one.id == stream) {
            stream.record(number, now, wants, keys);
        }
    }

    pub fn leave(&mut self, id: u64) {
        self.followed.retain(|stream| stream.id != id);
    }

    pub fn followed(&self, id: u64) -> Option<&FollowedStream> {
        self.followed.iter().find(|stream| stream.id == id)
    }

    pub fn followed_mut(&mut self, id: u64) -> Option<&mut FollowedStream> {
        self.followed.iter_mut().find(|stream| stream.id == id)
    }

    /// Returns what is acknowledged next: what is due, or otherwise what has news.
    pub fn next_ack(&mut self, now: Time) -> Option<NextGroupAck<'_>> {
        let any_due = self.ack_is_due(now);
        self.followed.iter_mut().find_map(|stream| {
            let (id, marked) = (stream.id, stream.marked);
            let is_next = |received: &ReceivedDatagrams| {
                if any_due { received.is_due(now) } else { received.has_news() }
            };
            let next = stream.arrivals_mut().find(|arrivals| is_next(&arrivals.received))?;
            Some(NextGroupAck { stream: id, marked, key: next.key, received: &mut next.received })
        })
    }

    fn arrivals(&self) -> impl Iterator<Item = &ReceivedDatagrams> {
        self.followed.iter().flat_map(|stream| stream.arrivals()).map(|one| &one.received)
    }

    fn arrivals_mut(&mut self) -> impl Iterator<Item = &mut GroupArrivals> {
        self.followed.iter_mut().flat_map(|stream| stream.arrivals_mut())
    }

    /// Returns `true` if an acknowledgement of group datagrams is due.
    pub fn ack_is_due(&self, now: Time) -> bool {
        self.arrivals().any(|received| received.is_due(now))
    }

    /// Makes acknowledgements due that repeat what the peer may not know.
    pub fn remind(&mut self) {
        let unknown = self.arrivals_mut().filter(|one| one.received.is_unconfirmed());
        unknown.for_each(|one| one.received.remind());
    }

    /// Called when the datagram with a GROUP_ACK frame was acknowledged.
    pub fn confirm(&mut self, key: u32, largest: u64) {
        if let Some(arrivals) = self.arrivals_mut().find(|arrivals| arrivals.key == key) {
            arrivals.received.confirm(largest);
        }
    }

    /// Called when a datagram with a message of this node is sent to the peer.
    pub fn data_goes(&mut self, now: Time) {
        self.arrivals_mut().for_each(|arrivals| arrivals.received.data_goes(now));
    }

    pub fn flight(&self, stream: u64) -> Option<&SharedFlight> {
        self.flights.iter().find(|shared| shared.stream == stream)
    }

    pub fn flight_mut(&mut self, stream: u64) -> Option<&mut SharedFlight> {
        self.flights.iter_mut().find(|shared| shared.stream == stream)
    }

    /// Begins a flight to the peer. Numbers are those of the stream, none of which is skipped.
    pub fn join(&mut self, stream: u64, member: u8, news: MemberNews, failure_time: Duration) {
        if self.flight(stream).is_none() {
            let flight = Flight::new(failure_time, 0);
            let (marks, fate) = (Marks::default(), GroupFate::default());
            self.flights.push(SharedFlight { stream, member, news, flight, marks, fate });
        }
    }

    /// Returns the bytes of group datagrams in flight to the peer.
    pub fn in_flight(&self) -> u64 {
        self.flights.iter().map(|shared| shared.flight.in_flight()).sum()
    }

    /// Returns the earliest time at which a group datagram is to be acknowledged or given up.
    pub fn next_timeout(&self) -> Option<Time> {
        let deadlines = self.arrivals().filter_map(ReceivedDatagrams::deadline);
        let timers = self.flights.iter().flat_map(|shared| {
            [shared.flight.loss_time(), shared.flight.probe_time()].into_iter().flatten()
        });
        deadlines.chain(timers).min()
    }

    /// Returns `true` if nothing waits to be acknowledged, in either direction.
    pub fn is_idle(&self) -> bool {
        self.flights.iter().all(|shared| shared.flight.is_empty())
            && !self.arrivals().any(ReceivedDatagrams::has_news)
    }

    /// Gives memory back while idle.
    pub fn shrink(&mut self) {
        self.flights.iter_mut().for_each(|shared| shared.flight.shrink());
        self.arrivals_mut().for_each(|arrivals| arrivals.received.shrink());
    }
}
