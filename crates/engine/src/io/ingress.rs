//! Ingress: receives bursts of datagrams, verifies each and hands it upwards. Nothing here
//! transmits.
//!
//! The cheap checks come first (WIND-10): the lengths, the connection's id, the sender's address.
//! The engine computes a seal only if all of these fit. A flood of garbage therefore costs little
//! more than the system call that received it, and nothing of it is kept.

use crate::counters::Counters;
use crate::groups::Groups;
use crate::io::bulk_quota::BulkQuota;
use crate::io::cookies::Cookies;
use crate::io::direct_placement::DirectPlacement;
use crate::io::token_bucket::TokenBucket;
use crate::layers::Layers;
use crate::peers::Peers;
use crate::sealing::seal::{DataSeal, HandshakeSeal, Seals};
use oikaze_os::net::{Arrival, Link, Predicted, Scattered, Sink};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::congestion::Shares;
use oikaze_protocol::wire::{Frame, Lane, Malformed, Seal, Versions, View};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Minimum age of the latest poll before a turn polls the link, if the turn has new submissions to
/// send. Such a turn follows the submission at once. A poll soon after another one is most often a
/// useless system call that delays the new datagram.
const POLL_AGE_MIN: Duration = Duration::from_micros(5);

/// Limits the cost of handshakes from unknown senders.
struct HandshakeLimiter {
    /// Limits seals of handshakes that come from a known address of the peer that they name.
    known: TokenBucket,
    /// Limits seals of all other handshakes.
    unknown: TokenBucket,
}

impl HandshakeLimiter {
    fn new(now: Time) -> Self {
        Self { known: TokenBucket::new(now), unknown: TokenBucket::new(now) }
    }
}

/// Reason for dropping a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DropReason {
    /// No connection wants the datagram.
    UnknownConnection,
    /// The seal is wrong.
    BadSeal,
    /// The datagram is a handshake whose seal is wrong.
    BadMac,
    /// The datagram is a handshake whose seal was not even computed.
    RateLimited,
    /// The datagram is a handshake from an address at which its sender is not known to receive.
    NoCookie,
    /// The datagram is a handshake that is not newer than the peer's latest.
    Stale,
}

/// State of receiving.
pub(crate) struct Ingress {
    shares: Shares,
    handshake_limiter: HandshakeLimiter,
    pub cookies: Cookies,
    direct_placement: DirectPlacement,
    /// Time of the latest poll.
    polled: Time,
    /// Is `true` if an operation was submitted since the latest turn.
    has_operations: bool,
    /// Latest datagram that was sealed with keys, in clear.
    opened: Vec<u8>,
    /// Reason for which the link carries nothing any more, until the node takes it.
    pub link_end: Option<String>,
}

impl Ingress {
    pub fn new(shares: Shares, cookies: Cookies, now: Time) -> Self {
        Self {
            shares,
            handshake_limiter: HandshakeLimiter::new(now),
            cookies,
            direct_placement: DirectPlacement::default(),
            polled: now,
            has_operations: false,
            opened: Vec::new(),
            link_end: None,
        }
    }

    /// Called when an operation was submitted.
    #[inline]
    pub fn note_operation(&mut self) {
        self.has_operations = true;
    }

    /// Returns `true` if a whole turn polls: always, unless it has new submissions to send and the
    /// latest poll is recent.
    pub fn must_poll(&self, now: Time, has_submissions: bool) -> bool {
        !(self.has_operations || has_submissions) || now - self.polled > POLL_AGE_MIN
    }

    /// Called when a turn has taken all submissions.
    pub fn forget_submissions(&mut self) {
        self.has_operations = false;
    }

    /// Called when a turn polls.
    pub fn note_poll(&mut self, now: Time) {
        self.polled = now;
    }
}

/// Poll of a link.
pub(crate) type Poll<L> = fn(&mut L, &mut dyn Sink) -> io::Result<usize>;

