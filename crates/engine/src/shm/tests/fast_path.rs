//! Messages that go directly into the ring and out of it (MEM-16.9).

use super::*;
use crate::{Arrived, Engine};
use oikaze_os::net::Link;
use oikaze_protocol::coherence::Pages;

/// Returns a message that is in a ring, or that was taken out together with an earlier one.
fn take_fast<L: Link, P: Pages>(
    engine: &mut Engine<L, P>,
    from: Option<Rank>,
    sends_many: bool,
) -> Option<Arrived> {
    engine.make_ready(from, sends_many)?;
    engine.inbox().take_arrived()
}

/// MEM-16.9: messages on the fast path and other messages arrive once, in the order in which they
/// were sent, however they are taken. Each is settled when it is taken, not before.
#[test]
fn messages_that_takes_the_fast_path_and_others_keep_their_order() {
    let mut two = Two::new();
    let (mut sent, mut asked) = (Vec::new(), Vec::new());
    let mut seen = 0;
    let channels = two.a.engine.channels();
    let outcome = |position: u64| channels.of(1).unwrap().outcome(position);
    for n in 0..3000u64 {
        let class = [Class::Ordered, Class::Sync][n as usize % 2];
        let body = vec![n as u8; [0, 8, 32, 33, 1000, 2000, RECORD_BODY + 1][n as usize % 7]];
        let position = if n % 5 > 0 { two.a.engine.send_fast(1, class, n, &body) } else { None };
        match position {
            Some(position) => {
                assert_eq!(outcome(position), None, "it was not taken");
                sent.push(position);
            }
            None => {
                asked.push(two.a.ask(send(class, n, Body::copy_of(&body))));
                two.a.turn(two.now);
            }
        }
        let mut read = |arrived: crate::Arrived| {
            assert_eq!(arrived.from, 0);
            assert_eq!(arrived.tag, seen);
            assert_eq!(arrived.class, [Class::Ordered, Class::Sync][seen as usize % 2]);
            assert!(arrived.body.iter().all(|&byte| byte == seen as u8));
            assert_eq!(
                arrived.body.len(),
                [0, 8, 32, 33, 1000, 2000, RECORD_BODY + 1][seen as usize % 7]
            );
            seen += 1;
        };
        match n % 11 {
            0 => {
                two.turn();
                std::iter::from_fn(|| two.b.engine.inbox().take_arrived()).for_each(&mut read);
            }
            1..6 => std::iter::from_fn(|| take_fast(&mut two.b.engine, Some(0), n % 3 > 0))
                .take(3)
                .for_each(&mut read),
            _ => {}
        }
    }
    two.turn_until(|two| two.a.engine.is_settled() && two.b.engine.is_settled());
    let rest =
        std::iter::from_fn(|| two.b.engine.inbox().take_arrived()).map(|arrived| arrived.tag);
    assert!(rest.eq(seen..3000));
    assert!(sent.len() > 100 && asked.len() > 100, "{} {}", sent.len(), asked.len());
    assert!(sent.into_iter().all(|position| outcome(position) == Some(Ok(Value::Done))));
    assert!(asked.iter().all(|asked| asked.outcome() == Some(Ok(Value::Done))));
}

