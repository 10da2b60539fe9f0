//! Registrations that change and end while operations are under way: the effect on each part that
//! may still hold something of a region (MEM-1.7, MEM-1.8).

#[cfg(test)]
mod tests;

use crate::client::completion::Completion;
use crate::failure::Failure;
use crate::flow::events;
use crate::flow::post::Outbound;
use crate::inbox::Inbox;
use crate::io::egress::Egress;
use oikaze_os::memory::{Holder, MemoryError, Region, Registered};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::rma::{Rights, RmaError};
use oikaze_protocol::wind::Token;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Removes a region. Nothing can touch it afterwards: neither peers, nor answers in flight, nor
/// datagrams that wait for the link. (None is being handed to the kernel or received into the
/// region now, because that happens inside turns. For those that the kernel has already: WIND-5.5.)
/// The caller must wait for operations of this node that still use the region, or cancel them.
pub(crate) fn remove<L: Link, P: Pages>(
    slot: u32,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) -> Option<Region> {
    if planted(Bug::KeepRegion) {
        return out.layers.memory.region(slot).cloned();
    }
    let region = out.layers.memory.remove(slot)?;
    out.shm.take_back(slot);
    cut_off(slot, out, egress);
    Some(region)
}

/// Removes a region and registers the same memory in the same slot, under another number and key.
pub(crate) fn renew<L: Link, P: Pages>(
    slot: u32,
    rights: Rights,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) -> Result<Registered, MemoryError> {
    let registered = out.layers.memory.renew(slot, rights)?;
    out.shm.take_back(slot);
    cut_off(slot, out, egress);
    Ok(registered)
}

/// Closes a region to peers; operations of this node go on. Returns `false` if it was closed
/// already.
pub(crate) fn close<L: Link, P: Pages>(
    slot: u32,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) -> bool {
    if out.layers.memory.is_closed(slot) {
        return false;
    }
    if planted(Bug::KeepRegion) {
        return true;
    }
    out.layers.memory.close(slot);
    out.shm.take_back(slot);
    let ended = out.layers.rma.region_removed(slot);
    withdraw(slot, &ended, out, egress);
    true
}

/// Changes the rights of peers, on every page or on some pages.
pub(crate) fn set_rights<L: Link, P: Pages>(
    slot: u32,
    pages: Option<Range<u64>>,
    rights: Rights,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) -> Result<(), MemoryError> {
    let memory = &mut out.layers.memory;
    match pages {
        None => memory.set_rights(slot, rights)?,
        Some(_) if planted(Bug::IgnorePages) => {}
        Some(pages) => memory.protect(slot, pages, rights)?,
    }
    out.shm.take_back(slot);
    let ended = out.layers.rma.rights_changed(slot, &out.layers.memory);
    withdraw(slot, &ended, out, egress);
    Ok(())
}

/// Withdraws all rights of peers to a torn region. The program would not see what peers put there,
/// and peers would not see what the program writes (MEM-20.3).
pub(crate) fn shut<L: Link, P: Pages>(
    region: &Region,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) {
    for slot in out.layers.memory.slots_of(region) {
        // To grant nothing cannot fail.
        let _ = set_rights(slot, None, Rights::NONE, out, egress);
    }
    let len = region.len();
    inbox.note(format!(
        "peers cannot reach a region of {len} bytes any more: {}",
        MemoryError::Torn
    ));
}

/// Called when the slot is no longer valid. Drops all that still refers to it.
fn cut_off<L: Link, P: Pages>(slot: u32, out: &mut Outbound<'_, L, P>, egress: &mut Egress) {
    let ended = out.layers.rma.region_removed(slot);
    withdraw(slot, &ended, out, egress);
    egress.forget(slot);
}

/// Drops answers from a region that will not be finished: neither their messages nor their
/// datagrams are sent any more.
fn withdraw<L: Link, P: Pages>(
    slot: u32,
    ended: &[(Rank, Token)],
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) {
    if ended.is_empty() || planted(Bug::KeepAnswering) {
        return;
    }
    // However many the answers are, the queues are searched once.
    let tokens: HashSet<Token> = ended.iter().map(|&(_, token)| token).collect();
    let is_ended = |token: Token| tokens.contains(&token);
    let peers: BTreeSet<Rank> = ended.iter().map(|&(to, _)| to).collect();
    for to in peers {
        out.cancel_to(to, &is_ended);
    }
    out.loopback.forget(&is_ended);
    // Other datagrams of the region, of puts under way, are lost as on a bad wire, and gathered
    // again.
    egress.forget(slot);
    // The requesters are to be told.
    out.peers.set_due(true);
}

/// Ends every operation in flight that keeps `holder` with this failure, and cuts it off from its
/// memory.
pub(crate) fn end_keeping<L: Link, P: Pages>(
    holder: &Holder,
    failure: &Failure,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) {
    if planted(Bug::ForgetKept) {
        return;
    }
    events::settle(out, inbox);
    let tokens: Vec<Token> = out.ops.in_flight.keeping(holder).collect();
    end_operations(&tokens, failure, out, egress);
}

/// Ends operations whose source file has lost the bytes to send, even if some bytes were sent
/// (MEM-1.12).
pub(crate) fn end_broken<L: Link, P: Pages>(
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) {
    let Some(slot) = out.layers.memory.take_broken() else { return };
    let ended = out.layers.rma.source_lost(slot);
    withdraw(slot, &ended, out, egress);
    let Some(holder) = out.layers.memory.holder(slot) else { return };
    end_keeping(&holder, &Failure::Remote(RmaError::Absent), out, egress, inbox);
}

/// Cancels an operation, with all its parts.
pub(crate) fn cancel<L: Link, P: Pages>(
    completion: &Arc<Completion>,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
    inbox: &mut Inbox,
) {
    // The operation may be done already (a lock may be held): then there is nothing to cancel, and
    // the completion says so.
    events::settle(out, inbox);
    let tokens: Vec<Token> = out.ops.in_flight.tokens_of(completion).collect();
    end_operations(&tokens, &Failure::Cancelled, out, egress);
}

/// Ends operations: nothing of them is read, sent or placed any more. However many they are, the
/// queues are searched once.
fn end_operations<L: Link, P: Pages>(
    tokens: &[Token],
    failure: &Failure,
    out: &mut Outbound<'_, L, P>,
    egress: &mut Egress,
) {
    if tokens.is_empty() {
        return;
    }
    let ended: HashSet<Token> = tokens.iter().copied().collect();
    let is_ended = |token: Token| ended.contains(&token);
    out.cancel_to_all(&is_ended);
    out.loopback.forget(&is_ended);
    out.ops.fences.cancel(&is_ended);
    out.ops.gated.cancel(&is_ended);
    out.ops.retry.forget_all(&is_ended);
    egress.discard();
    for &token in tokens {
        out.layers.cancel(token);
        out.ops.in_flight.settle(token, Err(failure.clone()));
    }
    // Peers are told of withdrawn messages, and requests that fences held back may begin.
    out.peers.set_due(true);
}
