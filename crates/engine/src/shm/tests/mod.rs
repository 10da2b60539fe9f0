//! Two engines whose messages go through rings, turn by turn. The connection beside them is a wire
//! in memory.

mod absent;
mod damaged;
mod fast_path;
mod handed;
mod hostile;
mod refused;
mod streamed;

use crate::tests::{Node, Queue, Wire, step};
use crate::{Completion, Failure, Request, Value};
use oikaze_os::memory::{Region, Registered};
use oikaze_os::shm::{Pair, PairRole, Part, shared_memory};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::{
    CREDIT, CREDIT_OVERHEAD, FAST_BATCH_MAX, FAST_PER_TURN_MAX, MESSAGES_OF_PROGRAM_MAX,
    RECORD_BODY, RECORD_STEP, RECORDS_PER_FAST_POLL, RING_BYTES,
};
use oikaze_protocol::rma::{AtomicOp, Operation, Rights, RmaError, Signal};
use oikaze_protocol::shm::{Heading, RecordKind};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Death, Refusal, Segment};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Two {
    pub a: Node,
    pub b: Node,
    pub now: Time,
}

impl Two {
    /// Makes two connected nodes with rings.
    pub fn new() -> Two {
        let (one, other) = Pair::both().unwrap();
        Two::with(one, other)
    }

    fn with(one: Pair, other: Pair) -> Two {
        let (to, from) = (Queue::default(), Queue::default());
        let wire = |to: &Queue, from: &Queue| Wire {
            to: Arc::clone(to),
            from: Arc::clone(from),
            ..Wire::default()
        };
        let a = Node::with_local_peers(0, 2, wire(&to, &from), vec![(1, one)]);
        let b = Node::with_local_peers(1, 2, wire(&from, &to), vec![(0, other)]);
        let mut two = Two { a, b, now: Time(1) };
        two.turn_until(|two| {
            two.a.engine.peers().is_connected(1) && two.b.engine.peers().is_connected(0)
        });
        two
    }

    fn turn(&mut self) {
        self.now = step(self.now);
        self.a.turn(self.now);
        self.b.turn(self.now);
    }

    pub fn turn_until(&mut self, done: impl Fn(&mut Two) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("it never happens");
    }

    pub fn outcome(&mut self, asked: &Completion) -> Result<Value, Failure> {
        self.turn_until(|_| asked.is_done());
        asked.outcome().unwrap()
    }
}

fn region(node: &mut Node, len: usize) -> (Region, Registered) {
    let region = Region::zeroed(len).unwrap();
    let registered = node.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    (region, registered)
}

fn send(class: Class, tag: u64, body: Body) -> Request {
    Request::Send { to: 1, class, tag, body }
}

/// Makes a node with one local peer, whose side of the rings the test writes. The test has the
/// peer's memory, but another line.
pub(crate) fn facing_a_hostile_one() -> (Node, Pair) {
    let (node, hostile, _) = facing_a_hostile_one_and_its_memory();
    (node, hostile)
}

pub(crate) fn facing_a_hostile_one_and_its_memory() -> (Node, Pair, File) {
    let memory = shared_memory().unwrap();
    let (one, other) = Pair::both().unwrap();
    let (line, kept) = (Arc::into_inner(other.line).unwrap(), Arc::into_inner(one.line).unwrap());
    let hostile = Pair::new(&memory, PairRole::Called, line).unwrap();
    let mine = Pair::new(&memory, PairRole::Caller, kept).unwrap();
    (Node::with_local_peers(0, 2, Wire::default(), vec![(1, mine)]), hostile, memory.into())
}

