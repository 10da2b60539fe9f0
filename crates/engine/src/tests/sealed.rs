//! Attacks on sealed datagrams (SEAL-3, SEAL-5): by somebody who sees everything on the wire, and
//! puts anything on it, but does not know the job's secret.

use super::*;
use crate::sealing::session::SealingKeys;
use oikaze_protocol::limits::{DATAGRAM_MIN, HEADER_LEN};
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::Operation;
use oikaze_protocol::seal::{FIRST_LEN, KeyStep};
use oikaze_protocol::wind::{Introduction, Lane};
use oikaze_protocol::wire::{Builder, Frame, Hello, Seal, SealKind, View};

const KEYED: [SealKind; 2] = [SealKind::Encrypted, SealKind::Authenticated];
/// Text that an attacker looks for.
const TEXT: &[u8] = b"the attacker reads this";

/// Sends a message with [`TEXT`] and returns the datagrams that carry it. `b` does not get them.
fn capture(a: &mut Node, b: &mut Node, now: Time, len: usize) -> Vec<Vec<u8>> {
    let body = Body::Inline(TEXT.iter().copied().cycle().take(len).collect());
    a.ask(Request::Send { to: 1, class: Class::Ordered, tag: 1, body });
    a.turn(now);
    open(&b.engine.link_mut().from).drain(..).collect()
}

fn feed(node: &mut Node, datagrams: impl IntoIterator<Item = Vec<u8>>) {
    open(&node.engine.link_mut().from).extend(datagrams);
}

/// Lets `b` receive these datagrams, of which it may believe none.
fn disbelieves(b: &mut Node, now: Time, datagrams: Vec<Vec<u8>>, what: &str) {
    let (count, before) = (datagrams.len() as u64, b.engine.counters());
    feed(b, datagrams);
    b.turn(now);
    let after = b.engine.counters();
    let counted = |of: Counters| of.bad_seal + of.unknown_connection;
    assert_eq!(counted(after) - counted(before), count, "{what}");
    assert!(b.engine.inbox().take_arrived().is_none(), "{what}");
}

/// SEAL-1.1: everything that nodes do works with keys, also bulk and what is lost.
#[test]
fn messages_and_puts_arrive() {
    for seal in KEYED {
        let (mut a, mut b, mut now) = pair_with(seal);
        let (source, target) = (Region::zeroed(1 << 20).unwrap(), Region::zeroed(1 << 20).unwrap());
        source.fill(0, 1 << 20, 5).unwrap();
        let here = a.engine.memory().insert_local(source).unwrap();
        let there = b.engine.memory().insert(target.clone(), Rights::ALL).unwrap();
        let body = Body::Segment(Segment { region: here, offset: 0, len: 1 << 20 });
        let put = a.ask(Request::Put { to: 1, key: there.key, offset: 0, body, signal: None });
        let mut turns = 0;
        run(&mut a, &mut b, &mut now, |b| {
            turns += 1;
            if turns % 7 == 0 {
                open(&b.engine.link_mut().from).pop_front();
            }
            put.is_done()
        });
        assert!(matches!(put.outcome(), Some(Ok(_))), "{:?}", put.outcome());
        let mut bytes = vec![0; 1 << 20];
        target.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5));
    }
}

/// SEAL-3.1: only encryption hides frames and payload, and neither kind hides the header.
#[test]
fn only_encryption_keeps_others_from_reading() {
    for (seal, hides) in [(SealKind::Encrypted, true), (SealKind::Authenticated, false)] {
        let (mut a, mut b, now) = pair_with(seal);
        for len in [TEXT.len(), 100_000] {
            let seen = capture(&mut a, &mut b, now, len);
            let shows =
                seen.iter().any(|bytes| bytes.windows(TEXT.len()).any(|window| window == TEXT));
            assert_eq!(shows, !hides, "{len} bytes, {seal:?}");
        }
    }
}

/// SEAL-3.1, SEAL-3.4: whatever is changed, nothing is believed, and the datagram itself still is.
#[test]
fn changed_datagrams_are_dropped() {
    for seal in KEYED {
        let (mut a, mut b, mut now) = pair_with(seal);
        let seen = capture(&mut a, &mut b, now, 200).remove(0);
        for bit in 0..seen.len() * 8 {
            let mut bytes = seen.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disbelieves(&mut b, now, vec![bytes], &format!("bit {bit}, {seal:?}"));
        }
        for len in [0, HEADER_LEN - 1, HEADER_LEN, HEADER_LEN + 16, seen.len() - 1] {
            disbelieves(&mut b, now, vec![seen[..len].to_vec()], &format!("{len} bytes, {seal:?}"));
        }
        disbelieves(&mut b, now, vec![[&seen[..], &[0]].concat()], "a byte more");
        feed(&mut b, [seen]);
        run(&mut a, &mut b, &mut now, |b| {
            b.engine.inbox().take_arrived().is_some_and(|arrived| arrived.body.len() == 200)
        });
    }
}