/// Parts of the engine to which received datagrams go.
pub(crate) struct Receiver<'e, P> {
    pub ingress: &'e mut Ingress,
    pub peers: &'e mut Peers,
    pub layers: &'e mut Layers<P>,
    pub groups: &'e mut Groups,
    pub quota: &'e mut BulkQuota,
    pub seals: &'e Seals,
    pub counters: &'e mut Counters,
    pub now: Time,
    received: usize,
    /// Is `true` if the latest datagram was new, and from a peer.
    was_a_peers: bool,
}

impl<'e, P: Pages> Receiver<'e, P> {
    pub fn new(
        ingress: &'e mut Ingress,
        (peers, groups): (&'e mut Peers, &'e mut Groups),
        layers: &'e mut Layers<P>,
        quota: &'e mut BulkQuota,
        seals: &'e Seals,
        counters: &'e mut Counters,
        now: Time,
    ) -> Self {
        let (received, was_a_peers) = (0, false);
        Self { ingress, peers, layers, groups, quota, seals, counters, now, received, was_a_peers }
    }

    /// Receives one bounded burst from the link. Returns the number of datagrams.
    pub fn receive<L: Link>(mut self, link: &mut L, poll: Poll<L>) -> usize {
        if let Err(why) = poll(link, &mut self) {
            self.counters.link_errors += 1;
            if why.kind() == io::ErrorKind::BrokenPipe {
                self.ingress.link_end = Some(why.to_string());
            }
        }
        self.received
    }

    /// Receives a datagram, whole or in parts. The bytes of the arrival are those of a whole one.
    fn datagram(&mut self, view: Result<View<'_>, Malformed>, arrival: Arrival<'_>) {
        let mut opened = std::mem::take(&mut self.ingress.opened);
        self.checked(view, arrival, &mut opened);
        self.ingress.opened = opened;
    }

    /// Receives a datagram. One that is sealed with keys is opened into `opened`.
    fn checked<'a>(
        &mut self,
        view: Result<View<'a>, Malformed>,
        arrival: Arrival<'_>,
        opened: &'a mut Vec<u8>,
    ) {
        let Arrival { from, bytes, congested, .. } = arrival;
        self.received += 1;
        self.was_a_peers = false;
        let (now, me) = (self.now, self.peers.me());
        if let Ok(view) = &view
            && self.groups.is_on()
            && !view.is_handshake()
            && self.peers.of_connection(view.header().connection).is_none()
        {
            return self.of_group(*view, arrival, opened);
        }
        let checked = view.map_err(|_| DropReason::UnknownConnection).and_then(|view| {
            if view.is_handshake() {
                let Ingress { handshake_limiter: limiter, cookies, .. } = &mut *self.ingress;
                let checks = (&self.seals.handshake, limiter, cookies);
                let (rank, path) = introduced(&view, from, self.peers, checks, me, now)?;
                Ok((view, rank, path))
            } else {
                addressee(view, (bytes, opened), from, self.peers, self.seals.data)
            }
        });
        let (view, rank, path) = match checked {
            Ok(checked) => checked,
            Err(reason) => return reason.count(self.counters),
        };
        let Some(peer) = self.peers.touch(rank) else { return };
        let before = peer.connection.statistics();
        let urgent = self.layers.urgent;
        let new = before.datagrams_received;
        let duplicates = before.duplicate_datagrams;
        peer.connection.receive_ahead(now, &view, path, self.layers);
        if view.is_handshake() {
            peer.take_secrets(self.seals.key_log.as_ref());
        }
        let after = peer.connection.statistics();
        self.was_a_peers = after.datagrams_received > new;
        let has_urgent = self.layers.urgent > urgent;
        if after.duplicate_datagrams > duplicates {
            // It opens, but anybody can have sent it (SEAL-5.1).
            return;
        }
        if congested {
            peer.connection.marked(view.header().lane());
        }
        if view.header().lane() == Lane::Small && has_urgent {
            self.quota.small_came(now);
        }
        self.ingress.shares.received(rank, view.len() as u64, now);
        peer.connection.grant(self.ingress.shares.of(rank, now));
        if !view.payload().is_empty() {
            self.ingress.direct_placement.peer = Some(rank);
        }
    }
}

