//! Current state of a connection, for people and tests.

use crate::time::Time;
use crate::wind::connection::{Connection, Phase};
use crate::wind::death::Death;
use crate::wind::lanes::PerLane;
use crate::wind::metrics::histogram::Latency;
use core::time::Duration;

/// State of the connection to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The two ends do not both know each other yet.
    Connecting,
    /// Both ends know each other.
    Established,
    /// The connection has ended for this reason.
    Ended(Death),
}

/// Current state of a connection. Unlike [`Statistics`](crate::wind::Statistics), which only grow,
/// all of these values rise and fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// State of the connection to the peer.
    pub standing: Standing,
    /// The candidate path in use, once established.
    pub path: Option<u8>,
    /// Version of the wire format that both ends use; 0 before the peer's HELLO (WIRE-6.4).
    pub version: u16,
    /// Bytes of the largest datagram that this node sends now.
    pub datagram_max: usize,
    /// Bytes that the congestion controller allows in flight.
    pub window: u64,
    /// Bytes that the peer's share of its buffer allows in flight.
    pub share: u64,
    /// Pace of fragments in bytes per second; 0 means no limit.
    pub pace: u64,
    /// Flows of bulk, of which each has a source port of its own.
    pub flows: u8,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Datagrams that carry the bytes in flight.
    pub datagrams_in_flight: usize,
    /// Messages posted and not settled.
    pub unsettled: usize,
    /// Unsettled small messages that wait to be sent or sent again.
    pub queued_small: usize,
    /// Unsettled fragmented messages of which something waits to be sent or sent again.
    pub queued_bulk: usize,
    /// Unsettled messages that wait for the peer's credit.
    pub blocked: usize,
    /// Bytes of credited messages that the peer would still accept.
    pub credit: u64,
    /// Bytes of the peer's messages that are held back or being reassembled.
    pub held: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub round_trip: Duration,
    /// Variation of the round-trip time.
    pub round_trip_variation: Duration,
    /// The shortest round trip seen; zero before the first sample.
    pub round_trip_least: Duration,
}

/// Current state of one of several flows of bulk (WIND-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// Number of the flow. Flow 0 leaves from this node's own port for bulk.
    pub flow: u8,
    /// The candidate path by which it goes.
    pub path: u8,
    /// Bytes that its congestion controller allows in flight.
    pub window: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub round_trip: Duration,
    /// Datagrams sent that must be acknowledged, since the lane has several flows.
    pub datagrams_sent: u64,
    /// Number of these that were declared lost.
    pub datagrams_lost: u64,
    /// Time until the flow is used again, if it carried nothing (WIND-14.5); otherwise zero.
    pub cut_for: Duration,
}

/// Durations measured since the connection was created.
#[derive(Clone, Copy, Debug)]
pub struct Latencies<'a> {
    /// Round-trip times without the delay that the peer reports, one for each acknowledgement that
    /// shows one.
    pub round_trip: &'a Latency,
    /// Time of each message from [`Connection::post`] until an acknowledgement settled it.
    pub settle: &'a Latency,
}

impl Connection {
    /// Returns the current state of the connection.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let standing = match self.phase {
            Phase::Dead(death) => Standing::Ended(death),
            Phase::Closing { death, .. } => Standing::Ended(death),
            Phase::Open if self.is_established() => Standing::Established,
            Phase::Open => Standing::Connecting,
        };
        let queues = self.outbox.queues();
        let PerLane { small, bulk } = &self.sending;
        // The small lane measures the path; the bulk lane also measures its own queue.
        let rtt = if small.flight.rtt().smoothed().is_some() {
            small.flight.rtt()
        } else {
            bulk.flight.rtt()
        };
        Snapshot {
            standing,
            path: self.path(),
            version: self.version().unwrap_or(0),
            datagram_max: self.mtu.size(),
            window: bulk.windows(),
            share: bulk.gate.share(),
            pace: bulk.pace(),
            flows: bulk.flows(),
            in_flight: small.flight.in_flight() + bulk.flight.in_flight(),
            datagrams_in_flight: small.flight.datagrams() + bulk.flight.datagrams(),
            unsettled: queues.unsettled,
            queued_small: queues.small,
            queued_bulk: queues.bulk,
            blocked: queues.blocked,
            credit: queues.credit,
            held: self.inbox.held(),
            round_trip: rtt.smoothed().unwrap_or_default(),
            round_trip_variation: rtt.variation(),
            round_trip_least: rtt.least(),
        }
    }

    /// Returns the current state of each flow of bulk in use, if there are several.
    pub fn flows(&self, now: Time) -> impl Iterator<Item = FlowSnapshot> + '_ {
        let bulk = &self.sending.bulk;
        let path = self.path().unwrap_or_default();
        (0..bulk.flows()).filter(|_| bulk.flows() > 1).map(move |flow| {
            let record = bulk.flight.flow(flow);
            let share = record.share();
            FlowSnapshot {
                flow,
                path: bulk.path_of(flow, path),
                window: bulk.window_of(flow),
                in_flight: record.in_flight(),
                round_trip: record.rtt.smoothed().unwrap_or_default(),
                datagrams_sent: share.map_or(0, |share| share.sent),
                datagrams_lost: share.map_or(0, |share| share.losses),
                cut_for: share.map_or(Duration::ZERO, |share| share.silence.cut_for(now)),
            }
        })
    }

    /// Returns the durations of round trips and messages.
    #[must_use]
    pub fn latencies(&self) -> Latencies<'_> {
        Latencies { round_trip: &self.round_trips, settle: self.outbox.settle_times() }
    }
}
