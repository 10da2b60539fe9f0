//! Leaving the job: this node's own leave waits for its one-sided operations; another node's
//! process may end without a leave.

use crate::layers::Layers;
use crate::ops::Ops;
use crate::peers::Peers;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Token};
use std::time::Duration;

/// Time from the launcher's report that a process has ended until its peers count it as dead. It is
/// longer than datagrams stay on a network or in a socket's buffer.
const ENDED_GRACE: Duration = Duration::from_millis(50);

/// Leaves once this node's one-sided operations have ended. A node that learns that this node
/// leaves gives up waiting for words that only this node could still change (COH-6.7), so no
/// operation may be on its way to such words.
pub(crate) fn leave_after_operations<P: Pages>(
    token: Token,
    ops: &mut Ops,
    layers: &mut Layers<P>,
) {
    ops.leave = Some(token);
    begin_to_leave(ops, layers);
}

/// Begins to leave if this was requested and no one-sided operation is in flight. Returns `true` if
/// it began.
pub(crate) fn begin_to_leave<P: Pages>(ops: &mut Ops, layers: &mut Layers<P>) -> bool {
    let Some(token) = ops.leave.take_if(|_| ops.in_flight.one_sided() == 0) else {
        return false;
    };
    layers.coherence.leave(token, &mut layers.pages);
    true
}

/// Called when the launcher reports that the process of a peer has ended. The peer is dead unless
/// it has left in order (END-1.4, END-1.5).
pub(crate) fn process_ended<P>(
    rank: Rank,
    success: bool,
    now: Time,
    peers: &mut Peers,
    layers: &Layers<P>,
) {
    let coherence = &layers.coherence;
    let has_left = success && (coherence.is_leaving(rank) || coherence.has_left());
    if has_left || rank == peers.me() {
        return;
    }
    if let Some(peer) = peers.touch(rank) {
        // Its last datagrams may still be on the way.
        peer.connection.end_by(now + ENDED_GRACE, Death::Ended);
    }
    peers.set_due(true);
}