impl<P: Pages> Receiver<'_, P> {
    /// Receives a datagram that is of no connection, if it is of a stream that this node follows
    /// (WIND-13.4).
    fn of_group<'a>(&mut self, view: View<'a>, arrival: Arrival<'_>, opened: &'a mut Vec<u8>) {
        let Arrival { from, bytes, congested, to_group } = arrival;
        let (id, now) = (view.header().connection, self.now);
        let (clear, sender, member) = match subscribed(view, (bytes, opened), from, self) {
            Ok(checked) => checked,
            Err(reason) => {
                return match reason == DropReason::UnknownConnection && to_group {
                    // A group is of the whole job, and each node has streams in it.
                    true => self.groups.subscriptions.counters.group_datagrams_unknown += 1,
                    false => reason.count(self.counters),
                };
            }
        };
        let Some(peer) = self.peers.touch(sender) else { return };
        let before = peer.connection.statistics().group_datagrams_received;
        peer.connection.receive_group(now, &clear, member, self.layers);
        if peer.connection.statistics().group_datagrams_received == before {
            return;
        }
        self.groups.subscriptions.counters.group_datagrams_received += 1;
        if congested {
            peer.connection.group_marked(id);
        }
        self.ingress.shares.received(sender, clear.len() as u64, now);
        peer.connection.grant(self.ingress.shares.of(sender, now));
    }
}

/// Returns a datagram of a stream in clear, with the sender and this node's index among the
/// members. The seal is verified last, as that of any datagram (WIND-10.1).
fn subscribed<'a, P>(
    view: View<'a>,
    (bytes, opened): (&[u8], &'a mut Vec<u8>),
    from: SocketAddr,
    receiver: &mut Receiver<'_, P>,
) -> Result<(View<'a>, Rank, u8), DropReason> {
    let Receiver { groups, peers, seals, .. } = receiver;
    let subscription = groups.subscriptions.get_mut(view.header().connection);
    let subscription = subscription.ok_or(DropReason::UnknownConnection)?;
    let sender = subscription.from;
    let peer = peers.get(sender).ok_or(DropReason::UnknownConnection)?;
    peer.path_of(from).ok_or(DropReason::UnknownConnection)?;
    let clear = match seals.data {
        DataSeal::Checksum(checksum) => {
            checksum.verify(view.covered(), view.payload(), view.tag()).then_some(view)
        }
        DataSeal::Keyed(kind) if view.header().seal == kind => {
            let keys = subscription.keys.as_deref_mut();
            keys.and_then(|keys| keys.open(kind, view, bytes, opened))
        }
        DataSeal::Keyed(_) => None,
    };
    Ok((clear.ok_or(DropReason::BadSeal)?, sender, subscription.member))
}

impl<P: Pages> Sink for Receiver<'_, P> {
    fn take(&mut self, arrival: Arrival<'_>) {
        self.datagram(View::parse(arrival.bytes), arrival);
    }

    fn was_a_peers(&self) -> bool {
        self.was_a_peers
    }

    fn predict(&mut self) -> Option<Predicted> {
        // Encrypted bytes cannot be received into their place.
        let DataSeal::Checksum(checksum) = self.seals.data else { return None };
        self.ingress.direct_placement.predict(self.peers, self.layers, checksum.len())
    }

    fn confirm(&mut self, index: usize, scattered: &Scattered<'_>) -> bool {
        self.ingress.direct_placement.confirm(self.peers, index, scattered)
    }

    fn is_first_flow(&self, from: SocketAddr) -> bool {
        self.ingress.direct_placement.is_first_flow(self.peers, from)
    }

    fn take_scattered(&mut self, Scattered { from, head, payload, tag, congested }: Scattered<'_>) {
        let arrival = Arrival { congested, ..Arrival::new(from, &[]) };
        self.datagram(View::parse_parts(head, payload, tag), arrival);
    }
}

