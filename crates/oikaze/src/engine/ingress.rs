//! Ingress: a burst of datagrams, each verified and handed upwards. Nothing here transmits.

use super::peers::Peers;
use super::seal::{Checksum, HandshakeSeal};
use super::upward::Upward;
use super::{Counters, Engine};
use oikaze_os::link::{Arrival, Link};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::time::Time;
use oikaze_protocol::wire::{Seal, View};

impl<L: Link, P: Pages> Engine<L, P> {
    /// Receive one bounded burst; the number of datagrams.
    pub(super) fn ingress(&mut self, now: Time) -> usize {
        let Self { me, link, pages, memory, peers, rma, coherence, handshake_seal, checksum, shares, counters, .. } = self;
        let mut received = 0;
        let outcome = link.receive(&mut |Arrival { from, bytes, congested }| {
            received += 1;
            let Ok(view) = View::parse(bytes) else {
                counters.strangers += 1;
                return;
            };
            let Some(rank) = addressee(&view, peers, (handshake_seal, *checksum), *me, counters) else { return };
            let Some(peer) = peers.touch(rank) else {
                counters.strangers += 1;
                return;
            };
            let path = if view.is_handshake() { peer.learn_path(from) } else { peer.path_of(from) };
            let Some(path) = path else {
                counters.strangers += 1;
                return;
            };
            if congested {
                peer.connection.marked();
            }
            let mut upper = Upward { rma, coherence, memory, pages };
            peer.connection.receive(now, &view, path, &mut upper);
            shares.received(rank, bytes.len() as u64, now);
            peer.connection.grant(shares.of(rank, now));
        });
        if outcome.is_err() {
            counters.send_errors += 1;
        }
        received
    }
}

/// Whose connection a datagram belongs to, once its seal has been verified.
fn addressee(
    view: &View<'_>,
    peers: &mut Peers,
    (handshake_seal, checksum): (&HandshakeSeal, Checksum),
    me: Rank,
    counters: &mut Counters,
) -> Option<Rank> {
    if view.is_handshake() {
        if !handshake_seal.verify(view.covered(), view.payload(), view.tag()) {
            counters.unauthentic += 1;
            return None;
        }
        let introduced = view.sender();
        if introduced.is_none_or(|rank| rank == me) {
            counters.strangers += 1;
            return None;
        }
        return introduced;
    }
    let Some(rank) = peers.of_connection(view.header().connection) else {
        counters.strangers += 1;
        return None;
    };
    if !checksum.verify(view.covered(), view.payload(), view.tag()) && !planted(Bug::SkipIntegrityCheck) {
        counters.unsealed += 1;
        return None;
    }
    Some(rank)
}
