//! Records that find absent pages wait in their ring (MEM-1.13).

use super::*;
use oikaze_os::memory::Disk;
use oikaze_protocol::limits::{PAGE, PRESENT_PAUSE_MAX, PRESENT_TIME};

const LEN: usize = 16 * PAGE;

/// Makes a region of node B whose pages 4 to 7 are on a disk, from which the test brings them.
fn with_a_disk() -> (Two, Region, u64, Disk) {
    let mut two = Two::new();
    let (region, disk) = Region::staged(LEN).unwrap();
    let registered = two.b.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    disk.evict(4..8);
    (two, region, registered.key, disk)
}

fn put(key: u64, offset: u64, bytes: Vec<u8>) -> Request {
    Request::Put { to: 1, key, offset, body: Body::Inline(bytes), signal: None }
}

/// Makes a region of node A, filled with 5s, whose pages the test takes away and brings.
fn staged_source(two: &mut Two, len: usize) -> (u32, Disk) {
    let (source, disk) = Region::staged(len).unwrap();
    source.fill(0, len as u64, 5).unwrap();
    (two.a.engine.memory().insert_local(source).unwrap(), disk)
}

/// Posts a put of a whole region of node A.
fn put_all(two: &mut Two, key: u64, slot: u32, len: usize) -> Arc<Completion> {
    let body = Body::Segment(Segment { region: slot, offset: 0, len: len as u64 });
    let asked = two.a.ask(Request::Put { to: 1, key, offset: 0, body, signal: None });
    two.a.turn(two.now);
    asked
}