/// MEM-16.9, MEM-15.3: a flush waits for messages on the fast path, and reports their end at that
/// time. A fence that holds something back lets no message past.
#[test]
fn flushes_and_fences_count_what_takes_the_fast_path() {
    let mut two = Two::new();
    let positions: Vec<u64> =
        (0..10).map(|n| two.a.engine.send_fast(1, Class::Ordered, n, b"fast").unwrap()).collect();
    let flush = two.a.ask(Request::Flush { peer: Some(1) });
    let told = Completion::new();
    let channel = two.a.engine.channels().shared(1).unwrap();
    let promise = |position, completion: &Arc<Completion>| {
        let (channel, completion) = (Arc::clone(&channel), Arc::clone(completion));
        Request::Promise { peer: 1, channel, position, completion }
    };
    two.a.tell(promise(positions[4], &told));
    let fence = two.a.ask(Request::Fence { peer: Some(1) });
    let held = two.a.ask(send(Class::Ordered, 10, Body::Empty));
    two.a.turn(two.now);
    assert!(fence.is_done() && !held.is_done() && !flush.is_done() && !told.is_done());
    assert_eq!(two.a.engine.send_fast(1, Class::Ordered, 11, b"past the fence"), None);
    for tag in 0..5 {
        assert_eq!(take_fast(&mut two.b.engine, None, false).unwrap().tag, tag);
    }
    two.a.turn(two.now);
    assert!(told.is_done() && !flush.is_done() && !held.is_done());
    assert!(channel.outcome(positions[4]).is_some() && channel.outcome(positions[5]).is_none());
    assert_eq!(two.outcome(&held), Ok(Value::Done));
    assert_eq!(flush.outcome(), Some(Ok(Value::Done)));
    assert!(two.a.engine.send_fast(1, Class::Ordered, 11, b"behind it").is_some());
    let late = Completion::new();
    two.a.tell(promise(positions[9], &late));
    two.a.turn(two.now);
    assert_eq!(late.outcome(), Some(Ok(Value::Done)));
}

/// MEM-16.9, MEM-16.6: no message overtakes one that waits for credit, or a long body in flight.
/// Messages that were read by the fast path return their credit.
#[test]
fn what_takes_the_fast_path_waits_its_turn() {
    let mut two = Two::new();
    let long = two.a.ask(send(Class::Ordered, 0, Body::Inline(vec![3; 4 * RING_BYTES])));
    two.a.turn(two.now);
    assert_eq!(two.a.engine.send_fast(1, Class::Ordered, 1, b"past it"), None);
    assert_eq!(two.outcome(&long), Ok(Value::Done));
    // Its credit is not given back before it is read; then all may be used again and again.
    let read = two.b.engine.inbox().take_arrived().unwrap();
    two.b.tell(Request::Consumed { from: 0, messages: 1, bytes: read.body.len() as u64 });
    two.turn();
    let each = 8192;
    for n in 0..3 * CREDIT / each {
        assert!(
            two.a.engine.send_fast(1, Class::Unordered, n, &vec![1; each as usize]).is_some(),
            "{n}"
        );
        assert_eq!(take_fast(&mut two.b.engine, Some(0), n % 3 > 0).unwrap().tag, n);
        if n % 64 > 60 {
            two.turn();
        }
    }
}

/// MEM-16.9: a turn is due after some messages, whatever bypasses it.
#[test]
fn after_some_messages_that_takes_the_fast_path_a_look_is_due() {
    let mut two = Two::new();
    two.turn();
    let mut sent = 0;
    while two.a.engine.send_fast(1, Class::Ordered, 0, &[]).is_some() {
        sent += 1;
    }
    let taken = std::iter::from_fn(|| take_fast(&mut two.b.engine, None, true)).count();
    assert_eq!((sent, taken), (FAST_PER_TURN_MAX as usize, FAST_PER_TURN_MAX as usize));
    two.turn();
    assert!(two.a.engine.send_fast(1, Class::Ordered, 0, &[]).is_some());
    assert!(take_fast(&mut two.b.engine, None, true).is_some());
}

/// MEM-16.7: when a local peer ends, messages on the fast path that it had taken are done, and the
/// others fail.
#[test]
fn what_takes_the_fast_path_to_one_that_ends_is_told_apart() {
    let Two { mut a, mut b, now } = Two::new();
    let [taken, left] =
        [1, 2].map(|tag| a.engine.send_fast(1, Class::Ordered, tag, b"a word").unwrap());
    assert_eq!(take_fast(&mut b.engine, None, false).unwrap().tag, 1);
    let flush = a.ask(Request::Flush { peer: None });
    a.turn(now);
    drop(b);
    let now = now + std::time::Duration::from_millis(2);
    let channels = a.engine.channels();
    (0..2).for_each(|_| a.turn(now));
    let outcome = |position| channels.of(1).unwrap().outcome(position);
    assert_eq!(outcome(taken), Some(Ok(Value::Done)));
    assert_eq!(outcome(left), Some(Err(Failure::PeerLost { peer: 1, death: Death::Ended })));
    assert!(flush.is_done(), "nothing is waited for any more");
    assert_eq!(a.engine.send_fast(1, Class::Ordered, 3, &[]), None);
}