/// Returns a datagram in clear, with the peer and the path to which it belongs. The seal is
/// verified last (WIND-10.1, WIND-10.2, WIRE-5.3, SEAL-3.4).
#[inline]
fn addressee<'a>(
    view: View<'a>,
    (bytes, opened): (&[u8], &'a mut Vec<u8>),
    from: SocketAddr,
    peers: &mut Peers,
    seal: DataSeal,
) -> Result<(View<'a>, Rank, u8), DropReason> {
    let rank =
        peers.of_connection(view.header().connection).ok_or(DropReason::UnknownConnection)?;
    let lane = view.header().lane();
    let path = peers.get(rank).and_then(|peer| peer.path_from(from, lane));
    let path = path.ok_or(DropReason::UnknownConnection)?;
    let clear = match seal {
        DataSeal::Checksum(checksum) => {
            let is_right = checksum.verify(view.covered(), view.payload(), view.tag());
            (is_right || planted(Bug::SkipIntegrityCheck)).then_some(view)
        }
        DataSeal::Keyed(kind) if view.header().seal == kind => {
            let session = peers.get_mut(rank).and_then(|peer| peer.session_mut());
            session.and_then(|session| session.open(kind, view, bytes, opened))
        }
        DataSeal::Keyed(_) => None,
    };
    Ok((clear.ok_or(DropReason::BadSeal)?, rank, path))
}

/// Returns the sender of a handshake datagram and its path, if the seal proves that the sender
/// knows the job's secret (WIND-10.3).
fn introduced(
    view: &View<'_>,
    from: SocketAddr,
    peers: &mut Peers,
    (seal, handshake_limiter, cookies): (&HandshakeSeal, &mut HandshakeLimiter, &mut Cookies),
    me: Rank,
    now: Time,
) -> Result<(Rank, u8), DropReason> {
    if view.len() > DATAGRAM_MIN || !view.payload().is_empty() {
        return Err(DropReason::UnknownConnection);
    }
    let rank = view.sender().filter(|rank| *rank != me).ok_or(DropReason::UnknownConnection)?;
    let peer = peers.get(rank).ok_or(DropReason::UnknownConnection)?;
    // A replay costs no MAC (WIND-1.9).
    if !peer.connection.is_fresh(view) {
        return Err(DropReason::Stale);
    }
    let known = peer.path_of(from);
    let token_bucket =
        if known.is_some() { &mut handshake_limiter.known } else { &mut handshake_limiter.unknown };
    if !token_bucket.is_left(now) {
        return Err(DropReason::RateLimited);
    }
    if !seal.verify(view.covered(), view.payload(), view.tag()) {
        token_bucket.used();
        return Err(DropReason::BadMac);
    }
    if let Some(path) = known {
        return Ok((rank, path));
    }
    let peer = peers.get_mut(rank).ok_or(DropReason::UnknownConnection)?;
    match view.frames().next() {
        // A node without a common version may know no cookies. Its refusal is shorter than its
        // HELLO.
        Some(Ok(Frame::Hello(hello)))
            if hello.mine.versions.common(Versions::SPOKEN).is_some()
                && !cookies.is_valid(&hello, from, now) =>
        {
            // A HELLO that is still fresh can be repeated by anybody who has seen it.
            token_bucket.used();
            cookies.demand(&hello, view.header().number, from, now);
            Err(DropReason::NoCookie)
        }
        Some(Ok(Frame::Hello(_))) => {
            peer.learn_path(from).map(|path| (rank, path)).ok_or(DropReason::UnknownConnection)
        }
        // It ends the handshake, whatever the path.
        Some(Ok(Frame::Refuse(_))) => Ok((rank, 0)),
        Some(Ok(Frame::Cookie(reply))) => {
            if let Some(peer) = peers.touch(rank) {
                peer.connection.cookie_demanded(now, &reply);
            }
            Err(DropReason::NoCookie)
        }
        _ => Err(DropReason::UnknownConnection),
    }
}

