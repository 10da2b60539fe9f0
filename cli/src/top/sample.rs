//! Two samples of a node, and the difference between them.

use oikaze::Rank;
use oikaze::job::Seal;
use oikaze::observe::NodeView;
use oikaze::observe::page::PeerPage;
use oikaze_protocol::wind::{Histogram, Statistics};
use std::time::Duration;

/// Activity of a node since its previous sample, or since its start if there is none.
pub struct Sample<'a> {
    pub view: &'a NodeView,
    /// Time between the two samples by the node's own clock.
    pub span: Duration,
    pub peers: Vec<Peer<'a>>,
}

/// Traffic between a peer and the node since the previous sample.
pub struct Peer<'a> {
    pub rank: Rank,
    pub page: &'a PeerPage,
    pub counted: Statistics,
    pub round_trip: Histogram,
    pub settle: Histogram,
    seconds: f64,
}

impl<'a> Sample<'a> {
    pub fn of(view: &'a NodeView, before: &[NodeView]) -> Self {
        let same = |old: &&NodeView| {
            (old.pid, old.node.started, old.node.rank)
                == (view.pid, view.node.started, view.node.rank)
        };
        let old = before.iter().find(same);
        let span = view.node.at.saturating_sub(old.map_or(Duration::ZERO, |old| old.node.at));
        let peers = view.peers.iter().map(|(rank, page)| {
            let old = old
                .and_then(|old| old.peers.iter().find(|(known, _)| known == rank))
                .map(|(_, page)| page);
            Peer {
                rank: *rank,
                page,
                counted: old.map_or(page.counters, |old| page.counters.since(&old.counters)),
                round_trip: old.map_or_else(
                    || page.round_trip.clone(),
                    |old| page.round_trip.since(&old.round_trip),
                ),
                settle: old
                    .map_or_else(|| page.settle.clone(), |old| page.settle.since(&old.settle)),
                seconds: span.as_secs_f64(),
            }
        });
        Self { view, span, peers: peers.collect() }
    }

    /// Returns the protection of datagrams between the node and a peer. Returns `None` if the two
    /// share memory, in which nothing is sealed (SEAL-1.3).
    pub fn seal_of(&self, peer: &Peer<'_>) -> Option<Seal> {
        (peer.page.gauges.rings == 0).then_some(self.view.node.seal)
    }
}

impl Peer<'_> {
    /// Returns `count` per second since the previous sample, or 0 if no time has passed.
    pub fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the bytes of both directions since the previous sample. The table shows peers with
    /// the most traffic.
    pub fn traffic(&self) -> u64 {
        self.counted.bytes_sent.saturating_add(self.counted.bytes_received)
    }

    /// Returns the number of datagrams whose content was retransmitted, by the cause of their loss:
    /// overtaken by later datagrams, overdue by time, or a probe timeout.
    pub fn resent(&self) -> [u64; 3] {
        [self.counted.lost_by_reordering, self.counted.lost_by_time, self.counted.lost_by_probe]
    }
}
