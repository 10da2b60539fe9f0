//! Fences and flushes over a wire that loses, repeats and reorders datagrams.

use crate::tests::{Node, open, pair, step, turn_both};
use crate::{Completion, Failure, Request, Value};
use oikaze_os::memory::fifo::{Fifo, Shape};
use oikaze_os::memory::{Region, Registered};
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{AtomicOp, Published, Rights, RmaError};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Refusal, Segment};
use std::collections::HashSet;
use std::sync::Arc;

const LEN: u64 = 1 << 20;

fn region(node: &mut Node) -> (Region, Registered) {
    let region = Region::zeroed(LEN as usize).unwrap();
    let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    (region, registered)
}

/// Drops, duplicates and reorders the datagrams in flight.
fn harm(node: &mut Node, random: &mut Random) {
    let mut queue = open(&node.engine.link_mut().from);
    for at in 0..queue.len() {
        let other = random.below(queue.len());
        queue.swap(at, other);
    }
    if !queue.is_empty() && random.below(3) == 0 {
        let again = queue[0].clone();
        queue.push_back(again);
    }
    if random.below(4) == 0 {
        queue.pop_front();
    }
}

/// MEM-15.1: each operation changes a place of its own. Whenever a change is visible, all changes
/// from before the latest fence in front of it are visible too. A get from before a fence does not
/// see a put from after it.
#[test]
fn no_operation_overtakes_a_fence() {
    for seed in 0..60 {
        let (mut a, mut b, mut now) = pair();
        let mut random = Random::new(seed);
        let (target, there) = region(&mut b);
        let (seen, here) = region(&mut a);
        let source = {
            let (region, registered) = region(&mut a);
            region.fill(0, LEN, 1).unwrap();
            registered
        };
        let queue = Region::shared(8192).unwrap();
        let fifo = Fifo::format(queue.clone(), Shape::new(64, 8).unwrap()).unwrap();
        let queue = b.engine.memory().insert(queue, Rights::PUSH).unwrap();
        b.engine
            .rma()
            .publish("queue", Published { key: queue.key, len: 8192, rights: Rights::PUSH })
            .unwrap();
        let mut pushed = HashSet::new();
        let mut epochs = vec![Vec::new()];
        let mut all: Vec<Arc<Completion>> = Vec::new();
        for at in 0..40u64 {
            let offset = at * 20_000;
            // Choose a word, a small put, a put in fragments or a push. `last` identifies the
            // change: the offset of its last byte, or for a push a number beyond the region.
            let (request, last) = match random.below(5) {
                4 => {
                    let element = LEN + at;
                    let body = Body::copy_of(&element.to_ne_bytes());
                    (
                        Request::Push { to: 1, key: queue.key, body, urgent: random.below(2) == 0 },
                        element,
                    )
                }
                0 => (
                    Request::Atomic {
                        at: 1,
                        key: there.key,
                        offset,
                        op: AtomicOp::add(1),
                        fetch: random.below(2) == 0,
                    },
                    offset,
                ),
                which => {
                    let len = [1, 100, 20_000][which - 1];
                    let body = Body::Segment(Segment { region: source.slot, offset: 0, len });
                    (
                        Request::Put { to: 1, key: there.key, offset, body, signal: None },
                        offset + len - 1,
                    )
                }
            };
            all.push(a.ask(request));
            epochs.last_mut().unwrap().push(last);
            if random.below(4) == 0 {
                all.push(a.ask(Request::Lookup { at: 1, name: "queue".into() }));
            }
            // Read the place that the next operation will change, which follows a fence.
            let into = Segment { region: here.slot, offset, len: 20_000 };
            if random.below(3) == 0 {
                all.push(a.ask(Request::Get {
                    from: 1,
                    key: there.key,
                    offset: offset + 20_000,
                    into,
                }));
                let _ = a.ask(Request::Fence { peer: [None, Some(1)][random.below(2)] });
                epochs.push(Vec::new());
            }
        }
        let flushed = a.ask(Request::Flush { peer: None });
        let mut rounds = 0;
        while !flushed.is_done() {
            now = step(now);
            a.turn(now);
            harm(&mut b, &mut random);
            b.turn(now);
            harm(&mut a, &mut random);
            let mut element = Vec::new();
            while fifo.try_pop(&mut element).unwrap() {
                pushed.insert(u64::from_ne_bytes(element.drain(..).as_slice().try_into().unwrap()));
            }
            let there = |last: &u64| {
                if *last >= LEN {
                    return pushed.contains(last);
                }
                let mut byte = [0];
                target.read(*last, &mut byte).unwrap();
                byte[0] != 0
            };
            let begun = epochs.iter().rposition(|epoch| epoch.iter().any(there)).unwrap_or(0);
            assert!(
                epochs[..begun].iter().flatten().all(there),
                "{seed}: epoch {begun} has begun too early"
            );
            rounds += 1;
            assert!(rounds < 200_000, "{seed}: it never ended");
        }
        assert!(all.iter().all(|operation| matches!(operation.outcome(), Some(Ok(_)))), "{seed}");
        assert!(epochs.len() > 2);
        let mut bytes = vec![0; LEN as usize];
        seen.read(0, &mut bytes).unwrap();
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "{seed}: a get saw what was put after the fence behind it"
        );
    }
}