impl DropReason {
    fn count(self, counters: &mut Counters) {
        *match self {
            DropReason::UnknownConnection => &mut counters.unknown_connection,
            DropReason::BadSeal => &mut counters.bad_seal,
            DropReason::BadMac => &mut counters.bad_mac,
            DropReason::RateLimited => &mut counters.rate_limited,
            DropReason::NoCookie => &mut counters.no_cookie,
            DropReason::Stale => &mut counters.stale_handshakes,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Node, Queue, Wire, open, pair, step};
    use crate::{Engine, Request, Value};
    use oikaze_protocol::limits::{HANDSHAKE_BURST, HANDSHAKE_TOKEN_INTERVAL};
    use oikaze_protocol::wind::{Body, Class};
    use std::collections::VecDeque;
    use std::sync::Arc;

    fn feed(node: &mut Node, datagrams: impl IntoIterator<Item = Vec<u8>>) {
        open(&node.engine.link_mut().from).extend(datagrams);
    }

    /// WIRE-5.3, WIND-10.1 and 10.2: the counters show at which check each datagram was dropped.
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
        // Noise, another connection's id, one wrong bit in the body, one wrong bit in the tag, and
        // a truncated datagram.
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
        assert_eq!(
            (
                after.unknown_connection - before.unknown_connection,
                after.bad_seal - before.bad_seal
            ),
            (3, 2)
        );
        assert_eq!(after.visits, before.visits, "no peer was looked at for them");
        assert!(b.engine.inbox().take_arrived().is_none());
        feed(&mut b, [data]);
        let (mut now, mut arrived) = (now, 0);
        while !sent.is_done() {
            now = step(now);
            b.turn(now);
            a.turn(now);
            arrived += std::iter::from_fn(|| b.engine.inbox().take_arrived()).count();
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
        let heard = u64::from(HANDSHAKE_BURST);
        assert_eq!(counters.unknown_connection, 1);
        assert_eq!(counters.bad_mac, heard);
        assert_eq!(counters.rate_limited, 1001 - heard);
        // After the flood has ended, the peer repeats its handshake.
        while !b.engine.peers().is_connected(0) {
            assert!(now < Time(0) + HANDSHAKE_TOKEN_INTERVAL * 1000);
            now = step(now);
            a.turn(now);
            b.turn(now);
        }
    }

    /// WIND-10.6: a peer at an unknown address connects after it has proved that it receives there.
    /// An attacker that repeats its HELLO from such an address gets fewer bytes than it has sent.
    #[test]
    fn peer_at_an_unknown_address_proves_that_it_receives_there() {
        let (to, from) = (Queue::default(), Queue::default());
        let mut a = Node::new(0, 2, Wire::between(&to, &from));
        let mut b = Node::new(1, 2, Wire { source: 5, ..Wire::between(&from, &to) });
        let mut now = Time(0);
        b.turn(now);
        open(&from).clear();
        a.turn(now);
        let hello = open(&to).pop_back().unwrap();
        open(&to).clear();
        let of_b = |b: &Node| b.engine.peers.get(0).unwrap().addresses.clone();
        let known = of_b(&b);
        feed(&mut b, vec![hello.clone(); 10]);
        b.turn(now);
        let answers: Vec<Vec<u8>> = open(&from).drain(..).collect();
        let is_cookie = |bytes: &Vec<u8>| {
            let frames = View::parse(bytes).unwrap().frames();
            frames.flatten().all(|frame| matches!(frame, Frame::Cookie(_)))
        };
        let cookies = answers.iter().filter(|bytes| is_cookie(bytes)).count();
        assert_eq!((cookies, answers.len()), (10, 10));
        assert!(answers[0].len() < hello.len());
        assert_eq!((b.engine.counters().no_cookie, of_b(&b)), (10, known.clone()));
        while !(a.engine.peers().is_connected(1) && b.engine.peers().is_connected(0)) {
            now = step(now);
            assert!(now < Time(0) + Duration::from_secs(1));
            a.turn(now);
            b.turn(now);
        }
        let learned: Vec<SocketAddr> =
            of_b(&b).into_iter().filter(|address| !known.contains(address)).collect();
        assert_eq!(learned.len(), 1, "{learned:?}");
    }

    /// WIND-10.6: two nodes connect although each sees the other at an unknown address, and
    /// although COOKIE comes later than the next HELLOs.
    #[test]
    fn peers_at_unknown_addresses_far_away_connect() {
        let (to, from) = (Queue::default(), Queue::default());
        let (far_to, far_from) = (Queue::default(), Queue::default());
        let mut a = Node::new(0, 2, Wire { source: 6, ..Wire::between(&to, &far_from) });
        let mut b = Node::new(1, 2, Wire { source: 5, ..Wire::between(&from, &far_to) });
        let mut now = Time(0);
        let mut under_way = VecDeque::new();
        while !(a.engine.peers().is_connected(1) && b.engine.peers().is_connected(0)) {
            now = step(now);
            assert!(now < Time(0) + Duration::from_secs(10));
            a.turn(now);
            b.turn(now);
            for (sent, there) in [(&to, &far_to), (&from, &far_from)] {
                under_way.extend(open(sent).drain(..).map(|bytes| (now, bytes, there)));
            }
            let is_there = |at: Time| now - at > Duration::from_millis(150);
            while under_way.front().is_some_and(|(at, ..)| is_there(*at))
                && let Some((_, bytes, there)) = under_way.pop_front()
            {
                open(there).push_back(bytes);
            }
        }
        assert!(a.engine.counters().no_cookie > 0 && b.engine.counters().no_cookie > 0);
    }

    /// WIND-1.9: handshakes that are replayed from other addresses make no address known.
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
        let Engine { peers, seals, ingress, .. } = &mut b.engine;
        let known = peers.get(0).unwrap().addresses.len();
        let mut seen = |port| {
            let view = View::parse(&hello).unwrap();
            introduced(
                &view,
                SocketAddr::from(([10, 0, 0, 1], port)),
                peers,
                (&seals.handshake, &mut ingress.handshake_limiter, &mut ingress.cookies),
                1,
                Time(0),
            )
        };
        assert!((1..=40).all(|port| seen(port) == Err(DropReason::Stale)));
        assert_eq!(peers.get(0).unwrap().addresses.len(), known);
        // Not even the seal of a replay is computed, and a wrong one is not noticed.
        let forged = [&hello[..hello.len() - 1], &[hello[hello.len() - 1] ^ 1]].concat();
        let before = b.engine.counters();
        feed(&mut b, std::iter::repeat_n(hello, 100).chain([forged]));
        b.turn(Time(0));
        let after = b.engine.counters().since(&before);
        assert_eq!((after.stale_handshakes, after.bad_mac, after.rate_limited), (101, 0, 0));
    }

    /// SEAL-5.1: a replay takes no share of the receive buffer, and its CE mark counts for nothing.
    #[test]
    fn replayed_datagrams_have_no_share_and_no_mark() {
        let (mut a, mut b, mut now) = pair();
        let body = Body::Inline(vec![7; 1000]);
        a.ask(Request::Send { to: 1, class: Class::Ordered, tag: 1, body });
        a.engine.turn(now);
        let data = open(&b.engine.link_mut().from).drain(..).next().unwrap();
        b.engine.link_mut().marks = true;
        let marked =
            |b: &Node| b.engine.peers.get(0).unwrap().connection.statistics().marked_received;
        let before = marked(&b);
        feed(&mut b, [data.clone()]);
        b.turn(now);
        assert_eq!(marked(&b), before + 1);
        feed(&mut b, vec![data; 4000]);
        for _ in 0..10 {
            now = step(now);
            b.turn(now);
            assert_eq!((marked(&b), b.engine.ingress.shares.senders()), (before + 1, 0));
        }
        let connection = &b.engine.peers.get(0).unwrap().connection;
        assert_eq!(connection.statistics().duplicate_datagrams, 4000);
    }
}
