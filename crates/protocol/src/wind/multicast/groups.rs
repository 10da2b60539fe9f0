//! Multicast state of one connection: the streams of the peer that this node follows, and the
//! flights of this node's own streams that have the peer as a member.

use crate::limits::GROUP_STREAMS_MAX;
use crate::time::Time;
use crate::wind::ack::received::ReceivedDatagrams;
use crate::wind::congestion::Marks;
use crate::wind::recovery::in_flight::Flight;
use crate::wire::header::Lane;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// A stream of the peer, of which this node is a member.
pub(in crate::wind) struct FollowedStream {
    pub id: u64,
    /// Name of the stream in this connection, which is never used again.
    pub key: u32,
    pub arrivals: ReceivedDatagrams,
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
    /// Whether the peer has ever been asked to follow a stream of this node.
    invites: bool,
}

impl Groups {
    /// Returns `true` if the peer may follow a stream of this node, or did so earlier. From then on
    /// other members can make the peer report what this node has not sent (WIND-12.11).
    pub fn invites(&self) -> bool {
        self.invites
    }

    /// Notes that the peer is asked to follow a stream of this node.
    pub fn invite(&mut self) {
        self.invites = true;
    }

    /// Begins to follow a stream. Returns `false` if there are too many.
    pub fn follow(&mut self, id: u64, share: u32) -> bool {
        if self.followed(id).is_some() {
            return true;
        }
        if self.followed.len() >= GROUP_STREAMS_MAX {
            return false;
        }
        self.keys = self.keys.wrapping_add(1);
        let arrivals = ReceivedDatagrams::new(Lane::Bulk, share);
        self.followed.push(FollowedStream { id, key: self.keys, arrivals });
        true
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

    /// Returns the stream whose acknowledgement goes next: one that is due, or one with news.
    pub fn next_ack(&mut self, now: Time) -> Option<&mut FollowedStream> {
        let is_due = |stream: &FollowedStream| stream.arrivals.is_due(now);
        let at = self
            .followed
            .iter()
            .position(is_due)
            .or_else(|| self.followed.iter().position(|stream| stream.arrivals.has_news()))?;
        self.followed.get_mut(at)
    }

    /// Returns `true` if an acknowledgement of group datagrams is due.
    pub fn ack_is_due(&self, now: Time) -> bool {
        self.followed.iter().any(|stream| stream.arrivals.is_due(now))
    }

    /// Makes acknowledgements due that repeat what the peer may not know.
    pub fn remind(&mut self) {
        let unknown = self.followed.iter_mut().filter(|stream| stream.arrivals.is_unconfirmed());
        unknown.for_each(|stream| stream.arrivals.remind());
    }

    /// Called when the datagram with a GROUP_ACK frame was acknowledged.
    pub fn confirm(&mut self, key: u32, largest: u64) {
        if let Some(stream) = self.followed.iter_mut().find(|stream| stream.key == key) {
            stream.arrivals.confirm(largest);
        }
    }

    /// Called when a datagram with a message of this node is sent to the peer.
    pub fn data_goes(&mut self, now: Time) {
        self.followed.iter_mut().for_each(|stream| stream.arrivals.data_goes(now));
    }

    pub fn flight(&self, stream: u64) -> Option<&SharedFlight> {
        self.flights.iter().find(|shared| shared.stream == stream)
    }

    pub fn flight_mut(&mut self, stream: u64) -> Option<&mut SharedFlight> {
        self.flights.iter_mut().find(|shared| shared.stream == stream)
    }

    /// Begins a flight to the peer. Numbers are those of the stream, none of which is skipped.
    pub fn join(&mut self, stream: u64, member: u8, news: MemberNews, failure_time: Duration) {
        self.invite();
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
        let deadlines = self.followed.iter().filter_map(|stream| stream.arrivals.deadline());
        let timers = self.flights.iter().flat_map(|shared| {
            [shared.flight.loss_time(), shared.flight.probe_time()].into_iter().flatten()
        });
        deadlines.chain(timers).min()
    }

    /// Returns `true` if nothing waits to be acknowledged, in either direction.
    pub fn is_idle(&self) -> bool {
        self.flights.iter().all(|shared| shared.flight.is_empty())
            && !self.followed.iter().any(|stream| stream.arrivals.has_news())
    }

    /// Gives memory back while idle.
    pub fn shrink(&mut self) {
        self.flights.iter_mut().for_each(|shared| shared.flight.shrink());
        self.followed.iter_mut().for_each(|stream| stream.arrivals.shrink());
    }
}
