//! Messages that a node sends to itself.

use super::LOOPBACK_BYTES_PER_TURN;
use crate::tests::{Node, pair};
use crate::{Completion, Failure, Request, Value, tracked};
use oikaze_os::memory::{Region, Registered, nameless_file};
use oikaze_protocol::block::Block;
use oikaze_protocol::limits::{
    CREDIT, MESSAGES_OF_PROGRAM_MAX, PAGE, POST_INLINE, PRESENT_PAUSE_MAX, PRESENT_TIME,
};
use oikaze_protocol::rma::{Accumulation, Combine, NumberKind, Rights, RmaError};
use oikaze_protocol::wind::{Body, Class, Refusal, Rows, Segment};
use std::sync::Arc;

const EACH: usize = 1 << 20;

fn send(node: &Node, class: Class, tag: u64, bytes: usize) -> Arc<Completion> {
    node.ask(Request::Send { to: 0, class, tag, body: Body::Inline(vec![1; bytes]) })
}

/// MEM-8.1: a program that sends to itself without reading does not fill its memory. Messages that
/// it reads make room.
#[test]
fn messages_to_oneself_wait_for_credit() {
    let (mut node, _, now) = pair();
    let classes = [Class::Ordered, Class::Unordered, Class::Sync];
    let sent: Vec<_> = (0..60).map(|tag| send(&node, classes[tag % 3], tag as u64, EACH)).collect();
    node.turn(now);
    let done = || sent.iter().filter(|one| one.is_done()).count();
    let fits = (CREDIT / EACH as u64) as usize - 1;
    assert_eq!(done(), fits, "as many as there is credit for");
    // A put takes no credit and is not held up.
    let region = Region::zeroed(64).unwrap();
    let there = node.engine.memory().insert(region, Rights::ALL).unwrap();
    let put = node.ask(Request::Put {
        to: 0,
        key: there.key,
        offset: 0,
        body: Body::copy_of(&[1; 8]),
        signal: None,
    });
    node.turn(now);
    assert_eq!(put.outcome(), Some(Ok(Value::Done)));
    // A message that is cancelled while it waits is not delivered.
    let _ = node.ask(Request::Cancel { completion: Arc::clone(&sent[40]) });
    let mut tags = Vec::new();
    while tags.len() < 59 {
        node.turn(now);
        let arrived = node.engine.inbox().take_arrived().expect("what is read makes room");
        tags.push(arrived.tag);
        let _ =
            node.ask(Request::Consumed { from: 0, messages: 1, bytes: arrived.body.len() as u64 });
        assert!(done() <= tags.len() + fits + 1);
    }
    assert_eq!(tags, (0..60).filter(|tag| *tag != 40).collect::<Vec<_>>());
    assert_eq!(sent[40].outcome(), Some(Err(Failure::Cancelled)));
}

/// MEM-8.1: a message for which there is credit goes once the message before it, for which there
/// was none, is cancelled.
#[test]
fn who_is_cancelled_holds_up_nobody() {
    let (mut node, _, now) = pair();
    let read = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
    let (long, short) = (send(&node, Class::Ordered, 1, EACH), send(&node, Class::Ordered, 2, 100));
    node.turn(now);
    assert_eq!([&read, &long, &short].map(|one| one.is_done()), [true, false, false]);
    let _ = node.ask(Request::Cancel { completion: Arc::clone(&long) });
    node.turn(now);
    assert_eq!(long.outcome(), Some(Err(Failure::Cancelled)));
    assert_eq!(short.outcome(), Some(Ok(Value::Done)));
    let tags: Vec<_> =
        std::iter::from_fn(|| node.engine.inbox().take_arrived()).map(|one| one.tag).collect();
    assert_eq!(tags, [0, 2]);
}

