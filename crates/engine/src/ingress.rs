//! Receives bursts of datagrams, verifies each and hands it upwards. Nothing here transmits.
//!
//! The cheap checks come first (WIND-10): the lengths, the connection's id, the sender's address.
//! The engine computes a seal only if all of these fit. A flood of garbage therefore costs little
//! more than the system call that received it, and nothing of it is kept.

use super::buffer_pool::BufferPool;
use super::direct_placement::DirectPlacement;
use super::dispatch::Dispatch;
use super::peers::Peers;
use super::seal::{Checksum, HandshakeSeal};
use super::token_bucket::TokenBucket;
use super::{Counters, Engine};
use crate::bulk_quota::Priority;
use crate::peers::peer::Peer;
use oikaze_os::memory::RegionTable;
use oikaze_os::net::{Arrival, Link, Predicted, Scattered, Sink};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Coherence, Pages};
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::rma::Rma;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::congestion::Shares;
use oikaze_protocol::wire::{Lane, Malformed, Seal, View};
use std::io;
use std::net::SocketAddr;

/// Limits the cost of handshakes from unknown senders.
pub(super) struct HandshakeLimiter {
    /// Seals of handshakes that claim to come from where the named peer is known to be.
    known: TokenBucket,
    /// Those of all others.
    unknown: TokenBucket,
}

impl HandshakeLimiter {
    pub fn new(now: Time) -> Self {
        Self { known: TokenBucket::new(now), unknown: TokenBucket::new(now) }
    }
}

/// Reason for dropping a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    /// No connection wants it.
    Stranger,
    /// Its seal is wrong.
    Unsealed,
    /// A handshake whose seal is wrong.
    Unauthentic,
    /// A handshake whose seal was not even computed.
    Unheard,
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Receives one bounded burst and returns the number of datagrams.
    pub(super) fn ingress(&mut self, now: Time) -> usize {
        self.fast_messages = 0;
        let heard = self.hear_local_peers(now);
        if self.local_peers.spares_link(now) {
            return heard;
        }
        heard + self.link_ingress(now, L::receive_into)
    }

    pub(super) fn link_ingress(
        &mut self,
        now: Time,
        look: fn(&mut L, &mut dyn Sink) -> io::Result<usize>,
    ) -> usize {
        let mut ingress = Ingress {
            me: self.me,
            now,
            pages: &mut self.pages,
            memory: &mut self.memory,
            peers: &mut self.peers,
            rma: &mut self.rma,
            coherence: &mut self.coherence,
            handshake_seal: &self.handshake_seal,
            checksum: self.checksum,
            shares: &mut self.shares,
            priority: &mut self.priority,
            handshake_limiter: &mut self.handshake_limiter,
            counters: &mut self.counters,
            direct_placement: &mut self.direct_placement,
            buffer_pool: &self.buffer_pool,
            received: 0,
            was_a_peers: false,
        };
        let outcome = look(&mut self.link, &mut ingress);
        let received = ingress.received;
        if outcome.is_err() {
            self.counters.link_errors += 1;
        }
        received
    }
}

/// The parts of an engine that datagrams come to.
pub(super) struct Ingress<'e, P> {
    me: Rank,
    now: Time,
    pages: &'e mut P,
    pub memory: &'e mut RegionTable,
    pub peers: &'e mut Peers,
    pub rma: &'e mut Rma,
    coherence: &'e mut Coherence,
    handshake_seal: &'e HandshakeSeal,
    pub checksum: Checksum,
    shares: &'e mut Shares,
    priority: &'e mut Priority,
    handshake_limiter: &'e mut HandshakeLimiter,
    counters: &'e mut Counters,
    pub direct_placement: &'e mut DirectPlacement,
    buffer_pool: &'e BufferPool,
    received: usize,
    /// The latest was new.
    was_a_peers: bool,
}

