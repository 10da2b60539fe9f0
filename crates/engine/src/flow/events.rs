//! Turns events of connections, remote memory and coherence into outcomes of operations.

use crate::buffer_pool::Body;
use crate::client::completion::Value;
use crate::failure::Failure;
use crate::flow::post::Outbound;
use crate::flow::submit::{begin_gated, release_held};
use crate::inbox::{Arrived, Inbox, Parcel, ParcelBody, Placed};
use crate::leaving::begin_to_leave;
use crate::outcome::{acknowledged, lost, refused, returned};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{self, CoherenceEvent, Pages};
use oikaze_protocol::limits::ENDED_PEER_WAIT_TIME;
use oikaze_protocol::rma::{self, RmaError, RmaEvent};
use oikaze_protocol::wind::{Death, Event, Nonsense};

/// Settles all pending events. Returns `true` if this began something that had waited for them.
pub(crate) fn settle<L: Link, P: Pages>(out: &mut Outbound<'_, L, P>, inbox: &mut Inbox) -> bool {
    let mut at = 0;
    while let Some(rank) = out.peers.active.get(at) {
        while let Some(event) =
            out.peers.get_mut(rank).and_then(|peer| peer.connection.poll_event())
        {
            connection_event(rank, event, out, inbox);
        }
        at += 1;
    }
    out.peers.visits += at as u64;
    for (from, len) in std::mem::take(&mut out.layers.received) {
        out.consumed(from, 1, len);
        inbox.add_settled(1);
    }
    for parcel in std::mem::take(&mut out.layers.placed_parcels) {
        inbox.deliver_parcel(parcel, out.now);
    }
    out.take_stream_steps();
    rma_events(out, inbox);
    coherence_events(out, inbox);
    let begun = begin_gated(out);
    let released = release_held(out, inbox);
    begin_to_leave(out.ops, out.layers) || begun || released
}

/// Ends the connections to local peers that have ended, and fails the messages in their rings.
pub(crate) fn end_local_peers<L: Link, P: Pages>(out: &mut Outbound<'_, L, P>) {
    while let Some(ended) = out.shm.take_ended() {
        if let Some(peer) = out.peers.touch(ended.rank) {
            if matches!(ended.death, Death::Damaged | Death::Stuck)
                || peer.connection.is_established()
            {
                peer.connection.end(ended.death);
            } else {
                // While the nodes are still meeting, the connection may be about to hear why the
                // peer leaves.
                peer.connection.end_by(out.now + ENDED_PEER_WAIT_TIME, ended.death);
            }
        }
        // The connection's event does all that follows from the peer's end. Only the sharing of
        // memory ends here.
        for token in ended.unsettled {
            lost(ended.rank, token, out.ops, out.layers);
        }
    }
}

fn connection_event<L: Link, P: Pages>(
    rank: Rank,
    event: Event,
    out: &mut Outbound<'_, L, P>,
    inbox: &mut Inbox,
) {
    if let Event::Failed(_, death) | Event::Dead(death) = event
        && matches!(death, Death::Silent | Death::Unreachable)
        && let Some(stall) = out.link.stall()
    {
        // The silence is this machine's, and ends this node. Its operations get this reason.
        return inbox.end_link(stall.text);
    }
    match event {
        Event::Established => {}
        Event::Acknowledged(token) => acknowledged(token, out.ops, out.layers),
        Event::Returned => {
            let peer = out.peers.get_mut(rank);
            if let Some(message) = peer.and_then(|peer| peer.connection.take_returned()) {
                returned(rank, message, out.now, out.ops, out.layers);
            }
        }
        Event::Refused(token, refusal) => refused(token, refusal, out.ops, out.layers),
        Event::Failed(token, _) => lost(rank, token, out.ops, out.layers),
        Event::Dead(death) => peer_died(rank, death, out, inbox),
        Event::Fallback(fallback) => inbox.warn(format!("towards node {rank}, {fallback}")),
        Event::PeerSilent => {
            if let Some(address) = out.peers.address_of(rank) {
                out.link.report_silence(address);
            }
            if let Some(stall) = out.link.stall().filter(|stall| stall.is_new) {
                inbox.warn(stall.text);
            }
        }
        Event::Restarted { .. } => {
            // The new process uses another connection id; the state of the old one is lost.
            out.peers.renamed(rank);
            peer_died(rank, Death::Restarted, out, inbox);
        }
    }
}

