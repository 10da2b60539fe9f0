//! Admits requests: checks each once, holds an operation back behind a fence if need be, and makes
//! it a message.

use crate::client::completion::{Keep, Value};
use crate::client::submission::{Request, Submission};
use crate::failure::Failure;
use crate::flow::post::Outbound;
use crate::inbox::Inbox;
use crate::leaving::leave_after_operations;
use crate::ops::gated::GatedOperation;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::QUEUED_MAX;
use oikaze_protocol::rma::{Rma, RmaError};
use oikaze_protocol::wind::Token;

/// Admits a request: this is the one place where a request is checked. A fence may still hold an
/// admitted operation back.
///
/// # Errors
/// The engine has ended; the peer does not exist, or is dead; a region is being deregistered; or
/// too much is queued to the peer.
#[inline]
pub(crate) fn admit<L: Link, P: Pages>(
    submission: &Submission,
    out: &Outbound<'_, L, P>,
) -> Result<(), Failure> {
    let Submission { request, completion, keep } = submission;
    if let (Some(ended), Some(_)) = (&out.ops.ended, completion) {
        return Err(ended.clone());
    }
    let Some(peer) = request.peer() else { return Ok(()) };
    if let Some(failure) = refusal_of_peer(peer, out) {
        return Err(failure);
    }
    if let Some(error) = refusal_of_region(request, keep, &out.layers.memory) {
        return Err(error.into());
    }
    let copied = request.copied();
    let queued = if copied > 0 { out.ops.in_flight.copied(peer) } else { 0 };
    // A single operation may be longer than the limit (MEM-15.6).
    if queued > 0 && queued.saturating_add(copied) > QUEUED_MAX {
        return Err(Failure::QueueFull { peer, queued });
    }
    Ok(())
}

/// Fails a request that was not admitted.
#[cold]
pub(crate) fn refuse(submission: &Submission, failure: Failure, inbox: &mut Inbox) {
    if let Some(completion) = &submission.completion {
        completion.settle(Err(failure));
        inbox.add_settled(1);
    }
}

/// Begins an admitted operation, unless a fence holds it back.
#[inline]
pub(crate) fn begin<L: Link, P: Pages>(submission: Submission, out: &mut Outbound<'_, L, P>) {
    let Submission { request, completion, keep } = submission;
    let peer = request.peer();
    let token = completion.map_or(Token::NONE, |completion| {
        let is_message = matches!(request, Request::Send { .. });
        out.ops.in_flight.insert(completion, keep, peer, request.copied(), is_message)
    });
    let held_by = peer.filter(|peer| out.ops.fences.hold(*peer));
    let Some(peer) = held_by else { return start(request, token, out) };
    if let Err(failure) = out.ops.fences.add(peer, request, token) {
        out.ops.in_flight.settle(token, Err(failure));
    }
}

/// Begins the requests that fences held back for operations that have ended, and settles the
/// flushes that waited for these operations. Returns `true` if anything was begun.
pub(crate) fn release_held<L: Link, P: Pages>(
    out: &mut Outbound<'_, L, P>,
    inbox: &mut Inbox,
) -> bool {
    let peers = out.ops.fences.take_due(&mut out.ops.in_flight.outstanding);
    if peers.is_empty() {
        return false;
    }
    let mut begun = false;
    for &peer in &peers {
        while out.ops.fences.holds_back() {
            let has_room = out.has_room_for_program(peer);
            let outstanding = &out.ops.in_flight.outstanding;
            let released = out.ops.fences.next_released(peer, outstanding, has_room);
            let Some((request, token)) = released else { break };
            start(request, token, out);
            begun = true;
        }
    }
    let settled = out.ops.fences.settle_flushes(&peers, &out.ops.in_flight.outstanding);
    inbox.add_settled(settled);
    begun
}

