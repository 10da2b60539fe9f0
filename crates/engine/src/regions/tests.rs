//! Regions that end or change in the middle of operations on them.

use crate::tests::{Node, open, pair, run, step};
use crate::{Completion, Failure, Request, Value, tracked};
use oikaze_os::memory::{Holder, Region, Registered, nameless_file};
use oikaze_protocol::block::Block;
use oikaze_protocol::rma::{
    Accumulation, AtomicOp, Combine, Destination, NumberKind, Rights, RmaError,
};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Refusal, Rows, Segment};
use std::sync::Arc;

const LEN: u64 = 1_000_000;
const MINE: u8 = 0x11;
const THEIRS: u8 = 0x22;
const CANARY: u8 = 0xC4;

fn region(node: &mut Node, fill: u8) -> (Region, Registered) {
    let region = Region::zeroed(LEN as usize).unwrap();
    region.fill(0, LEN, fill).unwrap();
    let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    (region, registered)
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    region.read(0, &mut bytes).unwrap();
    bytes
}

fn put(node: &Node, from: Registered, to: Registered) -> Arc<Completion> {
    let body = Body::Segment(Segment { region: from.slot, offset: 0, len: LEN });
    node.ask(Request::Put { to: 1, key: to.key, offset: 0, body, signal: None })
}

fn put_keeping(
    node: &mut Node,
    from: Registered,
    to: Registered,
    keep: Option<&Holder>,
) -> Arc<Completion> {
    let body = Body::Segment(Segment { region: from.slot, offset: 0, len: LEN });
    let (submission, completion) =
        tracked(Request::Put { to: 1, key: to.key, offset: 0, body, signal: None }, keep.cloned());
    node.engine.submit(submission, Time(0));
    completion
}

fn get(node: &Node, from: Registered, into: Registered) -> Arc<Completion> {
    let into = Segment { region: into.slot, offset: 0, len: LEN };
    node.ask(Request::Get { from: 1, key: from.key, offset: 0, into })
}

fn ends_as(completion: &Completion, refusal: Refusal) {
    assert_eq!(completion.outcome(), Some(Err(Failure::Remote(RmaError::Refused(refusal)))));
}

