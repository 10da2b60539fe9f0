//! Outcomes of messages: passes each outcome to the layer that posted the message.

use crate::failure::Failure;
use crate::layers::{Layers, Owner};
use crate::ops::Ops;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::rma::{Rma, RmaError};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Message, Refusal, Token};

/// Called when the peer has acknowledged the message.
#[inline]
pub(crate) fn acknowledged<P: Pages>(token: Token, ops: &mut Ops, layers: &mut Layers<P>) {
    ops.retry.forget(token);
    match Owner::of(token) {
        Owner::Nobody => {}
        Owner::Operation | Owner::Remote => layers.rma.acknowledged(token),
        Owner::Coherence => layers.coherence.acknowledged(token, &mut layers.pages),
    }
}

/// Called when the peer has refused the message.
pub(crate) fn refused<P: Pages>(
    token: Token,
    refusal: Refusal,
    ops: &mut Ops,
    layers: &mut Layers<P>,
) {
    ops.retry.forget(token);
    match Owner::of(token) {
        Owner::Nobody => {}
        Owner::Operation | Owner::Remote => layers.rma.refused(token, refusal),
        Owner::Coherence => layers.coherence.refused(token, refusal, &mut layers.pages),
    }
}

/// Called when the message will never be acknowledged.
pub(crate) fn lost<P: Pages>(peer: Rank, token: Token, ops: &mut Ops, layers: &mut Layers<P>) {
    ops.retry.forget(token);
    match Owner::of(token) {
        Owner::Nobody => {}
        Owner::Operation | Owner::Remote => layers.rma.failed(token, peer),
        Owner::Coherence => layers.coherence.failed(token, &mut layers.pages),
    }
}

/// Called when the message cannot be sent. An operation of this node fails with `failure`.
pub(crate) fn failed<P: Pages>(
    to: Rank,
    token: Token,
    failure: Failure,
    ops: &mut Ops,
    layers: &mut Layers<P>,
) {
    if Owner::of(token) == Owner::Operation {
        ops.in_flight.settle(token, Err(failure));
    }
    lost(to, token, ops, layers);
}

/// Called when the content of the message, in this region, cannot be read any more. An operation of
/// this node fails; for an answer, the peer whose get it answers is told (MEM-4.6).
pub(crate) fn unreadable<P: Pages>(
    to: Rank,
    token: Token,
    region: Option<u32>,
    ops: &mut Ops,
    layers: &mut Layers<P>,
) {
    match Owner::of(token) {
        Owner::Remote => layers.rma.answer_lost(token),
        Owner::Nobody | Owner::Operation | Owner::Coherence => {
            failed(to, token, why_unreadable(region, layers), ops, layers);
        }
    }
}

/// Returns the failure of a message whose content in this region could not be read.
pub(crate) fn why_unreadable<P>(region: Option<u32>, layers: &Layers<P>) -> Failure {
    let gone = region.is_none_or(|region| layers.memory.region(region).is_none());
    Failure::Remote(if gone { RmaError::SourceGone } else { RmaError::Absent })
}

/// Called when the peer could not take the message in, because pages are absent there. The message
/// is tried again later, unless it was tried for long enough (MEM-1.11).
pub(crate) fn returned<P: Pages>(
    to: Rank,
    message: Message,
    now: Time,
    ops: &mut Ops,
    layers: &mut Layers<P>,
) {
    let token = message.token;
    let may_repeat = Owner::of(token) == Owner::Operation && Rma::may_repeat(&message.head);
    if !(may_repeat && ops.retry.add(to, message, now)) {
        refused(token, Refusal::NotPresent, ops, layers);
    }
}
