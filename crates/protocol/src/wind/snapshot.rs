//! How a connection stands at this moment, for people and tests that look.

use super::connection::{Connection, Phase};
use super::lanes::PerLane;
use super::{Death, Latency};
use core::time::Duration;

/// Is the peer there?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Neither end knows of both.
    Connecting,
    /// Both ends know each other.
    Established,
    /// The end, and why.
    Ended(Death),
}

/// How a connection stands. Unlike [`Statistics`](super::Statistics), which only grow, all of this
/// rises and falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Is the peer there?
    pub standing: Standing,
    /// The candidate path in use, once established.
    pub path: Option<u8>,
    /// Bytes of the largest datagram sent.
    pub datagram_max: usize,
    /// Bytes that the congestion controller allows in flight.
    pub window: u64,
    /// Bytes that the peer's share of its buffer allows in flight.
    pub share: u64,
    /// Bytes a second that fragments may go with; 0: no pace.
    pub pace: u64,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: u64,
    /// Their datagrams.
    pub datagrams_in_flight: usize,
    /// Messages posted and not settled.
    pub unsettled: usize,
    /// Of those, the small ones that wait to be sent (again).
    pub queued_small: usize,
    /// Of those, the ones in fragments of which something waits to be sent (again).
    pub queued_bulk: usize,
    /// Of those, the ones that wait for the peer's credit.
    pub blocked: usize,
    /// Bytes of credited messages that the peer would still take.
    pub credit: u64,
    /// Bytes of the peer's messages that are held back or being collected.
    pub held: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub round_trip: Duration,
    /// Its variation.
    pub round_trip_variation: Duration,
    /// The shortest round trip seen; zero before the first sample.
    pub round_trip_least: Duration,
}

/// How long things took, since the connection was made.
#[derive(Clone, Copy, Debug)]
pub struct Latencies<'a> {
    /// Round trips, less the delay that the peer says it made: one for each acknowledgement that
    /// tells.
    pub round_trip: &'a Latency,
    /// Of each message, from [`Connection::post`] until it was settled by an acknowledgement.
    pub settle: &'a Latency,
}

impl Connection {
    /// How the connection stands now.
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
        // What is small tells of the path, bulk also of its own queue.
        let rtt = if small.flight.rtt.smoothed().is_some() {
            &small.flight.rtt
        } else {
            &bulk.flight.rtt
        };
        Snapshot {
            standing,
            path: self.path(),
            datagram_max: self.mtu.size(),
            window: bulk.controller.window(),
            share: bulk.gate.share(),
            pace: bulk.gate.pace(),
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

    /// How long round trips and messages took.
    #[must_use]
    pub fn latencies(&self) -> Latencies<'_> {
        Latencies { round_trip: &self.round_trips, settle: self.outbox.settle_times() }
    }
}