fn bytes_at(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn it_waits_and_everything_else_goes_on() {
    let (mut two, region, key, disk) = with_a_disk();
    let waiting = two.a.ask(put(key, 5 * PAGE as u64, vec![7; 100]));
    let behind = two.a.ask(put(key, 0, vec![8; 100]));
    let fetched =
        two.b.ask(Request::Send { to: 0, class: Class::Ordered, tag: 9, body: Body::Empty });
    assert_eq!(two.outcome(&fetched), Ok(Value::Done));
    assert_eq!(disk.take_wanted(), [5]);
    assert!(!waiting.is_done() && !behind.is_done());
    assert_eq!(bytes_at(&region, 5 * PAGE as u64, 1), vec![0]);
    assert_eq!(bytes_at(&region, 0, 1), vec![0]);
    assert!(!two.b.engine.shm_mut().arm_wakeups(), "nothing is there to be done before its time");
    assert!(two.b.engine.next_timeout().is_some_and(|due| due <= two.now + PRESENT_PAUSE_MAX));
    disk.bring(5);
    assert_eq!((two.outcome(&waiting), two.outcome(&behind)), (Ok(Value::Done), Ok(Value::Done)));
    assert_eq!(bytes_at(&region, 5 * PAGE as u64, 100), vec![7; 100]);
    assert_eq!(bytes_at(&region, 0, 100), vec![8; 100]);
    assert_eq!(
        two.b.engine.shm.get(0).map(|ring| ring.counters().messages_in),
        Some(2),
        "each is counted once, however often it was looked at"
    );
}

#[test]
fn so_does_one_of_several_records_and_a_get() {
    let (mut two, region, key, disk) = with_a_disk();
    let long = 10 * PAGE;
    let waiting = two.a.ask(put(key, 4 * PAGE as u64, vec![3; long]));
    (0..100).for_each(|_| two.turn());
    assert!(!waiting.is_done() && long > RECORD_BODY);
    (4..7).for_each(|page| disk.bring(page));
    (0..100).for_each(|_| two.turn());
    assert!(!waiting.is_done(), "all of it is there, or none is used");
    disk.bring(7);
    assert_eq!(two.outcome(&waiting), Ok(Value::Done));
    assert_eq!(bytes_at(&region, 4 * PAGE as u64, long), vec![3; long]);

    disk.evict(4..5);
    let word = two.a.ask(Request::Atomic {
        at: 1,
        key,
        offset: 4 * PAGE as u64,
        op: AtomicOp::add(1_u64),
        fetch: true,
    });
    (0..100).for_each(|_| two.turn());
    assert!(!word.is_done());
    disk.bring(4);
    assert_eq!(
        two.outcome(&word),
        Ok(Value::Word(u64::from_le_bytes([3; 8]))),
        "it takes place once"
    );
    assert_eq!(
        bytes_at(&region, 4 * PAGE as u64, 8),
        (u64::from_le_bytes([3; 8]) + 1).to_le_bytes()
    );
}

#[test]
fn who_waits_for_too_long_is_told_and_the_next_goes_on() {
    let (mut two, region, key, _disk) = with_a_disk();
    for len in [8, 10 * PAGE] {
        let waiting = two.a.ask(put(key, 4 * PAGE as u64, vec![7; len]));
        let behind = two.a.ask(put(key, 0, vec![len as u8 + 1; 8]));
        two.turn();
        two.turn();
        let begun = two.now;
        while !behind.is_done() {
            two.now += PRESENT_PAUSE_MAX;
            two.turn();
            assert!(two.now - begun < PRESENT_TIME * 2);
        }
        assert!(two.now - begun >= PRESENT_TIME);
        assert_eq!(
            waiting.outcome(),
            Some(Err(Failure::Remote(RmaError::Refused(Refusal::NotPresent))))
        );
        assert_eq!(bytes_at(&region, 0, 1), [len as u8 + 1]);
    }
}

#[test]
fn a_dead_one_is_not_waited_for() {
    let (Two { mut a, mut b, now }, _region, key, _disk) = with_a_disk();
    let _ = a.ask(put(key, 4 * PAGE as u64, vec![7; 8]));
    let _ = a.ask(Request::Send {
        to: 1,
        class: Class::Ordered,
        tag: 7,
        body: Body::copy_of(b"last words"),
    });
    a.turn(now);
    b.turn(now);
    assert!(b.engine.inbox().take_arrived().is_none());
    drop(a);
    let now = now + Duration::from_millis(2);
    b.turn(now);
    b.turn(now);
    assert_eq!(b.engine.inbox().take_arrived().unwrap().tag, 7);
    assert_eq!(b.engine.inbox().take_death(), Some((0, Death::Ended)));
}

/// MEM-1.12: pages of a source that disappeared before there was room for them are fetched, and
/// then sent.
#[test]
fn a_source_that_has_gone_again_is_waited_for() {
    let mut two = Two::new();
    let (_, there) = region(&mut two.b, LEN);
    let (slot, disk) = staged_source(&mut two, LEN);
    let first = two.a.ask(put(there.key, 0, vec![1; LEN]));
    while two.a.engine.shm.get(1).is_some_and(|ring| ring.counters().waited == 0) {
        let _ = two.a.ask(put(there.key, 0, vec![1; LEN]));
        let now = two.now;
        two.a.turn(now);
    }
    let asked = put_all(&mut two, there.key, slot, LEN);
    disk.evict(8..9);
    assert_eq!(two.outcome(&first), Ok(Value::Done));
    (0..100).for_each(|_| two.turn());
    assert!(!asked.is_done() && disk.take_wanted() == [8]);
    disk.bring(8);
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    let mut bytes = vec![0; LEN];
    two.b.engine.memory().region(there.slot).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, vec![5; LEN]);
}

/// MEM-1.12: the node does nothing for a waiting source before its time.
#[test]
fn who_waits_for_a_source_sleeps() {
    for len in [PAGE, LEN] {
        let mut two = Two::new();
        let (slot, disk) = staged_source(&mut two, LEN);
        let last = (len / PAGE - 1) as u64;
        disk.evict(last..last + 1);
        let from = |len| Body::Segment(Segment { region: slot, offset: 0, len });
        let waiting = two.a.ask(send(Class::Ordered, 1, from(len as u64)));
        let behind = two.a.ask(send(Class::Ordered, 2, Body::Empty));
        (0..10).for_each(|_| two.turn());
        assert!(!two.a.engine.shm_mut().arm_wakeups() && !waiting.is_done(), "{len}");
        assert!(disk.take_wanted() == [last], "{len}");
        let due = two.a.engine.shm().next_timeout().unwrap();
        assert!(due > two.now && due <= two.now + PRESENT_PAUSE_MAX);
        disk.bring(last);
        two.a.engine.turn_until_news(due, || None);
        assert_eq!(two.a.engine.shm().next_timeout(), None);
        assert!(!two.a.engine.shm_mut().arm_wakeups());
        two.b.turn(due);
        assert_eq!(two.outcome(&waiting), Ok(Value::Done));
        assert_eq!(two.outcome(&behind), Ok(Value::Done));
    }
}