/// MEM-1.12: the node waits for pages of a source that disappeared while their message waited for
/// credit.
#[test]
fn a_source_that_has_gone_again_is_waited_for() {
    let (mut node, _, now) = pair();
    let first = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
    let (source, disk) = Region::staged(PAGE).unwrap();
    source.fill(0, PAGE as u64, 7).unwrap();
    let region = node.engine.memory().insert_local(source).unwrap();
    let body = Body::Segment(Segment { region, offset: 0, len: PAGE as u64 });
    let waiting = node.ask(Request::Send { to: 0, class: Class::Ordered, tag: 1, body });
    let behind = send(&node, Class::Ordered, 2, 1);
    node.turn(now);
    assert!(first.is_done() && !waiting.is_done());
    disk.evict(0..1);
    let read = node.engine.inbox().take_arrived().unwrap().body.len() as u64;
    let _ = node.ask(Request::Consumed { from: 0, messages: 1, bytes: read });
    node.turn(now);
    assert_eq!(waiting.outcome(), Some(Ok(Value::Done)));
    assert_eq!(behind.outcome(), Some(Ok(Value::Done)));
    let arrived: Vec<_> = std::iter::from_fn(|| node.engine.inbox().take_arrived())
        .map(|one| (one.tag, one.body.to_vec()))
        .collect();
    assert_eq!(arrived, [(1, vec![7; PAGE]), (2, vec![1])]);
}

/// WIND-6.7: as over the network.
#[test]
fn message_beyond_all_credit_goes_alone() {
    let (mut node, _, now) = pair();
    let lens = [100, CREDIT as usize, 200];
    let sent = lens.map(|len| send(&node, Class::Ordered, 0, len));
    let mut done = Vec::new();
    for len in lens {
        node.turn(now);
        done.push(sent.iter().filter(|one| one.is_done()).count());
        assert_eq!(node.engine.inbox().take_arrived().map(|one| one.body.len()), Some(len));
        assert!(node.engine.inbox().take_arrived().is_none());
        let _ = node.ask(Request::Consumed { from: 0, messages: 1, bytes: len as u64 });
        node.turn(now);
    }
    assert_eq!(done, [1, 2, 3]);
}

/// WIND-6.4, WIND-6.3: as over the network.
#[test]
fn what_can_never_be_taken_fails_at_once() {
    let (mut node, _, now) = pair();
    let read = send(&node, Class::Ordered, 0, CREDIT as usize - 1000);
    let waiting: Vec<_> =
        (0..MESSAGES_OF_PROGRAM_MAX + 10).map(|_| send(&node, Class::Ordered, 1, 1000)).collect();
    node.turn(now);
    assert!(read.is_done());
    let too_many =
        |one: &&Arc<Completion>| one.outcome() == Some(Err(Failure::TooMany { peer: 0 }));
    assert_eq!(waiting.iter().filter(too_many).count(), 10);
    assert_eq!(waiting.iter().filter(|one| one.is_done()).count(), 10);
}

/// MEM-1.10, MEM-4.6: all gets from a file end, even if the file is truncated after they were
/// served.
#[test]
fn gets_of_a_file_that_is_truncated_end() {
    for len in [POST_INLINE, 2 * POST_INLINE] {
        let (mut node, _, mut now) = pair();
        let path = std::env::temp_dir().join(format!("oikaze-truncated-{}", std::process::id()));
        let file = nameless_file(&path).unwrap();
        file.set_len(PAGE as u64).unwrap();
        let source = Region::of_file(std::os::fd::AsFd::as_fd(&file), 0, PAGE, true).unwrap();
        source.make_present(0, PAGE as u64, Rights::READ).unwrap();
        let there = node.engine.memory().insert(source, Rights::READ).unwrap();
        let region = node.engine.memory().insert_local(Region::zeroed(PAGE).unwrap()).unwrap();
        let into = Segment { region, offset: 0, len };
        let gets: Vec<_> = (0..2000)
            .map(|_| {
                let (submission, get) =
                    tracked(Request::Get { from: 0, key: there.key, offset: 0, into }, None);
                node.engine.submit(submission, now);
                get
            })
            .collect();
        // Serves as many gets as one turn does.
        node.engine.turn(now);
        file.set_len(0).unwrap();
        let begun = now;
        while !gets.iter().all(|get| get.is_done()) {
            assert!(now - begun < 2 * PRESENT_TIME, "{len}: they never end");
            node.turn(now);
            now += PRESENT_PAUSE_MAX;
            std::thread::yield_now();
        }
        let lost = Some(Err(Failure::Remote(RmaError::Refused(Refusal::Lost))));
        assert!(gets.iter().any(|get| get.outcome() == lost), "{len}: {:?}", gets[0].outcome());
    }
}