/// MEM-16.7, MEM-16.9: a full ring of the shortest messages is read to its end, whatever takes the
/// fast path meanwhile.
#[test]
fn what_a_dead_one_left_is_read_while_others_takes_the_fast_path() {
    let Two { mut a, mut b, now } = Two::new();
    let mut left = 0;
    while b.engine.send_fast(0, Class::Ordered, left, &[]).is_some() {
        left += 1;
        b.engine.shm.fast_messages = 0;
    }
    // The last step stays free.
    assert_eq!(left, (RING_BYTES / RECORD_STEP) as u64 - 1);
    drop(b);
    let taken_from = |a: &mut Node| {
        if let Some(local_peer) = a.engine.shm.get_mut(1) {
            local_peer.taken = true;
        }
    };
    assert_eq!(read_to_the_end(&mut a, now, taken_from), (left, (1, Death::Ended)));
}

/// Makes a node with two local peers, whose sides of the rings the test writes.
fn between_two() -> (Node, [Pair; 2]) {
    let [(mine, one), (too, other)] = [(); 2].map(|()| Pair::both().unwrap());
    (Node::with_local_peers(0, 3, Wire::default(), vec![(1, mine), (2, too)]), [one, other])
}

fn say(pair: &mut Pair, times: usize) {
    let (heading, head) = whole();
    (0..times).for_each(|_| put(pair, heading, &[Part::Bytes(&head)]));
}

/// MEM-16.9: turns leave a ring to a thread that takes its messages by the fast path. They empty
/// other rings, also of a peer to which many messages go by the fast path.
#[test]
fn turns_spare_the_ring_that_is_taken_from_and_no_other() {
    let (mut node, [mut one, mut other]) = between_two();
    say(&mut one, 1);
    assert_eq!(take_fast(&mut node.engine, None, true).unwrap().from, 1);
    assert!(node.engine.send_fast(2, Class::Ordered, 0, b"a word").is_some());
    say(&mut one, 20);
    say(&mut other, 20);
    node.turn(Time(1));
    let from: Vec<Rank> = std::iter::from_fn(|| node.engine.inbox().take_arrived())
        .map(|arrived| arrived.from)
        .collect();
    let of = |rank| from.iter().filter(|from| **from == rank).count();
    assert_eq!((of(1), of(2)), (RECORDS_PER_FAST_POLL, 20));
}

/// MEM-16.9: a reader of messages from any peer takes from each peer in turn, whatever arrives in
/// between. From peers that send many, it takes some together.
#[test]
fn fast_path_messages_of_two_are_taken_in_turn() {
    for (sends_many, together) in [(false, 1), (true, FAST_BATCH_MAX)] {
        let (mut node, mut others) = between_two();
        others.iter_mut().for_each(|other| say(other, 2 * together));
        let taken: Vec<Rank> = std::iter::from_fn(|| {
            let arrived = take_fast(&mut node.engine, None, sends_many)?;
            node.engine.send_fast(1, Class::Ordered, 0, b"a word")?;
            Some(arrived.from)
        })
        .collect();
        assert_eq!(taken, [1, 2, 1, 2].map(|rank| [rank].repeat(together)).concat());
    }
}