impl<P: Pages> Ingress<'_, P> {
    /// A datagram, whole or in parts.
    fn datagram(&mut self, view: Result<View<'_>, Malformed>, from: SocketAddr, congested: bool) {
        self.received += 1;
        self.was_a_peers = false;
        let now = self.now;
        let checked = view.map_err(|_| Dropped::Stranger).and_then(|view| {
            let (rank, path) = if view.is_handshake() {
                introduced(
                    &view,
                    from,
                    self.peers,
                    (self.handshake_seal, self.handshake_limiter),
                    self.me,
                    now,
                )?
            } else {
                addressee(&view, from, self.peers, self.checksum)?
            };
            Ok((view, rank, path))
        });
        let (view, rank, path) = match checked {
            Ok(checked) => checked,
            Err(dropped) => return dropped.count(self.counters),
        };
        let Some(peer) = self.peers.touch(rank) else { return };
        if congested {
            peer.connection.marked(view.header().lane());
        }
        let (rma, coherence) = (&mut *self.rma, &mut *self.coherence);
        let mut handler = Dispatch {
            rma,
            coherence,
            memory: &mut *self.memory,
            pages: &mut *self.pages,
            buffer_pool: self.buffer_pool,
        };
        let before = peer.connection.statistics();
        let (new, delivered) = (before.datagrams_received, before.messages_delivered);
        peer.connection.receive(now, &view, path, &mut handler);
        let after = peer.connection.statistics();
        self.was_a_peers = after.datagrams_received > new;
        if view.header().lane() == Lane::Small && after.messages_delivered > delivered {
            self.priority.small_came(now);
        }
        self.shares.received(rank, view.len() as u64, now);
        peer.connection.grant(self.shares.of(rank, now));
        if !view.payload().is_empty() {
            self.direct_placement.peer = Some(rank);
        }
    }
}

impl<P: Pages> Sink for Ingress<'_, P> {
    fn take(&mut self, Arrival { from, bytes, congested }: Arrival<'_>) {
        self.datagram(View::parse(bytes), from, congested);
    }

    fn was_a_peers(&self) -> bool {
        self.was_a_peers
    }

    fn predict(&mut self) -> Option<Predicted> {
        self.guess()
    }

    fn confirm(&mut self, index: usize, scattered: &Scattered<'_>) -> bool {
        self.is_as_told(index, scattered)
    }

    fn take_scattered(&mut self, Scattered { from, head, payload, tag, congested }: Scattered<'_>) {
        self.datagram(View::parse_parts(head, payload, tag), from, congested);
    }
}

/// Returns the peer and the path to which a datagram belongs. The seal is verified last
/// (WIND-10.1, WIND-10.2, WIRE-5.3).
fn addressee(
    view: &View<'_>,
    from: SocketAddr,
    peers: &mut Peers,
    checksum: Checksum,
) -> Result<(Rank, u8), Dropped> {
    let rank = peers.of_connection(view.header().connection).ok_or(Dropped::Stranger)?;
    let path = peers.get(rank).and_then(|peer| peer.path_of(from)).ok_or(Dropped::Stranger)?;
    if checksum.verify(view.covered(), view.payload(), view.tag())
        || planted(Bug::SkipIntegrityCheck)
    {
        Ok((rank, path))
    } else {
        Err(Dropped::Unsealed)
    }
}

/// Returns the sender of a handshake datagram, if it knows the job's secret (WIND-10.3).
fn introduced(
    view: &View<'_>,
    from: SocketAddr,
    peers: &mut Peers,
    (seal, handshake_limiter): (&HandshakeSeal, &mut HandshakeLimiter),
    me: Rank,
    now: Time,
) -> Result<(Rank, u8), Dropped> {
    if view.len() > DATAGRAM_MIN || !view.payload().is_empty() {
        return Err(Dropped::Stranger);
    }
    let rank = view.sender().filter(|rank| *rank != me).ok_or(Dropped::Stranger)?;
    let known = peers.get(rank).ok_or(Dropped::Stranger)?.path_of(from);
    let token_bucket =
        if known.is_some() { &mut handshake_limiter.known } else { &mut handshake_limiter.unknown };
    if !token_bucket.is_left(now) {
        return Err(Dropped::Unheard);
    }
    if !seal.verify(view.covered(), view.payload(), view.tag()) {
        token_bucket.used();
        return Err(Dropped::Unauthentic);
    }
    let learn =
        |peer: &mut Peer| peer.connection.is_fresh(view).then(|| peer.learn_path(from)).flatten();
    let path = known.or_else(|| learn(peers.get_mut(rank)?)).ok_or(Dropped::Stranger)?;
    Ok((rank, path))
}