fn peer_died<L: Link, P: Pages>(
    rank: Rank,
    death: Death,
    out: &mut Outbound<'_, L, P>,
    inbox: &mut Inbox,
) {
    // Operations that fail because of this death report its cause.
    if let Some(known) = out.peers.touch(rank) {
        known.held.clear();
        known.death = Some(death);
    }
    out.fail_retries(rank);
    out.end_streams_with(rank);
    out.layers.node_died(rank);
    for token in out.shm.detach(rank, death, out.ops, inbox) {
        lost(rank, token, out.ops, out.layers);
    }
    inbox.add_death(rank, death);
}

fn rma_events<L, P>(out: &mut Outbound<'_, L, P>, inbox: &mut Inbox) {
    while let Some(event) = out.layers.rma.poll_event() {
        match event {
            RmaEvent::Done { token, value } => {
                let value = match value {
                    rma::OperationValue::Nothing => Value::Done,
                    rma::OperationValue::Old(word) => Value::Word(word),
                    rma::OperationValue::Found(published) => Value::Region(published),
                };
                out.ops.in_flight.settle(token, Ok(value));
            }
            RmaEvent::Failed { token, error } => {
                let failure = match error {
                    RmaError::PeerDead(peer) => {
                        Failure::PeerLost { peer, death: out.peers.death_of(peer) }
                    }
                    other => Failure::Remote(other),
                };
                out.ops.in_flight.settle(token, Err(failure));
            }
            RmaEvent::Unanswered { by } => {
                // A stopped local peer answers when it resumes; the kernel reports its end.
                if !out.shm.contains(by) {
                    out.peers.give_up(by, Nonsense::Unanswered, out.now);
                }
            }
            RmaEvent::Placed { from, notice } => inbox.add_placed(Placed { from, notice }),
            RmaEvent::Parcel { from, head, body } => {
                let body = match body {
                    Ok(body) => ParcelBody::Bytes(Body::new(body, &out.layers.buffer_pool)),
                    Err(len) => ParcelBody::Refused(len),
                };
                inbox.deliver_parcel(Parcel { from, head, body }, out.now);
            }
            RmaEvent::Arrived { from, class, tag, body } => {
                let body = Body::new(body, &out.layers.buffer_pool);
                inbox.deliver(Arrived { from, class, tag, body }, out.now);
            }
        }
    }
}

fn coherence_events<L, P>(out: &mut Outbound<'_, L, P>, inbox: &mut Inbox) {
    while let Some(event) = out.layers.coherence.poll_event() {
        match event {
            CoherenceEvent::Done { token, value } => {
                let value = match value {
                    coherence::Value::None => Value::Done,
                    coherence::Value::Array(array) => Value::Array(array),
                    coherence::Value::Reduced(values) => Value::Reduced(values),
                    coherence::Value::Knowledge(bytes) => Value::Knowledge(bytes),
                    coherence::Value::Bytes(bytes) => Value::Bytes(bytes),
                    coherence::Value::LockTaken => Value::LockTaken,
                };
                out.ops.in_flight.settle(token, Ok(value));
            }
            CoherenceEvent::Contradiction { rank, nonsense } => {
                out.peers.give_up(rank, nonsense, out.now);
            }
            CoherenceEvent::Leaving { rank, silent } => inbox.add_leaving(rank, silent),
            CoherenceEvent::Failed { token, error } => {
                out.ops.in_flight.settle(token, Err(Failure::Coherence(error)));
            }
        }
    }
}
