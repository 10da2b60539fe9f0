//! Counters of coherence, for `oikaze report`, the demo's last lines and the tests.

use crate::counters;

counters! {
/// Counters since the start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoherenceStatistics {
    /// Arrays that were freed (COH-14.3).
    pub arrays_freed: u64,
    /// Touches of pages that were invalid here.
    pub read_faults: u64,
    /// Touches that made a page dirty.
    pub write_faults: u64,
    /// Fetch requests sent.
    pub fetches: u64,
    /// Pages fetched to this node.
    pub fetched_pages: u64,
    /// Pages fetched in vain, because a notice overtook them.
    pub stale_pages: u64,
    /// Pages sent to other nodes.
    pub served_pages: u64,
    /// Pages sent to other nodes that were not read ahead there.
    pub served_demanded_pages: u64,
    /// Pages whose changes were sent to their home.
    pub diffs: u64,
    /// Bytes of the bodies of diff messages.
    pub diff_bytes: u64,
    /// Pages of other nodes' diffs applied here.
    pub applied_diffs: u64,
    /// Pages named in write notices made here.
    pub notices: u64,
    /// Intervals of any node that were kept here, for nodes that may have to be told.
    pub intervals_kept: u64,
    /// Kept intervals that were forgotten, or joined with others (COH-4.5, COH-4.6).
    pub intervals_forgotten: u64,
    /// Bytes of what was told at barriers of teams and in notifications.
    pub knowledge_bytes: u64,
    /// Pages invalidated by other nodes' notices.
    pub invalidated_pages: u64,
    /// Number of barriers passed.
    pub barriers: u64,
    /// Number of reductions done.
    pub reductions: u64,
    /// Locks acquired here.
    pub locks: u64,
    /// Updates sent to readers.
    pub updates_sent: u64,
    /// Bytes of the bodies of updates sent.
    pub update_bytes: u64,
    /// Updates that arrived.
    pub updates_received: u64,
    /// Updates that arrived before their epoch and were held.
    pub updates_held: u64,
    /// Updates of pages that no guard had touched since the update before.
    pub updates_wasted: u64,
    /// Updates delivered by direct map.
    pub direct_map: u64,
    /// Updates and answers to fetches delivered by header through.
    pub header_through: u64,
    /// Updates and answers to fetches delivered by message through.
    pub message_through: u64,
    /// Updates delivered by direct diff decode.
    pub direct_diff_decode: u64,
    /// Diffs at their home, and updates, delivered by header-through diff decode.
    pub header_through_diff_decode: u64,
    /// Pages whose homes have moved to this node (COH-11).
    pub homes_moved: u64,
    /// Pages that were pushed to this node whole and became valid without a fetch.
    pub kept_pages: u64,
    /// Pages that stayed valid because a lock's grant had what was written to them.
    pub granted_pages: u64,
    /// Messages from other nodes that made no sense and were refused.
    pub refused: u64,
}
}

counters! {
/// Counters of one shared array on this node since it was made. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayStatistics {
    /// Fetch requests sent.
    pub fetches: u64,
    /// Pages fetched to this node.
    pub fetched_pages: u64,
    /// Pages sent to other nodes that asked for them.
    pub served_pages: u64,
    /// Diff messages sent, each with changes of one or more pages.
    pub diffs_sent: u64,
    /// Bytes of the bodies of diff messages.
    pub diff_bytes: u64,
    /// Updates sent to readers.
    pub updates_sent: u64,
    /// Bytes of the bodies of updates sent.
    pub update_bytes: u64,
    /// Updates that arrived.
    pub updates_received: u64,
    /// Updates of pages that no guard had touched since the update before.
    pub updates_wasted: u64,
    /// Pages whose homes have moved to this node (COH-11).
    pub homes_moved: u64,
}
}