/// Begins the operations whose gates are settled, or fails them with the failures of their gates.
/// Returns `true` if there were any.
pub(crate) fn begin_gated<L: Link, P: Pages>(out: &mut Outbound<'_, L, P>) -> bool {
    let mut any = false;
    while let Some((GatedOperation { request, token, .. }, outcome)) = out.ops.gated.take_due() {
        any = true;
        match outcome {
            Ok(_) => start(request, token, out),
            Err(failure) => {
                out.ops.in_flight.settle(token, Err(failure));
            }
        }
    }
    any
}

/// Returns the failure of every operation to a peer that does not exist, or is dead.
#[inline]
fn refusal_of_peer<L, P>(peer: Rank, out: &Outbound<'_, L, P>) -> Option<Failure> {
    if peer == out.peers.me() {
        return None;
    }
    match out.peers.get(peer) {
        None => Some(Failure::NoSuchNode { rank: peer, nodes: out.peers.nodes() }),
        Some(known) => known.connection.death().map(|death| Failure::PeerLost { peer, death }),
    }
}

/// Returns the error of a new request that uses a region that is being deregistered. Deregistration
/// would not wait for the request, or would never end. Earlier requests may use the region, also if
/// a fence has held them back since. A region that has taken over another region's slot is refused,
/// too: `keep` holds the region that the request meant (MEM-1.5, MEM-1.8).
#[inline]
fn refusal_of_region(request: &Request, keep: &Keep, memory: &RegionTable) -> Option<RmaError> {
    let (region, error) = match request {
        Request::After { request, .. } => return refusal_of_region(request, keep, memory),
        Request::Put { body, .. }
        | Request::PutNotice { body, .. }
        | Request::PutBlock { body, .. }
        | Request::Accumulate { body, .. }
        | Request::Push { body, .. }
        | Request::Send { body, .. } => (body.region()?, RmaError::SourceGone),
        Request::Get { into, .. } => (into.region, RmaError::DestinationGone),
        Request::GetBlock { into, .. } => (into.place().0, RmaError::DestinationGone),
        _ => return None,
    };
    (!memory.may_begin(region, keep.as_ref())).then_some(error)
}

/// Returns the error of a get that begins, if its destination cannot be written. A fence may have
/// held the get back since it was admitted.
fn lost_destination(request: &Request, memory: &RegionTable) -> Option<RmaError> {
    let (region, range) = match request {
        Request::Get { into, .. } => (into.region, Some((into.offset, into.len))),
        Request::GetBlock { into, .. } => into.place(),
        _ => return None,
    };
    let usable = range.is_some_and(|(offset, len)| memory.is_usable(region, offset, len));
    let error =
        if memory.region(region).is_none() { RmaError::DestinationGone } else { RmaError::Absent };
    (!usable).then_some(error)
}

