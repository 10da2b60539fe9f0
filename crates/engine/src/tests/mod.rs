//! The engine by itself: turns over a wire in memory, with the test's time.

mod contradictions;
mod groups;
mod node;
mod sealed;
mod tampered;
mod turns;
mod wire;

use crate::*;
use crossbeam_queue::SegQueue;
pub(super) use node::{Node, pair, run, step, turn_both};
use node::{connect, pair_with};
use oikaze_os::memory::Region;
use oikaze_os::memory::tracking::PageSet;
use oikaze_os::net::Link;
use oikaze_os::secrets::secret::Secret;
use oikaze_os::shm::Pair;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockMode;
use oikaze_protocol::limits::{
    ANSWER_INLINE, CONNECT_TIME, DATAGRAM_ETHERNET, MESSAGES_IN_FLIGHT, MESSAGES_OF_PROGRAM_MAX,
};
use oikaze_protocol::rma::Rights;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Death, Segment, Settings};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::address;
pub(super) use wire::{Queue, Wire, open};

fn put(to: Rank, key: u64) -> Request {
    Request::Put { to, key, offset: 64, body: Body::Inline(vec![0; 8]), signal: None }
}

#[test]
fn a_peer_with_too_much_in_flight_is_not_dead_to_coherence() {
    let mut node = Node::new(1, 2, Wire::default());
    let puts: Vec<_> = (0..=MESSAGES_IN_FLIGHT).map(|_| node.ask(put(0, 1))).collect();
    node.turn(Time(1));
    assert!(matches!(puts.last().unwrap().outcome(), Some(Err(Failure::TooMany { peer: 0 }))));
    let barrier = node.ask(Request::Barrier);
    node.turn(Time(2));
    assert_eq!(barrier.outcome(), None, "it waits until there is room");
}

/// WIND-8.9: a message that takes the short way reaches the link in one piece.
#[test]
fn a_short_message_in_fragments_takes_the_short_way() {
    let (mut a, mut b, mut now) = pair();
    a.engine.link_mut().short_way = Some(0);
    let (source, target) = (Region::zeroed(1 << 20).unwrap(), Region::zeroed(1 << 20).unwrap());
    source.fill(0, 1 << 20, 5).unwrap();
    let here = a.engine.memory().insert_local(source).unwrap();
    let there = b.engine.memory().insert(target.clone(), Rights::ALL).unwrap();
    for (len, short) in [(4096, 3), (5120, 3 + 4), (1 << 20, 3 + 4)] {
        let body = Body::Segment(Segment { region: here, offset: 0, len });
        let put = a.ask(Request::Put { to: 1, key: there.key, offset: 0, body, signal: None });
        run(&mut a, &mut b, &mut now, |_| put.is_done());
        assert!(matches!(put.outcome(), Some(Ok(_))), "{:?}", put.outcome());
        assert_eq!(a.engine.link_mut().short_way, Some(short), "after {len} bytes");
        let mut bytes = vec![0; len as usize];
        target.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5));
    }
}

/// WIND-5.5: memory that is written all the time can be read (MEM-4.7).
#[test]
fn what_is_written_while_it_is_sent_arrives() {
    const LEN: u64 = 64 << 10;
    let (mut a, mut b, mut now) = pair();
    let source = Region::zeroed(LEN as usize).unwrap();
    source.fill(0, LEN, 7).unwrap();
    let there = b.engine.memory().insert(source.clone(), Rights::ALL).unwrap();
    let own = Region::zeroed(LEN as usize).unwrap();
    let here = a.engine.memory().insert_local(own.clone()).unwrap();
    b.engine.link_mut().changing = Some(source);
    let get = a.ask(Request::Get {
        from: 1,
        key: there.key,
        offset: 0,
        into: Segment { region: here, offset: 0, len: LEN },
    });
    run(&mut a, &mut b, &mut now, |_| get.is_done());
    assert!(matches!(get.outcome(), Some(Ok(_))), "{:?}", get.outcome());
    assert!(a.engine.counters().bad_seal > 0, "nothing was written between seal and wire");
    let mut bytes = vec![0; LEN as usize];
    own.read(0, &mut bytes).unwrap();
    assert!(bytes[1..].iter().all(|byte| *byte == 7));
}

