//! Counters of multicast.

use oikaze_protocol::counters;

counters! {
/// Counters of multicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Datagrams sent to groups. Each counts once, however many members it has.
    pub group_datagrams_sent: u64,
    /// Bytes of these datagrams, in UDP payloads.
    pub group_bytes_sent: u64,
    /// Datagrams received in streams that this node follows.
    pub group_datagrams_received: u64,
    /// Datagrams to groups that repaired what several members had lost.
    pub group_repairs: u64,
    /// Times that a member was left out of a stream for a while, because it held the others up or
    /// heard too little.
    pub group_members_left_out: u64,
    /// Streams that were opened.
    pub group_streams_opened: u64,
    /// Messages whose first flight was shared, counted once for all of their receivers.
    pub group_messages: u64,
    /// Members that the node's streams have proven now.
    pub group_members: u64,
    /// Datagrams of streams that this node does not follow, and its own that came back.
    pub group_datagrams_unknown: u64,
}
}