/// Makes a source that takes some turns to move, with bytes that identify their place.
fn long(node: &mut Node) -> (Region, Registered, Vec<u8>) {
    let len = 3 * LOOPBACK_BYTES_PER_TURN as usize + 12_345;
    let (region, bytes) =
        (Region::zeroed(len).unwrap(), (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    region.write(0, &bytes).unwrap();
    let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    (region, registered, bytes)
}

fn is_there(region: &Region, bytes: &[u8]) -> bool {
    let mut seen = vec![0; bytes.len()];
    region.read(0, &mut seen).unwrap();
    seen == bytes
}

/// A turn moves a limited number of bytes, because peers wait for its end.
#[test]
fn what_is_long_is_moved_turn_by_turn() {
    let (mut node, _, now) = pair();
    let (region, registered, bytes) = long(&mut node);
    let (key, len) = (registered.key, bytes.len() as u64);
    let here = Segment { region: registered.slot, offset: 0, len };
    let rows = Block::new(0, 5000).rows((len / 5000) as u32, 5000);
    type Ask<'a> = &'a dyn Fn(u64, Segment) -> Request;
    let asks: [Ask<'_>; 4] = [
        &|key, _| Request::Put { to: 0, key, offset: 0, body: Body::Segment(here), signal: None },
        &|_, into| Request::Get { from: 0, key, offset: 0, into },
        &|key, _| {
            let how = Accumulation { element: NumberKind::U32, combine: Combine::Max };
            let body = Body::Segment(Segment { len: len - len % 4, ..here });
            Request::Accumulate { to: 0, key, offset: 0, how, body }
        },
        &|key, _| {
            let body = Body::Rows(Arc::new(Rows { region: here.region, block: rows }));
            Request::PutBlock { to: 0, key, block: Box::new(rows), body, signal: None }
        },
    ];
    for (which, ask) in asks.into_iter().enumerate() {
        let other = Region::zeroed(bytes.len()).unwrap();
        let there = node.engine.memory().insert(other.clone(), Rights::ALL).unwrap();
        let asked = node.ask(ask(there.key, Segment { region: there.slot, ..here }));
        let mut turns = 0;
        while !asked.is_done() {
            let work = node.engine.turn(now);
            assert!(work.more || asked.is_done(), "{which}");
            turns += 1;
        }
        assert_eq!(asked.outcome(), Some(Ok(Value::Done)), "{which}: {turns} turns");
        assert!(turns >= 4, "{which}: {turns} turns");
        assert!(is_there(&other, &bytes[..bytes.len() / 5000 * 5000]), "{which}");
    }
    // The limit also holds for many shorter puts.
    let each = LOOPBACK_BYTES_PER_TURN / 8;
    let body = || Body::Segment(Segment { len: each, ..here });
    let many: Vec<_> = (0..40)
        .map(|_| {
            node.ask(Request::Put { to: 0, key, offset: len - each, body: body(), signal: None })
        })
        .collect();
    node.engine.turn(now);
    assert_eq!(many.iter().filter(|put| put.is_done()).count(), 8);
    node.turn(now);
    assert!(many.iter().all(|put| put.is_done()) && !is_there(&region, &bytes));
}

/// MEM-4.5, MEM-7.5: a transfer that is cancelled in the middle moves no further, and holds up no
/// other.
#[test]
fn what_is_long_is_cancelled_in_the_middle() {
    let (mut node, _, now) = pair();
    let (_, source, bytes) = long(&mut node);
    let other = Region::zeroed(bytes.len()).unwrap();
    let there = node.engine.memory().insert(other.clone(), Rights::ALL).unwrap();
    let len = bytes.len() as u64;
    let body = Body::Segment(Segment { region: source.slot, offset: 0, len });
    let put = node.ask(Request::Put { to: 0, key: there.key, offset: 0, body, signal: None });
    node.engine.turn(now);
    node.cancel(&put);
    assert_eq!(put.outcome(), Some(Err(Failure::Cancelled)));
    other.fill(0, len, 0).unwrap();
    node.engine.turn(now);
    assert!(is_there(&other, &vec![0; bytes.len()]));
    let get = node.ask(Request::Get {
        from: 0,
        key: source.key,
        offset: 0,
        into: Segment { region: there.slot, offset: 0, len },
    });
    // Takes the right away in the middle of the transfer.
    while !other.load_u64(0).is_ok_and(|word| word != 0) {
        node.engine.turn(now);
    }
    node.engine.set_rights(source.slot, None, Rights::NONE).unwrap();
    node.turn(now);
    assert_eq!(get.outcome(), Some(Err(Failure::Remote(RmaError::Refused(Refusal::NotPermitted)))));
    assert!(!is_there(&other, &bytes));
}