impl Dropped {
    fn count(self, counters: &mut Counters) {
        *match self {
            Dropped::Stranger => &mut counters.strangers,
            Dropped::Unsealed => &mut counters.unsealed,
            Dropped::Unauthentic => &mut counters.unauthentic,
            Dropped::Unheard => &mut counters.unheard,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Node, Queue, Wire, open, pair, step};
    use super::super::{Request, Value};
    use super::*;
    use oikaze_protocol::limits::{STRANGERS_AT_ONCE, STRANGERS_PAUSE};
    use oikaze_protocol::wind::{Body, Class};
    use std::sync::Arc;

    fn feed(node: &mut Node, datagrams: impl IntoIterator<Item = Vec<u8>>) {
        open(&node.engine.link_mut().from).extend(datagrams);
    }

    /// WIRE-5.3, WIND-10.1 and 10.2: what was dropped when shows what was computed.
    #[test]
    fn garbage_of_every_kind_is_told_apart_and_leaves_nothing_behind() {
        let (mut a, mut b, now) = pair();
        let send = |node: &Node| {
            let body = Body::Inline(vec![7; 100]);
            node.ask(Request::Send { to: 1, class: Class::Ordered, tag: 1, body })
        };
        let sent = send(&a);
        a.engine.turn(now);
        let data = open(&b.engine.link_mut().from).drain(..).next().unwrap();
        let before = b.engine.counters();
        let with = |at: usize| {
            let mut bytes = data.clone();
            bytes[at] ^= 1;
            bytes
        };
        // Noise, another connection's id, right but for a bit of the body, right but for the tag,
        // cut short.
        feed(
            &mut b,
            [
                vec![0x5a; 700],
                with(0),
                with(data.len() - 10),
                with(data.len() - 1),
                data[..40].to_vec(),
            ],
        );
        b.engine.turn(now);
        let after = b.engine.counters();
        assert_eq!((after.strangers - before.strangers, after.unsealed - before.unsealed), (3, 2));
        assert_eq!(after.visits, before.visits, "no peer was looked at for them");
        assert!(b.engine.take_arrived().is_none());
        feed(&mut b, [data]);
        let (mut now, mut arrived) = (now, 0);
        while !sent.is_done() {
            now = step(now);
            b.turn(now);
            a.turn(now);
            arrived += std::iter::from_fn(|| b.engine.take_arrived()).count();
        }
        assert_eq!((sent.outcome(), arrived), (Some(Ok(Value::Done)), 1));
    }

    /// WIND-10.3.
    #[test]
    fn a_flood_of_forged_handshakes_costs_few_seals_and_a_true_one_is_heard_after_it() {
        let (to, from) = (Queue::default(), Queue::default());
        let (mut a, mut b) = (
            Node::new(
                0,
                2,
                Wire { to: Arc::clone(&to), from: Arc::clone(&from), ..Wire::default() },
            ),
            Node::new(1, 2, Wire { to: from, from: to, ..Wire::default() }),
        );
        let mut now = Time(0);
        a.turn(now);
        let hello = open(&b.engine.link_mut().from).pop_back().unwrap();
        let mut forged = hello.clone();
        *forged.last_mut().unwrap() ^= 1;
        let mut long = forged.clone();
        long.resize(DATAGRAM_MIN + 1, 0);
        feed(&mut b, [long]);
        feed(&mut b, vec![forged.clone(); 1000]);
        feed(&mut b, [hello]);
        b.turn(now);
        let counters = b.engine.counters();
        let heard = u64::from(STRANGERS_AT_ONCE);
        assert_eq!(
            (counters.strangers, counters.unauthentic, counters.unheard),
            (1, heard, 1001 - heard)
        );
        // The flood ends; the caller repeats itself.
        while !b.engine.is_connected(0) {
            assert!(now < Time(0) + STRANGERS_PAUSE * 1000);
            now = step(now);
            a.turn(now);
            b.turn(now);
        }
    }

    /// WIND-1.9: handshakes said again from anywhere make no address known.
    #[test]
    fn a_handshake_said_again_takes_up_no_addresses() {
        let (to, from) = (Queue::default(), Queue::default());
        let mut a = Node::new(
            0,
            2,
            Wire { to: Arc::clone(&to), from: Arc::clone(&from), ..Wire::default() },
        );
        let mut b = Node::new(1, 2, Wire { to: from, from: to, ..Wire::default() });
        a.turn(Time(0));
        let hello = open(&b.engine.link_mut().from).back().unwrap().clone();
        b.turn(Time(0));
        let Engine { peers, handshake_seal, handshake_limiter, .. } = &mut b.engine;
        let known = peers.get(0).unwrap().addresses.len();
        let mut seen = |port| {
            let view = View::parse(&hello).unwrap();
            introduced(
                &view,
                SocketAddr::from(([10, 0, 0, 1], port)),
                peers,
                (handshake_seal, handshake_limiter),
                1,
                Time(0),
            )
        };
        assert!((1..=40).all(|port| seen(port) == Err(Dropped::Stranger)));
        assert_eq!(peers.get(0).unwrap().addresses.len(), known);
    }
}