/// MEM-16.9: messages that were taken together with an awaited one are the next to be read, by any
/// reader. No message passes another.
#[test]
fn messages_taken_ahead_are_read_next() {
    let mut two = Two::new();
    let positions: Vec<u64> =
        (0..12).map(|n| two.a.engine.send_fast(1, Class::Ordered, n, b"fast").unwrap()).collect();
    let channels = [two.a.engine.channels(), two.b.engine.channels()];
    let is_settled = |n: usize| channels[0].of(1).unwrap().outcome(positions[n]).is_some();
    assert_eq!(take_fast(&mut two.b.engine, None, true).unwrap().tag, 0);
    assert!(is_settled(FAST_BATCH_MAX - 1) && !is_settled(FAST_BATCH_MAX));
    assert_eq!(take_fast(&mut two.b.engine, Some(0), true).unwrap().tag, 1);
    assert!(take_fast(&mut two.b.engine, Some(1), true).is_none(), "those are of another");
    assert!(channels[1].have_records() && two.b.engine.has_more(), "who looks finds them");
    two.b.turn(two.now);
    for tag in 2..12 {
        assert_eq!(two.b.engine.inbox().take_arrived().unwrap().tag, tag);
    }
    assert!(!channels[1].have_records() && take_fast(&mut two.b.engine, None, true).is_none());
}

/// Records in the ring of a peer that has ended are not read any more.
#[test]
fn a_ring_that_is_over_has_no_records() {
    let (mut node, mut pair) = facing_a_hostile_one();
    let channels = node.engine.channels();
    put(&mut pair, Heading { head: 60, ..Heading::plain(RecordKind::Whole, 0) }, &[]);
    assert!(channels.have_records());
    (2..4).for_each(|now| node.turn(Time(now)));
    assert!(!node.engine.shm().contains(1));
    put(&mut pair, Heading::plain(RecordKind::Ask, 0), &[Part::Bytes(&[0; 8])]);
    assert!(!channels.have_records());
}

/// MEM-16.9: a message on the fast path cannot be refused.
#[test]
fn who_refuses_what_takes_the_fast_path_is_damaged() {
    let (mut node, mut pair) = facing_a_hostile_one();
    let position = node.engine.send_fast(1, Class::Ordered, 1, b"a word").unwrap();
    pair.inward.refuse(position, Refusal::NoRoom).unwrap();
    pair.inward.settle(position);
    node.turn(Time(2_000_000));
    node.turn(Time(2_000_000));
    assert!(!node.engine.shm().contains(1));
}

/// MEM-16.5: a turn that reads the wakeup in place of a sleeping thread says so once, because the
/// local peer believes that this thread is awake.
#[test]
fn who_hears_the_bell_for_a_sleeper_tells() {
    let mut two = Two::new();
    two.turn();
    assert!(!two.b.engine.shm_mut().arm_wakeups());
    let now = two.now;
    two.b.turn(now);
    assert!(!two.b.engine.shm_mut().take_doorbell(), "nobody rang");
    assert!(!two.b.engine.shm_mut().arm_wakeups());
    let _ = two.a.ask(send(Class::Ordered, 1, Body::Empty));
    two.turn();
    assert!(two.b.engine.shm_mut().take_doorbell() && !two.b.engine.shm_mut().take_doorbell());
    assert_eq!(two.b.engine.inbox().take_arrived().map(|arrived| arrived.tag), Some(1));
}

/// MEM-16.5: the same holds if memory arrives together with the wakeup.
#[test]
fn who_hears_the_bell_beside_a_gift_tells() {
    let mut two = Two::new();
    let region = Region::shared(4096).unwrap();
    let key = two.b.engine.memory().insert(region, Rights::ALL).unwrap().key;
    let asked = two.a.ask(Request::Map { at: 1, key });
    let now = two.now;
    two.a.turn(now);
    assert!(!two.a.engine.shm_mut().arm_wakeups());
    two.b.turn(now);
    two.a.turn(now);
    assert!(matches!(asked.outcome(), Some(Ok(Value::Mapped(_)))));
    assert!(two.a.engine.shm_mut().take_doorbell() && !two.a.engine.shm_mut().take_doorbell());
}