#[test]
fn answers_and_barriers_go_out_when_there_is_room_again() {
    let (mut a, mut b, mut now) = pair();
    let len = ANSWER_INLINE + 100;
    let region = |node: &mut Node| {
        node.engine.memory().insert(Region::zeroed(4096).unwrap(), Rights::ALL).unwrap()
    };
    let (there, here) = (region(&mut b), region(&mut a));
    let into = Segment { region: here.slot, offset: 1024, len };
    let gets: Vec<_> =
        (0..3).map(|_| a.ask(Request::Get { from: 1, key: there.key, offset: 0, into })).collect();
    let word = a.ask(Request::Atomic {
        at: 1,
        key: there.key,
        offset: 8,
        op: oikaze_protocol::rma::AtomicOp::add(1u64),
        fetch: true,
    });
    let here_too = a.ask(Request::Barrier);
    a.turn(now);
    // The requests are on the wire. Before they are read, the other node fills its connection.
    let requests = std::mem::take(&mut *open(&b.engine.link_mut().from));
    let puts: Vec<_> = (0..MESSAGES_OF_PROGRAM_MAX).map(|_| b.ask(put(0, here.key))).collect();
    let there_too = b.ask(Request::Barrier);
    b.turn(now);
    open(&b.engine.link_mut().from).extend(requests);
    b.turn(now);
    let all = || gets.iter().chain(&puts).chain([&word, &here_too, &there_too]);
    for _ in 0..20_000 {
        turn_both(&mut now, &mut a, &mut b);
        if all().all(|completion| completion.is_done()) {
            break;
        }
    }
    assert!(gets.iter().all(|get| get.outcome() == Some(Ok(Value::Done))));
    assert_eq!(word.outcome(), Some(Ok(Value::Word(0))));
    assert_eq!(here_too.outcome(), Some(Ok(Value::Done)));
    assert_eq!(there_too.outcome(), Some(Ok(Value::Done)));
    assert!(puts.iter().all(|put| put.outcome() == Some(Ok(Value::Done))));
}

#[test]
fn whatever_somebody_may_wait_for_counts_as_settled() {
    let mut node = Node::new(0, 2, Wire::default());
    for request in [
        Request::Get { from: 9, key: 1, offset: 0, into: Segment { region: 0, offset: 0, len: 8 } },
        Request::Lookup { at: 1, name: String::new() },
    ] {
        let completion = node.ask(request);
        assert!(node.engine.turn(Time(1)).settled > 0 && completion.is_done());
    }
    let late = Time(0) + CONNECT_TIME + Duration::from_secs(1);
    assert_eq!(node.engine.turn(late).settled, 1, "a death");
    assert_eq!(node.engine.inbox().take_death(), Some((1, Death::Unreachable)));
    assert_eq!(node.engine.turn(late).settled, 0);
}

fn message(to: Rank, class: Class, tag: u64) -> Request {
    Request::Send { to, class, tag, body: Body::copy_of(&[7; 8]) }
}

#[test]
fn a_link_without_room_is_waited_for_and_not_spun_on() {
    let mut node = Node::new(0, 2, Wire { full: true, ..Wire::default() });
    assert!(!node.engine.turn(Time(1)).more);
    assert!(node.engine.has_due(Time(1)));
    node.engine.link_mut().full = false;
    assert_eq!(node.engine.turn(Time(1)).sent, 1);
}

#[test]
fn a_lock_granted_in_the_turn_of_its_cancellation_is_held_and_not_lost() {
    let mut node = Node::new(0, 1, Wire::default());
    let first = node.ask(Request::Lock(7, LockMode::default()));
    let second = node.ask(Request::Lock(7, LockMode::default()));
    node.turn(Time(1));
    assert!(first.is_done() && !second.is_done());
    node.ask(Request::Unlock(7));
    node.ask(Request::Cancel { completion: Arc::clone(&second) });
    node.turn(Time(2));
    assert_eq!(second.outcome(), Some(Ok(Value::Done)));
    let third = node.ask(Request::Lock(7, LockMode::default()));
    node.ask(Request::Cancel { completion: Arc::clone(&third) });
    node.ask(Request::Unlock(7));
    let fourth = node.ask(Request::Lock(7, LockMode::default()));
    node.turn(Time(3));
    assert_eq!(third.outcome(), Some(Err(Failure::Cancelled)));
    assert_eq!(fourth.outcome(), Some(Ok(Value::Done)), "what nobody waited for went back");
}

