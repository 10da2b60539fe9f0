//! Counters of a connection, which only grow. [`Snapshot`](crate::wind::Snapshot) holds the values
//! that rise and fall.

use crate::counters;

counters! {
/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Statistics {
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    /// Datagrams accepted, without those dropped for one of the reasons below.
    pub datagrams_received: u64,
    pub bytes_received: u64,
    /// Handshake datagrams, in both directions.
    pub handshakes_sent: u64,
    pub handshakes_received: u64,
    pub messages_posted: u64,
    pub messages_delivered: u64,
    pub acknowledgements_sent: u64,
    pub acknowledgements_received: u64,
    pub pings_sent: u64,
    /// Datagrams whose content was sent again because later ones were acknowledged.
    pub lost_by_reordering: u64,
    /// Datagrams whose content was sent again because later ones overtook them long ago.
    pub lost_by_time: u64,
    /// Datagrams whose content was sent again because nothing of them all, or of their flow, was
    /// acknowledged for a probe timeout.
    pub lost_by_probe: u64,
    /// Datagrams whose content was sent again because the path has become too narrow for them.
    pub lost_by_size: u64,
    /// Probe timeouts, each after a time in which nothing was acknowledged.
    pub probe_timeouts: u64,
    /// Probe timeouts at which only the two oldest datagrams were sent again.
    pub tail_probes: u64,
    /// Datagrams declared lost that were acknowledged later.
    pub spurious_losses: u64,
    /// Times that all losses for which the window was reduced proved spurious.
    pub windows_restored: u64,
    /// Datagrams that came marked CE, because a queue on the way was filling.
    pub marked_received: u64,
    /// Datagrams sent that, according to the peer, came marked CE.
    pub marked_sent: u64,
    /// Datagrams sent to find out which size the path carries.
    pub size_probes_sent: u64,
    pub size_probes_lost: u64,
    /// Times that bulk moved to the peer's first port because nothing got through to its bulk port.
    pub bulk_ports_shunned: u64,
    /// Times that a flow of bulk was given up because it carried nothing, while others did.
    pub flows_cut: u64,
    /// Times that segmentation offload was avoided because trains of datagrams were lost.
    pub trains_avoided: u64,
    /// Times that kernel bypass was avoided because datagrams that took it were lost.
    pub bypasses_avoided: u64,
    /// Times that a path no longer carried a size that it had carried.
    pub black_holes: u64,
    /// Datagrams received a second time, or too late to tell.
    pub duplicate_datagrams: u64,
    /// Messages (or parts) that had already arrived in another datagram.
    pub duplicate_messages: u64,
    /// Datagrams with a correct seal and wrong content, which means a bug in the peer.
    pub malformed: u64,
    /// Datagrams from an earlier incarnation of this connection or of the peer.
    pub stale: u64,
    /// Fragments of unknown messages, whose OPEN was lost. They are not acknowledged, so the peer
    /// sends them again.
    pub unknown_fragments: u64,
    /// Datagrams not acknowledged because there was no room to hold their messages back.
    pub over_limit: u64,
    /// Group datagrams addressed to the peer.
    pub group_datagrams_sent: u64,
    /// Group datagrams of the peer that were accepted.
    pub group_datagrams_received: u64,
    /// Group datagrams whose content was sent again to the peer alone.
    pub group_datagrams_lost: u64,
    pub refusals_sent: u64,
    pub refusals_received: u64,
    pub restarts: u64,
}
}