/// SEAL-5.1: a datagram counts once, in its lane, at its receiver, while its connection lives.
#[test]
fn replayed_datagrams_have_no_effect() {
    for seal in KEYED {
        let (mut a, mut b, now) = pair_with(seal);
        let seen = capture(&mut a, &mut b, now, 200);
        feed(&mut b, seen.clone());
        b.turn(now);
        assert!(b.engine.inbox().take_arrived().is_some());
        let duplicates =
            |b: &Node| b.engine.peers.get(0).unwrap().connection.statistics().duplicate_datagrams;
        let before = duplicates(&b);
        feed(&mut b, seen.clone());
        b.turn(now);
        assert!(b.engine.inbox().take_arrived().is_none());
        assert_eq!(duplicates(&b), before + seen.len() as u64);
        // The other lane has other keys: flag 4 is BULK_LANE.
        let mut other_lane = seen[0].clone();
        other_lane[16] ^= 4;
        disbelieves(&mut b, now, vec![other_lane], "the other lane");
        // Back to the sender, under the id of its own connection.
        let own = a.engine.peers.get(1).unwrap().connection.id().to_le_bytes();
        let mut back = seen[0].clone();
        back[..8].copy_from_slice(&own);
        disbelieves(&mut a, now, vec![back], "the other direction");
        // The next job has the same secret and, by chance, the same ids.
        let (_, mut next, now) = pair_with(seal);
        disbelieves(&mut next, now, seen, "the next job");
    }
}

/// SEAL-5.1, WIND-7.3: a node that has closed the connection says so again to a peer that goes on
/// sending, and not to somebody who repeats what the peer sent. Then the keys are dropped.
#[test]
fn replays_after_the_end_bring_no_answer() {
    for seal in KEYED {
        let (mut a, mut b, mut now) = pair_with(seal);
        let seen = capture(&mut a, &mut b, now, 200);
        feed(&mut b, seen.clone());
        b.turn(now);
        let late = capture(&mut a, &mut b, now, 100);
        b.engine.peers.touch(0).unwrap().connection.close(now);
        let mut closes = 0;
        for turn in 0..10_000 {
            now = step(now);
            feed(&mut b, seen.clone());
            if turn % 2 == 0 {
                // New when it comes first.
                feed(&mut b, late.clone());
            }
            b.turn(now);
            closes += open(&b.engine.link_mut().to).drain(..).count();
        }
        assert!((3..10).contains(&closes), "{closes} datagrams for replays, {seal:?}");
        assert!(b.engine.peers.get(0).unwrap().session.is_none(), "the keys are kept, {seal:?}");
    }
}

/// SEAL-2.5: a new process at the peer's rank gets new keys, and what the old one sealed is
/// dropped.
#[test]
fn restarted_peer_has_new_keys() {
    for seal in KEYED {
        for (lower_restarts, other) in [(true, 1), (false, 0)] {
            let (a, b, mut now) = pair_with(seal);
            let (old, mut stays) = if lower_restarts { (a, b) } else { (b, a) };
            let rank = Rank::from(!lower_restarts);
            let link = {
                let mut old = old;
                old.engine.link_mut().clone()
            };
            let body = Body::Inline(TEXT.to_vec());
            let settings =
                Settings { datagram_max: DATAGRAM_ETHERNET, seal, ..Settings::default() };
            let mut new = Node::with_settings((rank, 2, 2), link, Vec::new(), settings);
            now = connect(&mut new, &mut stays, now);
            stays.ask(Request::Send {
                to: rank,
                class: Class::Ordered,
                tag: 1,
                body: body.clone(),
            });
            new.ask(Request::Send { to: other, class: Class::Ordered, tag: 1, body });
            let mut arrived = [false; 2];
            for _ in 0..1000 {
                now = step(now);
                for (node, arrived) in [&mut new, &mut stays].into_iter().zip(&mut arrived) {
                    node.turn(now);
                    *arrived |= node.engine.inbox().take_arrived().is_some();
                }
            }
            assert_eq!(arrived, [true, true], "rank {rank} restarted, {seal:?}");
        }
    }
}

/// SEAL-2.1: whoever lacks the secret gets no connection, and no answer.
#[test]
fn other_secret_gets_no_answer() {
    let (one, other) = (Queue::default(), Queue::default());
    let seal = SealKind::Encrypted;
    let settings = Settings { datagram_max: DATAGRAM_ETHERNET, seal, ..Settings::default() };
    let mut member =
        Node::with_settings((0, 2, 1), Wire::between(&one, &other), Vec::new(), settings);
    member.turn(step(Time(0)));
    let sent = open(&one).len();
    let mut hello: Vec<u8> = open(&one).front().unwrap().clone();
    let last = hello.len() - 1;
    hello[last] ^= 1;
    feed(&mut member, (0..10).map(|_| hello.clone()));
    member.turn(step(Time(0)));
    assert_eq!(open(&one).len(), sent, "no answer");
    assert!(!member.engine.peers().is_connected(1));
}