fn put(pair: &mut Pair, heading: Heading, parts: &[Part<'_>]) {
    assert!(pair.outward.put(heading, parts).is_ok());
}

/// Returns heading and head of a user's message in one record.
fn whole() -> (Heading, Vec<u8>) {
    let head = Operation::User { tag: 1 }.encode();
    (
        Heading {
            kind: RecordKind::Whole,
            class: Class::Ordered,
            head: head.len(),
            len: 0,
            flag: false,
        },
        head.to_vec(),
    )
}

/// Writes the beginning of a user's message of `len` bytes.
fn begin(pair: &mut Pair, len: u64) {
    let (heading, head) = whole();
    put(
        pair,
        Heading { kind: RecordKind::Begin, ..heading },
        &[Part::Bytes(&len.to_le_bytes()), Part::Bytes(&head)],
    );
}

/// MEM-16.7: a peer that ends while the two nodes still connect over the network is lost as soon as
/// its last datagrams have had time to arrive. Operations that begin after its end wait no longer
/// than that.
#[test]
fn who_ends_before_the_network_knows_it_is_lost_all_the_same() {
    let (mut node, other) = facing_a_hostile_one();
    drop(other);
    let (begun, mut now) = (Time(1), Time(1));
    let mut turn = |node: &mut Node| {
        now = step(now);
        node.turn(now);
        now
    };
    while node.engine.shm().contains(1) {
        turn(&mut node);
    }
    let asked = node.ask(send(Class::Ordered, 1, Body::copy_of(b"late")));
    let ended = loop {
        let now = turn(&mut node);
        if asked.is_done() {
            break now;
        }
    };
    assert_eq!(asked.outcome(), Some(Err(Failure::PeerLost { peer: 1, death: Death::Ended })));
    assert!(ended - begun < Duration::from_secs(1), "{:?}", ended - begun);
}

/// MEM-16.3: rings carry all that Wind carries, in every length, from inline bodies and from
/// regions. Nothing goes over the network.
#[test]
fn all_operations_go_through_the_rings() {
    let mut two = Two::new();
    let wire = two.a.engine.peer_statistics(1).unwrap().datagrams_sent;
    let most = 3 * RING_BYTES;
    let (there, key) = region(&mut two.b, most + 64);
    let (here, own) = region(&mut two.a, most + 64);
    for (round, len) in
        [0, 1, 8, 300, 4096, RECORD_BODY, RECORD_BODY + 1, 100_000, most].into_iter().enumerate()
    {
        here.fill(0, len as u64, round as u8 + 1).unwrap();
        let body = Body::Segment(Segment { region: own.slot, offset: 0, len: len as u64 });
        let signal = Some(Signal { key: key.key, offset: most as u64 + 32, add: 1 });
        let put = two.a.ask(Request::Put { to: 1, key: key.key, offset: 16, body, signal });
        assert_eq!(two.outcome(&put), Ok(Value::Done));
        let mut seen = vec![0; len];
        there.read(16, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == round as u8 + 1), "{len} bytes");
        assert_eq!(there.load_u64(most as u64 + 32).unwrap(), round as u64 + 1);

        here.fill(0, len as u64, 0).unwrap();
        let into = Segment { region: own.slot, offset: 0, len: len as u64 };
        let get = two.a.ask(Request::Get { from: 1, key: key.key, offset: 16, into });
        assert_eq!(two.outcome(&get), Ok(Value::Done));
        here.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == round as u8 + 1), "{len} bytes back");

        for class in [Class::Ordered, Class::Unordered, Class::Sync] {
            let sent = two.a.ask(send(class, round as u64, Body::copy_of(&seen)));
            assert_eq!(two.outcome(&sent), Ok(Value::Done));
            let arrived = two.b.engine.inbox().take_arrived().unwrap();
            assert_eq!((arrived.from, arrived.class, arrived.tag), (0, class, round as u64));
            assert!(arrived.body == seen);
        }
    }
    let word = two.a.ask(Request::Atomic {
        at: 1,
        key: key.key,
        offset: most as u64 + 32,
        op: AtomicOp::add(5u64),
        fetch: true,
    });
    assert_eq!(two.outcome(&word), Ok(Value::Word(9)));
    let barriers = [two.a.ask(Request::Barrier), two.b.ask(Request::Barrier)];
    barriers.iter().for_each(|barrier| assert_eq!(two.outcome(barrier), Ok(Value::Done)));
    two.turn_until(|two| two.a.engine.is_settled() && two.b.engine.is_settled());
    let statistics = two.a.engine.peer_statistics(1).unwrap();
    assert!(statistics.messages_posted > 40 && statistics.bytes_sent > most as u64);
    assert!(statistics.datagrams_sent - wire < 10, "signs of life only");
}