/// MEM-1.8: no byte changes after a registration has ended, however far a put has come, by copy or
/// received directly into its place. This holds even if the memory, or the entry, is registered
/// again by then.
#[test]
fn a_put_into_a_region_that_ends_changes_nothing_afterwards() {
    let mut cut = 0;
    for scatters in [false, true] {
        for at in 0..20 {
            let (mut a, mut b, mut now) = pair();
            b.engine.link_mut().scatters = scatters;
            let ((_, source), (target, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
            let put = put(&a, source, there);
            let mut turns = 0;
            let mut fresh = None;
            run(&mut a, &mut b, &mut now, |b| {
                turns += 1;
                if turns == at {
                    b.engine.close_region(there.slot);
                    fresh = Some(match at % 3 {
                        0 => b.engine.renew_region(there.slot, Rights::ALL).unwrap(),
                        1 => {
                            b.engine.remove_region(there.slot).unwrap();
                            b.engine.memory().insert(target.clone(), Rights::ALL).unwrap()
                        }
                        _ => {
                            b.engine.remove_region(there.slot).unwrap();
                            there
                        }
                    });
                    target.fill(0, LEN, CANARY).unwrap();
                }
                put.is_done()
            });
            if fresh.is_some() {
                // The put may have been whole before, and its sender may not know it yet.
                if put.outcome() != Some(Ok(Value::Done)) {
                    ends_as(&put, Refusal::UnknownKey);
                    cut += 1;
                }
                assert!(
                    bytes(&target).iter().all(|byte| *byte == CANARY),
                    "{scatters} {at}: written after the end"
                );
            } else {
                assert_eq!(put.outcome(), Some(Ok(Value::Done)), "it was over before");
            }
        }
    }
    assert!(cut > 10, "{cut} were cut off in the middle");
}

/// MEM-1.8, MEM-4.6: answers in flight no longer read the memory, and their requesters get an
/// error.
#[test]
fn a_get_from_a_region_that_ends_reads_nothing_afterwards() {
    for at in 0..20 {
        let (mut a, mut b, mut now) = pair();
        let ((into, here), (source, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
        let get = get(&a, there, here);
        let (mut turns, mut ended) = (0, false);
        run(&mut a, &mut b, &mut now, |b| {
            turns += 1;
            if turns == at {
                b.engine.close_region(there.slot);
                b.engine.remove_region(there.slot);
                source.fill(0, LEN, CANARY).unwrap();
                open(&b.engine.link_mut().to).clear();
                ended = true;
            }
            get.is_done()
        });
        if ended && get.outcome() != Some(Ok(Value::Done)) {
            ends_as(&get, Refusal::UnknownKey);
        }
        assert!(bytes(&into).iter().all(|byte| *byte != CANARY), "{at}: read after the end");
    }
}

/// MEM-1.7, MEM-3.8: a put in flight fails if its right is taken away, even if the right is given
/// back before the end.
#[test]
fn a_right_that_is_taken_for_a_moment_ends_the_put() {
    for scatters in [false, true] {
        for pages in [None, Some(4096 * 10..4096 * 110)] {
            let (mut a, mut b, mut now) = pair();
            b.engine.link_mut().scatters = scatters;
            let ((_, source), (target, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
            let put = put(&a, source, there);
            let (mut since, mut kept) = (0, Vec::new());
            let range = pages
                .clone()
                .map_or(0..LEN as usize, |pages| pages.start as usize..pages.end as usize);
            run(&mut a, &mut b, &mut now, |b| {
                let begun = bytes(&target)[range.clone()].contains(&MINE);
                since += u32::from(begun || since > 0);
                match since {
                    0 => {}
                    1 => {
                        b.engine.set_rights(there.slot, pages.clone(), Rights::READ).unwrap();
                        kept = bytes(&target);
                        assert!(kept[range.clone()].contains(&THEIRS), "it is in the middle");
                    }
                    2..=9 => assert!(
                        bytes(&target)[range.clone()] == kept[range.clone()],
                        "placed without the right"
                    ),
                    10 => b.engine.set_rights(there.slot, None, Rights::ALL).unwrap(),
                    _ => {}
                }
                put.is_done()
            });
            ends_as(&put, Refusal::NotPermitted);
            let (counted, refused) = b.engine.rma().refusals();
            assert_eq!((refused.len(), counted.not_permitted), (1, 1));
        }
    }
}

/// MEM-1.7: the same holds for a get in flight.
#[test]
fn a_get_under_way_ends_with_its_right() {
    let (mut a, mut b, mut now) = pair();
    let ((_, here), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
    let (all, part) = (get(&a, there, here), {
        let into = Segment { region: here.slot, offset: 0, len: 4096 };
        a.ask(Request::Get { from: 1, key: there.key, offset: 4096, into })
    });
    let mut turns = 0;
    run(&mut a, &mut b, &mut now, |b| {
        turns += 1;
        if turns == 3 {
            b.engine.set_rights(there.slot, Some(4096 * 40..4096 * 41), Rights::NONE).unwrap();
        }
        all.is_done() && part.is_done()
    });
    ends_as(&all, Refusal::NotPermitted);
    assert_eq!(part.outcome(), Some(Ok(Value::Done)), "of pages that still may be read");
}

/// MEM-1.12: the file shrinks while a put from it is in flight.
#[test]
fn a_put_from_a_file_that_is_truncated_ends() {
    let path = std::env::temp_dir().join(format!("oikaze-shrinks-{}", std::process::id()));
    let file = nameless_file(&path).unwrap();
    file.set_len(LEN).unwrap();
    let source = Region::of_file(std::os::fd::AsFd::as_fd(&file), 0, LEN as usize, true).unwrap();
    source.make_present(0, LEN, Rights::READ).unwrap();
    let (mut a, mut b, mut now) = pair();
    let (_, there) = region(&mut b, THEIRS);
    let from = a.engine.memory().insert(source, Rights::NONE).unwrap();
    let holder: oikaze_os::memory::Holder = Arc::new(());
    a.engine.memory().set_holder(from.slot, &holder);
    let body = Body::Segment(Segment { region: from.slot, offset: 0, len: LEN });
    let request = Request::Put { to: 1, key: there.key, offset: 0, body, signal: None };
    let (submission, put) = super::super::tracked(request, Some(holder));
    a.engine.submit(submission, now);
    // Sends as much as one turn does.
    assert!(a.engine.turn(now).sent > 10);
    file.set_len(4096).unwrap();
    // The thread that looks for the pages takes its time.
    while !put.is_done() {
        now = step(now);
        a.engine.turn(now);
        b.engine.turn(now);
        std::thread::yield_now();
    }
    assert_eq!(put.outcome(), Some(Err(Failure::Remote(RmaError::Absent))));
}

/// MEM-1.5: no operation begins with a region that is not registered.
#[test]
fn operations_with_regions_that_are_gone_fail_at_once() {
    let (mut a, mut b, now) = pair();
    let ((_, gone), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
    a.engine.remove_region(gone.slot);
    let (put, get) = (put(&a, gone, there), get(&a, there, gone));
    a.turn(now);
    assert_eq!(put.outcome(), Some(Err(Failure::Remote(RmaError::SourceGone))));
    assert_eq!(get.outcome(), Some(Err(Failure::Remote(RmaError::DestinationGone))));
}

/// MEM-1.5, MEM-1.8: a request with a region that is being deregistered is refused at once. Earlier
/// requests go on, even if a fence holds them back.
#[test]
fn nothing_is_begun_with_a_region_that_ends() {
    let (mut a, mut b, mut now) = pair();
    let ((_, mine), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
    let before = put(&a, mine, there);
    let _ = a.ask(Request::Fence { peer: Some(1) });
    let held = [put(&a, mine, there), get(&a, there, mine)];
    a.turn(now);
    assert!(!held[0].is_done() && a.engine.close_region(mine.slot));
    let block = Block::new(0, 100).rows(10, 200);
    let rows = || Rows { region: mine.slot, block };
    let segment = Segment { region: mine.slot, offset: 0, len: 4096 };
    let key = there.key;
    let how = Accumulation { element: NumberKind::F64, combine: Combine::Sum };
    let sources = [
        Request::Put { to: 1, key, offset: 0, body: Body::Segment(segment), signal: None },
        Request::PutBlock {
            to: 1,
            key,
            block: Box::new(block),
            body: Body::Rows(rows().into()),
            signal: None,
        },
        Request::Accumulate { to: 1, key, offset: 0, how, body: Body::Segment(segment) },
        Request::Send { to: 1, class: Class::Ordered, tag: 0, body: Body::Segment(segment) },
    ];
    let destinations = [
        Request::Get { from: 1, key, offset: 0, into: segment },
        Request::GetBlock {
            from: 1,
            key,
            block: Box::new(block),
            into: Destination::Rows(rows().into()),
        },
    ];
    let sources = sources.map(|request| a.ask(request));
    let destinations = destinations.map(|request| a.ask(request));
    a.engine.turn(now);
    assert!(
        sources.iter().all(|put| put.outcome() == Some(Err(Failure::Remote(RmaError::SourceGone))))
    );
    assert!(
        destinations
            .iter()
            .all(|get| get.outcome() == Some(Err(Failure::Remote(RmaError::DestinationGone))))
    );
    run(&mut a, &mut b, &mut now, |_| held.iter().all(|operation| operation.is_done()));
    assert!(
        held.iter().chain([&before]).all(|operation| operation.outcome() == Some(Ok(Value::Done)))
    );
}

/// MEM-1.5: rows that cannot be written are found before the request is sent, as for a range.
#[test]
fn a_get_of_a_block_into_what_is_gone_asks_for_nothing() {
    let (mut a, mut b, now) = pair();
    let ((_, mine), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
    let first = put(&a, mine, there);
    let _ = a.ask(Request::Fence { peer: Some(1) });
    let block = Block::new(0, 100).rows(10, 200);
    let rows = Rows { region: mine.slot, block };
    let into = Destination::Rows(rows.into());
    let get = a.ask(Request::GetBlock { from: 1, key: there.key, block: Box::new(block), into });
    a.turn(now);
    // The region is not closed first, so only an operation that begins now can notice.
    a.engine.remove_region(mine.slot);
    a.cancel(&first);
    a.turn(now);
    assert_eq!(get.outcome(), Some(Err(Failure::Remote(RmaError::DestinationGone))));
}

/// MEM-1.8: all operations that keep a region are cut off together: in flight, waiting for the
/// network, held back by a fence, and to the node itself. No other operation is cut off.
#[test]
fn what_keeps_a_region_ends_together() {
    let (mut a, mut b, mut now) = pair();
    let ((_, mine), (_, other), (target, there)) =
        (region(&mut a, MINE), region(&mut a, MINE), region(&mut b, THEIRS));
    let holder: Holder = Arc::new(());
    let mut kept: Vec<_> =
        (0..300).map(|_| put_keeping(&mut a, mine, there, Some(&holder))).collect();
    let spared = put_keeping(&mut a, other, there, None);
    let _ = a.ask(Request::Fence { peer: Some(1) });
    a.turn(now);
    kept.extend((0..300).map(|_| put_keeping(&mut a, mine, there, Some(&holder))));
    let held = put_keeping(&mut a, other, there, None);
    assert!(a.engine.ops().is_kept(&holder));
    a.engine.cancel_keeping(&holder);
    a.engine.remove_region(mine.slot);
    assert!(!a.engine.ops().is_kept(&holder) && a.engine.has_more(), "a turn is due");
    assert!(kept.iter().all(|put| matches!(put.outcome(), Some(Err(Failure::Cancelled) | Ok(_)))));
    assert!(kept.iter().filter(|put| put.outcome() == Some(Err(Failure::Cancelled))).count() > 500);
    assert_eq!((a.engine.ops().in_flight(), Arc::strong_count(&holder)), (2, 1));
    run(&mut a, &mut b, &mut now, |_| held.is_done());
    assert_eq!((spared.outcome(), held.outcome()), (Some(Ok(Value::Done)), Some(Ok(Value::Done))));
    assert!(bytes(&target).iter().all(|byte| *byte == MINE));
}

/// A request that is cancelled at any moment leaves no ticket open, because the number of tickets
/// is limited (MEM-4.2).
#[test]
fn what_is_taken_back_leaves_nothing_behind() {
    for at in 0..6 {
        let (mut a, mut b, mut now) = pair();
        let ((_, into), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
        let get = get(&a, there, into);
        let sum = a.ask(Request::Atomic {
            at: 1,
            key: there.key,
            offset: 0,
            op: AtomicOp::add(1u64),
            fetch: true,
        });
        let lookup = a.ask(Request::Lookup { at: 1, name: "nobody's".into() });
        a.engine.turn(now);
        for _ in 0..at {
            now = step(now);
            b.engine.turn(now);
            a.engine.turn(now);
        }
        for asked in [&get, &sum, &lookup] {
            a.cancel(asked);
            assert!(asked.is_done());
        }
        assert_eq!(a.engine.layers.rma.outstanding(), 0, "{at}");
        // A later request is answered, whatever still arrives of the cancelled ones.
        let after = self::get(&a, there, into);
        run(&mut a, &mut b, &mut now, |_| after.is_done());
        assert_eq!(after.outcome(), Some(Ok(Value::Done)), "{at}");
        assert_eq!(a.engine.layers.rma.outstanding(), 0, "{at}");
    }
}

/// MEM-1.7, MEM-4.6: the maximum number of gets, whose answers wait for room, end with their right.
/// Gets of pages that may still be read do not end. (One pass over the waiting answers serves all
/// of them. A pass for each would take a million million steps.)
#[test]
fn many_gets_end_with_their_right() {
    const MANY: usize = 60_000;
    let (mut a, mut b, mut now) = pair();
    let ((_, here), (_, there)) = (region(&mut a, MINE), region(&mut b, THEIRS));
    let get = |node: &Node, at: usize| {
        let into = Segment { region: here.slot, offset: 0, len: 512 };
        node.ask(Request::Get { from: 1, key: there.key, offset: 4096 * (at as u64 % 2), into })
    };
    let all: Vec<_> = (0..MANY).map(|at| get(&a, at)).collect();
    // Answers are lost on their way. Acknowledgements are not.
    a.engine.turn(now);
    while !a.engine.is_settled() {
        now = step(now);
        a.turn(now);
        b.turn(now);
        open(&a.engine.link_mut().from).retain(|datagram| datagram.len() < 512);
    }
    b.engine.set_rights(there.slot, Some(4096..8192), Rights::WRITE).unwrap();
    run(&mut a, &mut b, &mut now, |_| all.iter().all(|get| get.is_done()));
    for (at, get) in all.iter().enumerate() {
        if at % 2 == 0 {
            assert_eq!(get.outcome(), Some(Ok(Value::Done)));
        } else {
            ends_as(get, Refusal::NotPermitted);
        }
    }
}

/// MEM-1.7, MEM-4.6: the same holds for gets from the node itself, whose answers wait to be
/// delivered.
#[test]
fn many_gets_from_oneself_end_with_their_right() {
    const MANY: usize = 16_000;
    let (mut node, _, now) = pair();
    let ((_, here), (_, there)) = (region(&mut node, MINE), region(&mut node, THEIRS));
    let all: Vec<_> = (0..MANY)
        .map(|at| {
            let into = Segment { region: here.slot, offset: 0, len: 512 };
            let request =
                Request::Get { from: 0, key: there.key, offset: 4096 * (at as u64 % 2), into };
            let (submission, completion) = tracked(request, None);
            node.engine.submit(submission, now);
            completion
        })
        .collect();
    while node.engine.layers.rma.answers() < MANY / 2 {
        node.engine.turn(now);
    }
    node.engine.set_rights(there.slot, Some(4096..8192), Rights::WRITE).unwrap();
    node.turn(now);
    for (at, get) in all.iter().enumerate() {
        match get.outcome() {
            Some(Ok(Value::Done)) => {}
            _ if at % 2 == 1 => ends_as(get, Refusal::NotPermitted),
            other => panic!("{at}: {other:?}"),
        }
    }
    assert!(all.iter().filter(|get| get.outcome() != Some(Ok(Value::Done))).count() > MANY / 4);
}