fn run(a: &mut Node, b: &mut Node, mut now: Time, until: impl Fn() -> bool) -> Time {
    for _ in 0..100_000 {
        if until() {
            return now;
        }
        turn_both(&mut now, a, b);
    }
    panic!("it never ended");
}

/// MEM-15.2 and 15.3.
#[test]
fn what_fails_holds_nobody_back() {
    let (mut a, mut b, now) = pair();
    let (_, there) = region(&mut b);
    let put = |key| Request::Put { to: 1, key, offset: 0, body: Body::copy_of(&[1]), signal: None };
    let refused = a.ask(put(there.key ^ 1));
    let _ = a.ask(Request::Fence { peer: Some(1) });
    let behind = a.ask(put(there.key));
    let message = a.ask(Request::Send { to: 1, class: Class::Ordered, tag: 7, body: Body::Empty });
    let loopback = a.ask(Request::Send { to: 0, class: Class::Ordered, tag: 8, body: Body::Empty });
    let flushed = a.ask(Request::Flush { peer: Some(1) });
    a.turn(now);
    assert!(loopback.is_done() && !behind.is_done(), "other peers are not concerned");
    assert!(!flushed.is_done(), "other peers are not concerned");
    let now = run(&mut a, &mut b, now, || flushed.is_done());
    assert_eq!(
        refused.outcome(),
        Some(Err(Failure::Remote(RmaError::Refused(Refusal::UnknownKey))))
    );
    assert_eq!(behind.outcome(), Some(Ok(Value::Done)));
    assert_eq!(message.outcome(), Some(Ok(Value::Done)));
    // No operation is outstanding, so fence and flush end at once.
    let (fence, flush) =
        (a.ask(Request::Fence { peer: None }), a.ask(Request::Flush { peer: None }));
    let at_once = a.ask(put(there.key));
    a.engine.turn(now);
    assert!(fence.is_done() && flush.is_done());
    assert!(!open(&b.engine.link_mut().from).is_empty(), "what follows goes at once");
    run(&mut a, &mut b, now, || at_once.is_done());
}

#[test]
fn what_is_held_can_be_cancelled() {
    let (mut a, mut b, now) = pair();
    let (target, there) = region(&mut b);
    let add = |offset| Request::Atomic {
        at: 1,
        key: there.key,
        offset,
        op: AtomicOp::add(1),
        fetch: true,
    };
    let first = a.ask(add(0));
    let _ = a.ask(Request::Fence { peer: Some(1) });
    let (held, last) = (a.ask(add(8)), a.ask(add(16)));
    a.turn(now);
    let _ = a.ask(Request::Cancel { completion: Arc::clone(&held) });
    run(&mut a, &mut b, now, || last.is_done());
    assert_eq!(first.outcome(), Some(Ok(Value::Word(0))));
    assert_eq!(last.outcome(), Some(Ok(Value::Word(0))));
    assert_eq!(held.outcome(), Some(Err(Failure::Cancelled)));
    assert_eq!([0, 8, 16].map(|at| target.load_u64(at).unwrap()), [1, 0, 1]);
}

/// MEM-7.4 and 15.2: when the peer dies, operations that a fence holds back fail too, and the flush
/// ends.
#[test]
fn a_dead_peer_ends_what_is_held_for_it() {
    let (mut a, mut b, now) = pair();
    let (_, there) = region(&mut b);
    let put = || Request::Put {
        to: 1,
        key: there.key,
        offset: 0,
        body: Body::copy_of(&[1]),
        signal: None,
    };
    let mut all = vec![a.ask(put())];
    for _ in 0..5 {
        let _ = a.ask(Request::Fence { peer: Some(1) });
        all.extend([a.ask(put()), a.ask(put())]);
    }
    let flushed = a.ask(Request::Flush { peer: None });
    a.turn(now);
    let _ = b.ask(Request::Close);
    run(&mut a, &mut b, now, || flushed.is_done());
    assert!(
        all.iter().all(|put| matches!(
            put.outcome(),
            Some(Err(Failure::PeerLost { peer: 1, .. }) | Ok(_))
        ))
    );
    assert!(all.last().is_some_and(|put| matches!(put.outcome(), Some(Err(_)))));
    assert_eq!(a.engine.ops().in_flight(), 0);
}

/// MEM-15.4: the number of held operations is bounded, and all of them run once there is room.
#[test]
fn what_is_held_is_bounded() {
    let (mut a, mut b, now) = pair();
    let (target, there) = region(&mut b);
    let add =
        || Request::Atomic { at: 1, key: there.key, offset: 0, op: AtomicOp::add(1), fetch: false };
    let first = a.ask(add());
    let _ = a.ask(Request::Fence { peer: Some(1) });
    let held: Vec<_> = (0..70_000).map(|_| a.ask(add())).collect();
    a.turn(now);
    let room = held.iter().filter(|add| !add.is_done()).count();
    assert_eq!(room, 65_535, "the fence is held, too");
    let flushed = a.ask(Request::Flush { peer: Some(1) });
    run(&mut a, &mut b, now, || flushed.is_done());
    assert!(first.is_done() && held.iter().all(|add| add.is_done()));
    assert_eq!(held.iter().filter(|add| add.outcome() == Some(Ok(Value::Done))).count(), room);
    assert_eq!(target.load_u64(0).unwrap(), room as u64 + 1);
    assert_eq!(held[69_999].outcome(), Some(Err(Failure::TooMany { peer: 1 })));
}