#[test]
fn nothing_begins_after_the_end() {
    let mut node = Node::new(0, 2, Wire::default());
    let before = node.ask(Request::Barrier);
    node.turn(Time(1));
    node.engine.end(&Failure::Left);
    let after = [Request::Barrier, Request::Lock(3, LockMode::default()), put(0, 1), put(1, 1)]
        .map(|request| node.ask(request));
    node.turn(Time(2));
    assert!(
        after
            .iter()
            .chain([&before])
            .all(|completion| completion.outcome() == Some(Err(Failure::Left)))
    );
}

#[test]
fn a_region_that_goes_takes_only_its_own_datagrams_along() {
    let (mut a, mut b, mut now) = pair();
    let region = |node: &mut Node| {
        node.engine.memory().insert(Region::zeroed(4096).unwrap(), Rights::ALL).unwrap()
    };
    let (there, stays, goes) = (region(&mut b), region(&mut a), region(&mut a));
    let from = |slot| {
        let body = Body::Segment(Segment { region: slot, offset: 0, len: 4096 });
        Request::Put { to: 1, key: there.key, offset: 0, body, signal: None }
    };
    a.engine.link_mut().full = true;
    let puts = [stays.slot, goes.slot, stays.slot].map(|slot| a.ask(from(slot)));
    a.engine.turn(now);
    a.ask(Request::Remove { region: goes.id });
    a.engine.link_mut().full = false;
    let sent = a.engine.turn(now).sent;
    assert!(sent >= 6, "{sent} of the 9 fragments, of which 3 were lost with their region");
    for _ in 0..1000 {
        turn_both(&mut now, &mut a, &mut b);
    }
    let done = puts.map(|put| put.is_done());
    assert!(done[0] && done[2], "{done:?}");
}

#[test]
fn a_goodbye_that_was_lost_is_said_again_before_the_node_goes() {
    let (mut a, mut b, mut now) = pair();
    a.ask(Request::Close);
    a.turn(now);
    open(&b.engine.link_mut().from).clear();
    assert!(!a.engine.has_closed_all(now));
    while !a.engine.has_closed_all(now) {
        now = step(now);
        a.turn(now);
    }
    b.turn(now);
    assert_eq!(b.engine.inbox().take_death(), Some((0, Death::Closed)));
}

/// Control and small messages do not wait until the link has room for bulk (WIND-3.9).
#[test]
fn what_is_small_goes_while_the_link_takes_no_bulk() {
    let (mut a, mut b, mut now) = pair();
    a.engine.link_mut().full_of_bulk = true;
    let send = |node: &Node, len: usize| {
        let body = Body::Inline(vec![7; len]);
        node.ask(Request::Send { to: 1, class: Class::Unordered, tag: len as u64, body })
    };
    let bulk = send(&a, 100_000);
    for _ in 0..20 {
        now = step(now);
        a.turn(now);
    }
    assert!(a.engine.has_due(now));
    let small = send(&a, 8);
    while !small.is_done() {
        turn_both(&mut now, &mut a, &mut b);
    }
    assert!(!bulk.is_done());
    assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(8));
    a.engine.link_mut().full_of_bulk = false;
    while !bulk.is_done() {
        turn_both(&mut now, &mut a, &mut b);
    }
    assert_eq!(b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(100_000));
}

/// An observer may replay a datagram, from another address too.
#[test]
fn only_what_is_new_tells_by_which_way_a_peer_is_reached() {
    let (mut a, mut b, now) = pair();
    let queue = Arc::clone(&b.engine.link_mut().from);
    a.tell(message(1, Class::Unordered, 1));
    a.turn(step(now));
    let datagram = open(&queue).front().cloned().unwrap();
    let mut believed = |now| {
        open(&queue).push_back(datagram.clone());
        b.engine.link_mut().of_peers = 0;
        b.turn(now);
        b.engine.link_mut().of_peers
    };
    assert_eq!(believed(step(now)), 1, "it came twice");
    assert_eq!(believed(step(step(now))), 0);
}