/// MEM-16.6: a user that does not read holds up messages, and nothing else.
#[test]
fn credit_holds_up_messages_but_not_puts() {
    let mut two = Two::new();
    let (there, key) = region(&mut two.b, 64);
    let each = 1 << 20;
    let fit = CREDIT as usize / each - 1;
    let sent: Vec<_> = (0..fit + 3)
        .map(|n| two.a.ask(send(Class::Ordered, n as u64, Body::Inline(vec![n as u8; each]))))
        .collect();
    let put = |body: &[u8]| Request::Put {
        to: 1,
        key: key.key,
        offset: 0,
        body: Body::copy_of(body),
        signal: None,
    };
    let passing = two.a.ask(put(&[9; 8]));
    assert_eq!(two.outcome(&passing), Ok(Value::Done));
    assert_eq!(there.load_u64(0).unwrap(), 0x0909_0909_0909_0909);
    (0..100).for_each(|_| two.turn());
    assert_eq!(sent.iter().filter(|sent| sent.is_done()).count(), fit);
    assert!(!two.a.engine.is_settled());
    for n in 0..fit + 3 {
        two.turn_until(|two| two.b.engine.inbox.arrived.front().is_some());
        let arrived = two.b.engine.inbox().take_arrived().unwrap();
        assert_eq!((arrived.tag, arrived.body.len()), (n as u64, each), "in their order");
        let _ = two.b.ask(Request::Consumed { from: 0, messages: 1, bytes: each as u64 });
    }
    sent.iter().for_each(|sent| assert_eq!(two.outcome(sent), Ok(Value::Done)));
}

#[test]
fn a_message_that_is_taken_back_is_never_read_again_and_what_follows_arrives() {
    let mut two = Two::new();
    let (source, own) = region(&mut two.a, 4 * RING_BYTES);
    let body = Body::Segment(Segment { region: own.slot, offset: 0, len: source.len() as u64 });
    let long = two.a.ask(send(Class::Ordered, 1, body.clone()));
    let queued = two.a.ask(send(Class::Ordered, 2, body));
    two.now = step(two.now);
    two.a.turn(two.now);
    for cancelled in [&long, &queued] {
        let _ = two.a.ask(Request::Cancel { completion: Arc::clone(cancelled) });
    }
    let last = two.a.ask(send(Class::Sync, 3, Body::copy_of(b"after them")));
    assert_eq!(two.outcome(&last), Ok(Value::Done));
    assert_eq!(
        [&long, &queued].map(|cancelled| cancelled.outcome()),
        [(); 2].map(|()| Some(Err(Failure::Cancelled)))
    );
    assert_eq!(two.b.engine.inbox().take_arrived().unwrap().tag, 3);
    assert!(two.b.engine.inbox().take_arrived().is_none() && two.a.engine.is_settled());
}

#[test]
fn a_full_ring_takes_no_more_than_a_connection() {
    let mut two = Two::new();
    let (_, key) = region(&mut two.b, 64);
    let put = || Request::Put {
        to: 1,
        key: key.key,
        offset: 0,
        body: Body::copy_of(&[1; 8]),
        signal: None,
    };
    let puts: Vec<_> = (0..=MESSAGES_OF_PROGRAM_MAX).map(|_| two.a.ask(put())).collect();
    two.a.turn(two.now);
    assert_eq!(puts.last().unwrap().outcome(), Some(Err(Failure::TooMany { peer: 1 })));
    puts[..MESSAGES_OF_PROGRAM_MAX]
        .iter()
        .for_each(|put| assert_eq!(two.outcome(put), Ok(Value::Done)));
}

