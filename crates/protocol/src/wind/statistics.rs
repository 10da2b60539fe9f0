//! What a connection counts. All only grow; what rises and falls is told by
//! [`Snapshot`](super::Snapshot).

use crate::counters;

counters! {
/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Statistics {
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    /// Taken in: not those dropped for one of the reasons below.
    pub datagrams_received: u64,
    pub bytes_received: u64,
    /// Handshake datagrams, both ways.
    pub handshakes_sent: u64,
    pub handshakes_received: u64,
    pub messages_posted: u64,
    pub messages_delivered: u64,
    pub acknowledgements_sent: u64,
    pub acknowledgements_received: u64,
    pub pings_sent: u64,
    /// Datagrams whose content was sent again because later ones were acknowledged.
    pub lost_by_reordering: u64,
    /// … because they were overtaken long ago.
    pub lost_by_time: u64,
    /// … because nothing was acknowledged for a probe timeout.
    pub lost_by_probe: u64,
    /// … because the path has become too narrow for them.
    pub lost_by_size: u64,
    /// Times that nothing was acknowledged for a probe timeout.
    pub probe_timeouts: u64,
    /// Those of them at which the oldest two went again and nothing else was given up.
    pub tail_probes: u64,
    /// Datagrams declared lost that were acknowledged after all.
    pub spurious_losses: u64,
    /// Times that all losses for which the window was reduced had been spurious.
    pub windows_restored: u64,
    /// Datagrams that came marked: a queue on the way was filling.
    pub marked_received: u64,
    /// Of the datagrams sent, those that the peer says came marked.
    pub marked_sent: u64,
    /// Datagrams sent to find out what the path carries.
    pub size_probes_sent: u64,
    pub size_probes_lost: u64,
    /// Times that bulk went to the port for all because nothing came through by that of its own.
    pub bulk_ports_shunned: u64,
    /// Times that segmentation offload was avoided because trains of datagrams were lost.
    pub trains_avoided: u64,
    /// Times that kernel bypass was avoided because what took it was lost.
    pub bypasses_avoided: u64,
    /// Times that a path in use did not carry any more what it had carried.
    pub black_holes: u64,
    /// Datagrams received a second time, or too late to tell.
    pub duplicate_datagrams: u64,
    /// Messages (or parts) that had already arrived in another datagram.
    pub duplicate_messages: u64,
    /// Datagrams whose seal was right and whose content was not: the peer has a bug.
    pub malformed: u64,
    /// Datagrams of an earlier life of this connection or of the peer.
    pub stale: u64,
    /// Fragments whose message is not known (its OPEN was lost): not acknowledged, so sent again.
    pub unknown_fragments: u64,
    /// Datagrams not acknowledged because there was no room to hold their messages back.
    pub over_limit: u64,
    pub refusals_sent: u64,
    pub refusals_received: u64,
    pub restarts: u64,
}
}
