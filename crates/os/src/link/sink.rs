//! Who takes what a link brings, and may say beforehand where it will belong.

use super::Arrival;
use crate::memory::Places;
use std::net::SocketAddr;

/// What will probably come next by the bulk lane: datagrams that are alike, whose payloads belong
/// one behind the other, in few places.
#[derive(Debug)]
pub struct Predicted {
    /// Bytes before the payload of each.
    pub head: usize,
    /// Bytes of payload of each.
    pub payload: usize,
    /// Bytes behind it.
    pub tag: usize,
    /// Where the payloads belong, as many as there is room for, none across two places. Whatever
    /// comes, these bytes, and no others, may hold anything afterwards.
    pub places: Places,
}

/// A datagram that came in three pieces, its payload where it was predicted to belong.
#[derive(Clone, Copy, Debug)]
pub struct Scattered<'a> {
    /// Whence.
    pub from: SocketAddr,
    /// What comes before the payload.
    pub head: &'a [u8],
    /// The payload, at its place.
    pub payload: &'a [u8],
    /// What comes behind it.
    pub tag: &'a [u8],
    /// As [`Arrival::congested`].
    pub congested: bool,
}

/// Takes datagrams in.
pub trait Sink {
    /// One has arrived.
    fn take(&mut self, arrival: Arrival<'_>);

    /// Was the one that was taken last from a peer, unaltered, and none that had come before, which
    /// anybody may say again? Only then it is believed by which way it seems to have come.
    fn was_a_peers(&self) -> bool {
        false
    }

    /// Bulk is about to be received: where would it belong? Asked again before each call that
    /// receives.
    fn predict(&mut self) -> Option<Predicted> {
        None
    }

    /// Is this what was predicted at that place in the order, from 0? Asked for the datagrams of a
    /// call in their order, up to the first that is not, before any is handed over: this one and
    /// all behind it are taken out of their places and handed over as any others.
    fn confirm(&mut self, index: usize, scattered: &Scattered<'_>) -> bool {
        let _ = (index, scattered);
        false
    }

    /// One has arrived that was predicted.
    fn take_scattered(&mut self, scattered: Scattered<'_>) {
        let _ = scattered;
    }
}

/// Takes all, predicts nothing.
pub(super) struct Plain<'a>(pub(super) &'a mut dyn FnMut(Arrival<'_>));

impl Sink for Plain<'_> {
    fn take(&mut self, arrival: Arrival<'_>) {
        (self.0)(arrival);
    }
}
