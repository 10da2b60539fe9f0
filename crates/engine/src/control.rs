//! Requests that are not operations: fences, flushes, cancellation, changes of regions, credit,
//! sharing of memory with local peers, and closing.

use crate::client::completion::{Completion, Value};
use crate::client::submission::{Request, Submission};
use crate::flow::post::Outbound;
use crate::inbox::Inbox;
use crate::io::egress::Egress;
use crate::leaving::process_ended;
use crate::regions;
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;
use std::sync::Arc;

/// Performs a request that is not an operation ([`Request::is_operation`]). Settles its completion,
/// unless the outcome depends on earlier operations or on a local peer.
pub(crate) fn apply<L: Link, P: Pages>(
    submission: Submission,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) {
    let Submission { request, completion, .. } = submission;
    match request {
        Request::Withdraw { name } => drop(out.layers.rma.withdraw(&name)),
        Request::Remove { region } => {
            if let Some(slot) = out.layers.memory.slot(region) {
                regions::remove(slot, out, egress);
            }
        }
        Request::Cancel { completion: cancelled } => {
            regions::cancel(&cancelled, out, egress, inbox);
        }
        Request::Tell { completion, sink } => {
            return inbox.add_settled(completion.tell(sink).into());
        }
        Request::Promise { peer, channel, position, completion } => {
            return out.shm.promise(peer, &channel, position, completion, inbox);
        }
        Request::Fence { peer } => {
            out.ops.fences.fence(peer, &mut out.ops.in_flight.outstanding);
        }
        Request::Flush { peer } => {
            let outstanding = &mut out.ops.in_flight.outstanding;
            let completion = out.ops.fences.flush(peer, completion, outstanding);
            return done(completion, inbox);
        }
        Request::Map { at, key } => {
            let Some(completion) = completion else { return };
            return out.shm.ask_for_memory(at, key, completion, inbox);
        }
        Request::Swap(swap) => {
            let Some(completion) = completion else { return };
            return out.shm.ask_to_swap(*swap, completion, &out.layers.memory, inbox);
        }
        Request::Collect => {}
        Request::Consumed { from, messages, bytes } => {
            return out.consumed(from, messages, bytes);
        }
        Request::PeerEnded { peer, success } => {
            process_ended(peer, success, out.now, out.peers, out.layers);
        }
        Request::WantGroup(receivers) => out.want_stream(receivers),
        Request::Close => out.close(),
        operation => {
            debug_assert!(operation.is_operation(), "a request that nothing performs");
            return;
        }
    }
    done(completion, inbox);
}

fn done(completion: Option<Arc<Completion>>, inbox: &mut Inbox) {
    if let Some(completion) = completion {
        completion.settle(Ok(Value::Done));
        inbox.add_settled(1);
    }
}