/// MEM-16.7: records that the peer left behind are read, and waits for it end.
#[test]
fn a_local_peer_that_ends_is_lost_at_once() {
    let Two { mut a, mut b, now } = Two::new();
    let (_, key) = region(&mut a, 64);
    let told = b.ask(Request::Send {
        to: 0,
        class: Class::Ordered,
        tag: 7,
        body: Body::copy_of(b"last words"),
    });
    b.turn(now);
    let waiting = a.ask(send(Class::Ordered, 1, Body::copy_of(b"unheard")));
    // A turn with new submissions polls only if the latest poll is not recent.
    let now = step(now);
    a.turn(now);
    assert_eq!(a.engine.inbox().take_arrived().unwrap().tag, 7);
    assert!(!told.is_done() && key.key != 0);
    drop(b);
    let now = now + std::time::Duration::from_millis(2);
    a.turn(now);
    a.turn(now);
    assert_eq!(a.engine.inbox().take_death(), Some((1, Death::Ended)));
    assert_eq!(waiting.outcome(), Some(Err(Failure::PeerLost { peer: 1, death: Death::Ended })));
    let late = a.ask(send(Class::Ordered, 1, Body::Empty));
    a.turn(now);
    assert_eq!(late.outcome(), Some(Err(Failure::PeerLost { peer: 1, death: Death::Ended })));
    assert!(!a.engine.shm().contains(1));
}

#[test]
fn a_goodbye_is_no_loss() {
    let Two { mut a, mut b, now } = Two::new();
    let _ = b.ask(Request::Close);
    b.engine.link_mut().full = true;
    b.turn(now);
    drop(b);
    let now = now + std::time::Duration::from_millis(2);
    a.turn(now);
    a.turn(now);
    assert_eq!(a.engine.inbox().take_death(), Some((1, Death::Closed)));
}

/// MEM-18.1: questions that arrive while the ring has no room for answers are answered when there
/// is room.
#[test]
fn questions_are_answered_when_there_is_room() {
    let (mut a, mut hostile) = facing_a_hostile_one();
    let long = a.ask(send(Class::Ordered, 1, Body::Inline(vec![1; 2 * RING_BYTES])));
    a.turn(Time(1));
    const ASKED: u64 = 1000;
    for key in 0..ASKED {
        put(&mut hostile, Heading::plain(RecordKind::Ask, 0), &[Part::Bytes(&key.to_le_bytes())]);
    }
    let (mut now, mut answered) = (Time(1), Vec::new());
    while answered.len() < ASKED as usize {
        now = step(now);
        a.turn(now);
        while let Some(heading) = hostile.inward.peek().unwrap() {
            if heading.kind == RecordKind::Given {
                let mut key = [0; 8];
                hostile.inward.read(0, &mut key);
                answered.push(u64::from_le_bytes(key));
            }
            let end = hostile.inward.pass(heading);
            hostile.inward.settle(end);
        }
        assert!(now < Time(1_000_000_000), "{} of {ASKED} are answered", answered.len());
    }
    assert_eq!(answered, (0..ASKED).collect::<Vec<_>>());
    a.turn(step(now));
    assert!(long.is_done());
}

/// MEM-16.6: cancelled and read messages have returned their credit, to the byte.
#[test]
fn all_credit_may_be_used_again_and_again() {
    let (mut a, mut hostile) = facing_a_hostile_one();
    for round in 0..3 {
        begin(&mut hostile, CREDIT - CREDIT_OVERHEAD);
        put(&mut hostile, Heading::plain(RecordKind::Withdrawn, 0), &[]);
        let (heading, head) = whole();
        put(&mut hostile, heading, &[Part::Bytes(&head), Part::Bytes(&[1; 100])]);
        a.turn(Time(10 * round + 1));
        assert_eq!(a.engine.inbox().take_arrived().unwrap().body.len(), 100);
        let _ = a.ask(Request::Consumed { from: 1, messages: 1, bytes: 100 });
        a.turn(Time(10 * round + 2));
        assert_eq!(a.engine.inbox().take_death(), None, "{round}");
    }
}

