//! Counters of a node's activity.

use oikaze_protocol::{coherence, wind};
use oikaze_runtime::node::RealEngine;
use serde::Serialize;

/// One node's counters, all of them from its start.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let before = job.statistics();
/// job.barrier()?;
/// let after = job.statistics();
/// assert_eq!(after.barriers, before.barriers + 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeStatistics {
    /// Page faults of the application on shared arrays, for loads.
    pub read_faults: u64,
    /// Page faults of the application on shared arrays, for stores.
    pub write_faults: u64,
    /// Pages fetched from their homes.
    pub pages_fetched: u64,
    /// Diffs sent to homes.
    pub diffs: u64,
    /// Bytes of diffs sent.
    pub diff_bytes: u64,
    /// Barriers and reductions passed.
    pub barriers: u64,
    /// Number of locks taken.
    pub locks: u64,
    /// Number of datagrams sent.
    pub datagrams_sent: u64,
    /// Number of datagrams received.
    pub datagrams_received: u64,
    /// Bytes sent, in UDP payloads.
    pub bytes_sent: u64,
    /// Bytes received, in UDP payloads.
    pub bytes_received: u64,
    /// Messages or parts of them sent again.
    pub retransmissions: u64,
    /// Datagrams dropped for a wrong seal.
    pub corrupt: u64,
    /// Datagrams dropped because their identifier is of no connection of this node.
    pub unknown_connection: u64,
    /// Handshakes dropped because their authentication code is of another secret.
    pub bad_mac: u64,
    /// Handshakes dropped before they were verified, because wrong ones have used up the rate limit
    /// for verification.
    pub rate_limited: u64,
    /// Handshakes dropped because a newer one had come from their sender. Most are replays.
    pub stale_handshakes: u64,
    /// Handshakes without the cookie that proves the address of their sender.
    pub no_cookie: u64,
    /// Datagrams dropped because they had been received before.
    pub duplicates: u64,
    /// Messages that were placed into posted memory as their bytes arrived, without a copy in
    /// between ([`Job::post_receive`](crate::Job::post_receive)).
    pub placed_messages: u64,
    /// Datagrams sent to multicast groups: each once, for all of its receivers.
    pub group_datagrams_sent: u64,
    /// Bytes sent to multicast groups, in UDP payloads. They are not in `bytes_sent`.
    pub group_bytes_sent: u64,
    /// Datagrams of multicast groups received.
    pub group_datagrams_received: u64,
    /// Members of the multicast groups to which this node sends now, all groups together.
    pub group_members: u64,
    /// Notices of the link, such as that the kernel refused segmentation offload.
    pub notices: Vec<String>,
}

impl NodeStatistics {
    pub(crate) fn of(engine: &mut RealEngine) -> Self {
        let coherence: coherence::CoherenceStatistics = *engine.coherence().statistics();
        let (counters, groups) = (engine.counters(), engine.group_counters());
        let mut sum = Self {
            read_faults: coherence.read_faults,
            write_faults: coherence.write_faults,
            pages_fetched: coherence.fetched_pages,
            diffs: coherence.diffs,
            diff_bytes: coherence.diff_bytes,
            barriers: coherence.barriers + coherence.reductions,
            locks: coherence.locks,
            corrupt: counters.bad_seal,
            unknown_connection: counters.unknown_connection,
            bad_mac: counters.bad_mac,
            rate_limited: counters.rate_limited,
            stale_handshakes: counters.stale_handshakes,
            no_cookie: counters.no_cookie,
            placed_messages: counters.placed_messages,
            group_datagrams_sent: groups.group_datagrams_sent,
            group_bytes_sent: groups.group_bytes_sent,
            group_datagrams_received: groups.group_datagrams_received,
            group_members: groups.group_members,
            notices: engine.notices().to_vec(),
            ..Self::default()
        };
        for peer in (0..engine.nodes()).filter_map(|rank| engine.peer_statistics(rank)) {
            sum.add(&peer);
        }
        sum
    }

    fn add(&mut self, peer: &wind::Statistics) {
        self.datagrams_sent += peer.datagrams_sent;
        self.datagrams_received += peer.datagrams_received;
        self.bytes_sent += peer.bytes_sent;
        self.bytes_received += peer.bytes_received;
        self.duplicates += peer.duplicate_datagrams;
        self.retransmissions +=
            peer.lost_by_reordering + peer.lost_by_time + peer.lost_by_probe + peer.lost_by_size;
    }
}