/// MEM-1.12: the node does not wait for a cancelled message.
#[test]
fn a_source_that_nobody_wants_any_more_holds_up_nobody() {
    let mut two = Two::new();
    let (source, disk) = Region::staged(PAGE).unwrap();
    let slot = two.a.engine.memory().insert_local(source).unwrap();
    disk.evict(0..1);
    let body = Body::Segment(Segment { region: slot, offset: 0, len: PAGE as u64 });
    let waiting = two.a.ask(send(Class::Ordered, 1, body));
    let behind = two.a.ask(send(Class::Ordered, 2, Body::Empty));
    two.turn();
    let _ = two.a.ask(Request::Cancel { completion: Arc::clone(&waiting) });
    let now = two.now;
    two.a.turn(now);
    assert_eq!(two.a.engine.shm().next_timeout(), None);
    assert_eq!(waiting.outcome(), Some(Err(Failure::Cancelled)));
    assert_eq!(two.outcome(&behind), Ok(Value::Done));
}

/// MEM-1.12: pages of a source that disappear after they were put into the ring do not matter. A
/// source may be longer than memory.
#[test]
fn of_a_long_source_only_what_is_put_in_need_be_there() {
    const LONG_BODY_BYTES: usize = 2 * RING_BYTES;
    let mut two = Two::new();
    let (_, there) = region(&mut two.b, LONG_BODY_BYTES);
    let (slot, disk) = staged_source(&mut two, LONG_BODY_BYTES);
    let asked = put_all(&mut two, there.key, slot, LONG_BODY_BYTES);
    // The first piece is in the ring.
    disk.evict(0..(RECORD_BODY / PAGE) as u64);
    (0..100).for_each(|_| two.turn());
    assert_eq!((asked.outcome(), disk.take_wanted()), (Some(Ok(Value::Done)), vec![]));
}

/// MEM-1.12: the same holds for pages that disappear while a fence holds the operation back.
#[test]
fn a_source_that_has_gone_behind_a_fence_is_waited_for() {
    let mut two = Two::new();
    let (there, registered) = region(&mut two.b, LEN);
    let (slot, disk) = staged_source(&mut two, LEN);
    let first = two.a.ask(put(registered.key, 0, vec![1; 100]));
    two.a.tell(Request::Fence { peer: Some(1) });
    let asked = put_all(&mut two, registered.key, slot, LEN);
    disk.evict(8..9);
    assert_eq!(two.outcome(&first), Ok(Value::Done));
    (0..100).for_each(|_| two.turn());
    assert_eq!((asked.outcome(), disk.take_wanted()), (None, vec![8]));
    disk.bring(8);
    assert_eq!(two.outcome(&asked), Ok(Value::Done));
    assert_eq!(bytes_at(&there, 0, LEN), vec![5; LEN]);
}

/// MEM-1.12: the node also waits for pages of a destination.
#[test]
fn a_destination_that_has_gone_behind_a_fence_is_waited_for() {
    let mut two = Two::new();
    let (_, registered) = region(&mut two.b, LEN);
    let (into, disk) = Region::staged(LEN).unwrap();
    let slot = two.a.engine.memory().insert_local(into.clone()).unwrap();
    let first = two.a.ask(put(registered.key, 0, vec![1; 100]));
    two.a.tell(Request::Fence { peer: Some(1) });
    let into_it = Segment { region: slot, offset: 0, len: 100 };
    let asked = two.a.ask(Request::Get { from: 1, key: registered.key, offset: 0, into: into_it });
    let now = two.now;
    two.a.turn(now);
    disk.evict(0..1);
    assert_eq!((two.outcome(&first), two.outcome(&asked)), (Ok(Value::Done), Ok(Value::Done)));
    assert_eq!(bytes_at(&into, 0, 100), vec![1; 100]);
}