/// WIND-1.5: the HELLO of one connection has no effect on another node, which would be refused for
/// it otherwise.
#[test]
fn hello_for_another_rank_is_ignored() {
    let (one, other) = (Queue::default(), Queue::default());
    let seal = SealKind::Encrypted;
    let settings = Settings { datagram_max: DATAGRAM_ETHERNET, seal, ..Settings::default() };
    let node = |rank, link| Node::with_settings((rank, 3, 1), link, Vec::new(), settings);
    let mut sender = node(0, Wire::between(&one, &other));
    let mut third = node(2, Wire::between(&other, &one));
    let mut now = step(Time(0));
    sender.turn(now);
    let to_one: Vec<Vec<u8>> = open(&one)
        .drain(..)
        .filter(|bytes| {
            View::parse(bytes)
                .unwrap()
                .frames()
                .flatten()
                .any(|frame| matches!(frame, Frame::Hello(hello) if hello.to == Some(1)))
        })
        .collect();
    assert!(!to_one.is_empty());
    feed(&mut third, to_one);
    third.turn(now);
    assert_eq!(third.engine.peers.get(0).unwrap().connection.death(), None);
    while !third.engine.peers().is_connected(0) {
        turn_both(&mut now, &mut sender, &mut third);
    }
}

/// SEAL-2, WIND-1.7: a member of the job speaks for another rank. It cannot take over an
/// established connection, whose id and keys are agreed upon, and costs the receiver no MAC.
#[test]
fn member_cannot_take_over_a_connection_of_another_rank() {
    for seal in KEYED {
        let (mut a, mut b, mut now) = pair_with(seal);
        let theirs = *b.engine.peers.get(0).unwrap().connection.peer_introduction().unwrap();
        let before = b.engine.counters();
        for number in [1, 1000, u64::MAX] {
            let mine = Introduction { connection: 999, ..theirs };
            let mut bytes = Vec::new();
            let mut builder =
                Builder::new(&mut bytes, 0, number, SealKind::Handshake, DATAGRAM_MIN);
            let key = KeyStep::First([5; FIRST_LEN]);
            builder.hello(&Hello {
                mine,
                to: Some(1),
                path: 0,
                yours: None,
                answer_wanted: true,
                key,
                cookie: None,
            });
            builder.finish(None);
            let mut tag = [0; 16];
            b.engine.seals.handshake.tag(&[&bytes], &mut tag);
            bytes.extend(tag);
            feed(&mut b, [bytes]);
            b.turn(now);
        }
        assert_eq!(b.engine.counters().since(&before).stale_handshakes, 3);
        assert!(b.engine.peers().is_connected(0));
        let body = Body::Inline(TEXT.to_vec());
        a.ask(Request::Send { to: 1, class: Class::Ordered, tag: 1, body });
        run(&mut a, &mut b, &mut now, |b| b.engine.inbox().take_arrived().is_some());
    }
}

/// WIND-7.8, MEM-1.9: a member of the job seals frames that make no sense. They change no memory,
/// and at most end the connection to this member, with a reason.
#[test]
fn well_sealed_nonsense_changes_no_memory() {
    for seed in 0..300 {
        let seal = KEYED[seed as usize % 2];
        let mut random = Random::new(seed);
        let (mut a, mut b, mut now) = pair_with(seal);
        let region = Region::zeroed(4096).unwrap();
        region.fill(0, 4096, 5).unwrap();
        let key = b.engine.memory().insert(region.clone(), Rights::READ).unwrap().key;
        let id = b.engine.peers.get(0).unwrap().connection.id();
        for number in 1000..1040 {
            let lane = random.pick(&Lane::BOTH);
            let mut frames = Vec::new();
            for _ in 0..random.below(4) {
                let (mut kind, len) = (1 + random.below(11) as u8, random.below(57));
                let mut content = random.bytes(len);
                if random.chance(0.3) {
                    // A MESSAGE with a put into the region, of which the peer may only read.
                    let head = Operation::Put { key, offset: 0, signal: None }.encode();
                    let number = u64::to_le_bytes(random.below(20) as u64);
                    let head_len = [head.len() as u8, 0, 0, 0];
                    (kind, content) = (3, [&number[..], &head_len, &head, &content].concat());
                }
                frames.extend([kind, random.pick(&[0, 0, 1, 4])]);
                frames.extend((4 + content.len() as u16).to_le_bytes());
                frames.extend(content);
            }
            let mut bytes = id.to_le_bytes().to_vec();
            bytes.extend(u64::to_le_bytes(number));
            bytes.extend([u8::from(lane == Lane::Bulk) * 4, seal as u8]);
            bytes.extend((frames.len() as u16).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(frames);
            bytes.extend([0; 16]);
            let session = a.engine.peers.get_mut(1).unwrap().session_mut().unwrap();
            assert!(session.seal(seal, lane, number, &mut bytes));
            feed(&mut b, [bytes]);
            now = step(now);
            b.turn(now);
            open(&b.engine.link_mut().to).clear();
        }
        let mut bytes = vec![0; 4096];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5), "seed {seed}");
        let connection = &b.engine.peers.get(0).unwrap().connection;
        let counted = connection.statistics();
        assert!(
            connection.death().is_some() || counted.malformed + counted.datagrams_received > 0,
            "seed {seed}: {:?}",
            connection.death()
        );
    }
}
