//! Receivers of what a link delivers, which may predict where payloads will belong.

use crate::memory::Scatter;
use crate::net::datagram::Arrival;
use std::net::SocketAddr;

/// Datagrams that will probably come next in the bulk lane. They are alike, and their payloads
/// belong one after the other, in one place.
#[derive(Debug)]
pub struct Predicted {
    /// Bytes before the payload of each datagram.
    pub head: usize,
    /// Bytes of payload of each datagram.
    pub payload: usize,
    /// Bytes after the payload of each datagram.
    pub tag: usize,
    /// Place of the payloads, as many as there is room for. Whatever arrives, these bytes, and no
    /// others, may hold anything afterwards.
    pub place: Scatter,
}

/// A datagram that was received in three pieces, its payload directly where it was predicted to
/// belong.
#[derive(Clone, Copy, Debug)]
pub struct Scattered<'a> {
    /// Address of the sender.
    pub from: SocketAddr,
    /// Bytes before the payload.
    pub head: &'a [u8],
    /// The payload, at its place.
    pub payload: &'a [u8],
    /// Bytes after the payload.
    pub tag: &'a [u8],
    /// Congestion mark, as [`Arrival::congested`].
    pub congested: bool,
}

/// Receives datagrams from a link.
pub trait Sink {
    /// Takes a datagram that has arrived.
    fn take(&mut self, arrival: Arrival<'_>);

    /// Returns `true` if the datagram taken last came from a peer, unaltered, and is not a replay.
    /// Only then the link trusts the path by which the datagram seems to have come.
    fn was_a_peers(&self) -> bool {
        false
    }

    /// Predicts where bulk that is about to be received would belong. Called again before each
    /// receiving call.
    fn predict(&mut self) -> Option<Predicted> {
        None
    }

    /// Returns `true` if this datagram is what was predicted at that index, from 0. The link asks
    /// for the datagrams of a call in order, up to the first mismatch, before it hands any over.
    /// The mismatch and all datagrams behind it are copied out of their places and handed over as
    /// any others.
    fn confirm(&mut self, index: usize, scattered: &Scattered<'_>) -> bool {
        let _ = (index, scattered);
        false
    }

    /// Returns `true` if bulk that was as predicted came from this address by the peer's first flow
    /// (WIND-14.1). The link may connect a socket to the address, by which it sends to the peer,
    /// too. Nothing is sent to the ports of other flows.
    fn is_first_flow(&self, from: SocketAddr) -> bool {
        let _ = from;
        true
    }

    /// Takes a predicted datagram that has arrived.
    fn take_scattered(&mut self, scattered: Scattered<'_>) {
        let _ = scattered;
    }
}

/// Takes every datagram and predicts nothing.
pub(super) struct Plain<'a>(pub(super) &'a mut dyn FnMut(Arrival<'_>));

impl Sink for Plain<'_> {
    fn take(&mut self, arrival: Arrival<'_>) {
        (self.0)(arrival);
    }
}