/// MEM-16.6, WIND-6.7: the large message goes when all messages before it are read, and the message
/// after it goes when the large one is read.
#[test]
fn message_larger_than_all_credit_goes_alone() {
    let mut two = Two::new();
    let lens = [1, (CREDIT - CREDIT_OVERHEAD) as usize + 1, 2 * CREDIT as usize, 2];
    let sent: Vec<_> = lens
        .iter()
        .map(|len| two.a.ask(send(Class::Ordered, *len as u64, Body::Inline(vec![1; *len]))))
        .collect();
    for (at, len) in lens.into_iter().enumerate() {
        assert_eq!(two.outcome(&sent[at]), Ok(Value::Done));
        assert!(sent[at + 1..].iter().all(|later| !later.is_done()), "{at} is not read");
        assert_eq!(two.b.engine.inbox().take_arrived().unwrap().body.len(), len);
        let _ = two.b.ask(Request::Consumed { from: 0, messages: 1, bytes: len as u64 });
    }
}

/// MEM-16.7: a ring is full of the smallest records, with the goodbye behind them.
#[test]
fn all_that_a_local_peer_left_in_its_ring_is_read() {
    let Two { mut a, mut b, mut now } = Two::new();
    let count = (RING_BYTES / RECORD_STEP - 2) as u64;
    for tag in 0..count {
        let _ = b.ask(Request::Send { to: 0, class: Class::Ordered, tag, body: Body::Empty });
    }
    let _ = b.ask(Request::Close);
    b.engine.link_mut().full = true;
    for _ in 0..100 {
        now = step(now);
        b.turn(now);
    }
    assert!(!b.engine.shm().contains(0), "all is posted, and it has left");
    drop(b);
    assert_eq!(read_to_the_end(&mut a, now, |_| ()), (count, (1, Death::Closed)));
}

/// Reads the messages, tagged from 0 on, of a peer that has ended. Calls `before_turn` before each
/// turn. Returns the number of messages and the deaths.
fn read_to_the_end(
    node: &mut Node,
    mut now: Time,
    mut before_turn: impl FnMut(&mut Node),
) -> (u64, (Rank, Death)) {
    let mut read = 0;
    loop {
        now += Duration::from_millis(2);
        before_turn(node);
        node.turn(now);
        while let Some(arrived) = node.engine.inbox().take_arrived() {
            assert_eq!(arrived.tag, read);
            read += 1;
        }
        if let Some(death) = node.engine.inbox().take_death() {
            return (read, death);
        }
    }
}

/// Returns `true` if a local peer has woken the node.
fn rung(node: &Node) -> bool {
    let fd = node.engine.shm().descriptor().unwrap();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Default::default())) == Ok(1)
}

/// MEM-16.5: a sleeping node is woken by messages and by settlements.
#[test]
fn sleepers_are_woken_for_messages_and_for_settlements() {
    let mut two = Two::new();
    (0..10).for_each(|_| two.turn());
    assert!(!two.a.engine.shm_mut().arm_wakeups() && !two.b.engine.shm_mut().arm_wakeups());
    assert!(!rung(&two.a) && !rung(&two.b));
    let sent = two.a.ask(send(Class::Ordered, 1, Body::Empty));
    two.now = step(two.now);
    two.a.turn(two.now);
    assert!(rung(&two.b), "a message");
    two.b.turn(two.now);
    assert!(!rung(&two.b) && rung(&two.a), "it is settled");
    assert!(two.a.engine.shm_mut().arm_wakeups(), "there is something to be seen");
    two.a.turn(two.now);
    assert!(sent.is_done());

    (0..10).for_each(|_| two.turn());
    assert!(!two.a.engine.shm_mut().arm_wakeups());
    let now = two.now;
    let _ = two.a.ask(send(Class::Ordered, 2, Body::Empty));
    two.a.turn(now);
    assert!(!two.a.engine.shm_mut().arm_wakeups() && !rung(&two.a));
    let read = two.b.engine.turn_until_news(now, || None);
    assert!(read.received > 0 && rung(&two.a), "it is settled, and no whole turn follows");
    two.a.turn(now);
    assert!(!two.a.engine.shm_mut().arm_wakeups() && !rung(&two.a));
    let request = Request::Consumed { from: 0, messages: 1, bytes: 0 };
    two.b.engine.submit(crate::Submission { request, completion: None, keep: None }, now);
    two.b.engine.shm_mut().wake_peers_that_need_it();
    assert!(rung(&two.a), "it has its credit back");
}