/// Makes an operation a message, once no fence holds the operation back.
fn start<L: Link, P: Pages>(request: Request, token: Token, out: &mut Outbound<'_, L, P>) {
    if let Some(lost) = lost_destination(&request, &out.layers.memory) {
        out.ops.in_flight.settle(token, Err(lost.into()));
        return;
    }
    let (rma, coherence, pages) =
        (&mut out.layers.rma, &mut out.layers.coherence, &mut out.layers.pages);
    let (to, message) = match request {
        Request::Put { to, key, offset, body, signal } => {
            (to, rma.put(key, offset, body, signal, token))
        }
        Request::PutNotice { to, key, offset, body, tag } => {
            (to, Rma::put_notice(key, offset, body, tag, token))
        }
        Request::Get { from, key, offset, into } => (from, rma.get(from, key, offset, into, token)),
        Request::PutBlock { to, key, block, body, signal } => {
            (to, rma.put_block(key, *block, body, signal, token))
        }
        Request::GetBlock { from, key, block, into } => {
            (from, rma.get_block(from, key, *block, into, token))
        }
        Request::Atomic { at, key, offset, op, fetch: true } => {
            (at, rma.atomic(at, key, offset, op, token))
        }
        Request::Atomic { at, key, offset, op, fetch: false } => {
            (at, Ok(Rma::change(key, offset, op, token)))
        }
        Request::Accumulate { to, key, offset, how, body } => {
            (to, Rma::accumulate(key, offset, how, body, token))
        }
        Request::Push { to, key, body, urgent } => (to, Rma::push(key, body, urgent, token)),
        Request::Lookup { at, name } => (at, rma.lookup(at, &name, token)),
        Request::Send { to, class, tag, body } => (to, Rma::user(class, tag, body, token)),
        Request::After { gate, request } => {
            let request = *request;
            return out.ops.gated.add(GatedOperation { gate, request, token });
        }
        Request::Parcel { to, head, body } => {
            // Parcels use the room that is reserved for the library. Credit of their own bounds
            // them (COLL-1.4).
            match Rma::parcel(&head, body, token) {
                Ok(message) if out.groups.gathers_parcels => out.post_or_gather(to, message),
                Ok(message) => out.post(to, message),
                Err(error) => {
                    out.ops.in_flight.settle(token, Err(error.into()));
                }
            }
            return;
        }
        Request::Declare(declaration) => {
            coherence.declare(declaration, token, pages);
            return;
        }
        Request::CannotDeclare(why) => {
            coherence.declare_unfit(why, token, pages);
            return;
        }
        Request::Touch { array, pages: range, access } => {
            return coherence.touch(array, range, access, token, pages);
        }
        Request::TouchMany { array, ranges, access } => {
            return coherence.touch_many(array, ranges, access, token, pages);
        }
        Request::Prefetch { array, ranges } => {
            coherence.prefetch(array, &ranges, pages);
            out.ops.in_flight.settle(token, Ok(Value::Done));
            return;
        }
        Request::Fault { array, page, access } => {
            return coherence.fault(array, page, access, pages);
        }
        Request::Barrier => return coherence.barrier(token, pages),
        Request::Target { array, offset, len, op, operands } => {
            return coherence.target(array, offset, len, op, &operands, token, pages);
        }
        Request::Free(array) => return coherence.free(array, token, pages),
        Request::Cannot(why) => return coherence.cannot(why, token, pages),
        Request::Step(step) => return coherence.step(step, token, pages),
        Request::Reduce(reduction) => return coherence.reduce(reduction, token, pages),
        Request::ReleaseToTeam => return coherence.release_to_team(token, pages),
        Request::Notify(to) => return coherence.notify(to, token, pages),
        Request::WaitNotify { from, takes } => {
            return coherence.wait_notify(from, takes, token, pages);
        }
        Request::AcquireFromTeam(bodies) => {
            return coherence.acquire_from_team(&bodies, token, pages);
        }
        Request::Leave => return leave_after_operations(token, out.ops, out.layers),
        Request::Lock(lock, mode) => {
            return coherence.lock_in_mode(lock, mode, token, pages);
        }
        Request::Unlock(lock) => return coherence.unlock(lock, token, pages),
        // Requests that take effect at once, which `control::apply` performs.
        Request::Withdraw { .. }
        | Request::Remove { .. }
        | Request::Cancel { .. }
        | Request::Tell { .. }
        | Request::Promise { .. }
        | Request::Fence { .. }
        | Request::Flush { .. }
        | Request::Map { .. }
        | Request::Swap(_)
        | Request::Collect
        | Request::Consumed { .. }
        | Request::PeerEnded { .. }
        | Request::WantGroup(_)
        | Request::Close => return,
    };
    match message {
        Ok(message) if !out.has_room_for_program(to) => {
            out.layers.rma.unposted(&message);
            out.fail(to, token, Failure::TooMany { peer: to });
        }
        Ok(message) => out.post(to, message),
        Err(error) => {
            out.ops.in_flight.settle(token, Err(error.into()));
        }
    }
}
