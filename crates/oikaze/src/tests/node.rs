//! A node with one local peer, whose side of the rings the test plays. The helper has ended, so
//! that only the test's calls run turns.

use crate::collective::notify::wait_for_notification;
use crate::completion::operation::Operation;
use crate::completion::{CompletionQueue, Counter};
use crate::memory::region::LocalRegion;
use crossbeam_queue::SegQueue;
use oikaze_engine::{Completion, Engine, KeyOptions, Request, Setup, Submission, Value};
use oikaze_launch::{Secret, Settings, SingleNode};
use oikaze_os::memory::Region;
use oikaze_os::memory::tracking::{FaultAt, PageSet, SharedError, Tracker, TrackerKind, View};
use oikaze_os::net::{Bind, Link};
use oikaze_os::shm::{Pair, Part};
use oikaze_protocol::coherence::{Access, KIND, Pages};
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::rma::{Operation as Asked, Published, Rights};
use oikaze_protocol::shm::{Heading, RecordKind};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class};
use oikaze_runtime::node::{
    EngineMode, Faults, Helper, LEFT_MAX, Node, RealEngine, WaitMode, WaitPolicy, Waits, lock,
};
use oikaze_runtime::observe::Publisher;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WAIT_POLICY: WaitPolicy = WaitPolicy {
    wait: WaitMode::Block,
    has_room: false,
    mode: EngineMode::inline(),
    priority: None,
};

pub(crate) fn node_and_local_peer() -> (Arc<Node>, Pair) {
    node_with(None)
}

fn node_with(tracker: Option<Arc<dyn Tracker>>) -> (Arc<Node>, Pair) {
    let (node, theirs) = node_with_helper(WAIT_POLICY, tracker);
    end_helper(&node);
    node.closing.store(false, Ordering::SeqCst);
    (node, theirs)
}

fn end_helper(node: &Node) {
    node.closing.store(true, Ordering::SeqCst);
    node.threads.driver.helper.event.signal();
    lock(&node.threads.helper).take().unwrap().join().unwrap();
}

fn node_with_helper(
    wait_policy: WaitPolicy,
    tracker: Option<Arc<dyn Tracker>>,
) -> (Arc<Node>, Pair) {
    let (mine, theirs) = Pair::both().unwrap();
    let setup = Setup {
        me: 0,
        nodes: 2,
        incarnation: 1,
        addresses: vec![Vec::new(); 2],
        datagram_max: Vec::new(),
        connections: vec![1, 2],
        settings: oikaze_protocol::wind::Settings::default(),
        secret: Secret::from_bytes([7; 32]),
        keys: KeyOptions::default(),
        local_peers: vec![(1, mine)],
    };
    let submissions = Arc::new(SegQueue::new());
    let link: Box<dyn Link> = Box::new(oikaze_os::net::open(&Bind::default()).unwrap());
    let engine: RealEngine =
        Engine::new(setup, link, PageSet::new(), Arc::clone(&submissions), Time(0)).unwrap();
    let job = Arc::new(SingleNode::new(Settings::default()).unwrap());
    let node = Node::start(
        engine,
        submissions,
        tracker,
        (wait_policy, Waits::new(job.clone())),
        job,
        Publisher::nothing(),
        None,
    )
    .unwrap();
    (node, theirs)
}

pub(crate) fn put_message(local_peer: &mut Pair, tag: u64) {
    put_record(local_peer, &Asked::User { tag }.encode(), &[]);
}

/// Puts what a node says that has begun to leave, and has sent all its messages (END-1.2).
pub(crate) fn put_leaving(local_peer: &mut Pair) {
    let silent = [0_u64, 1, 0].map(u64::to_le_bytes).concat();
    put_record(local_peer, &[[KIND, 10].as_slice(), &silent].concat(), &[]);
}

/// Takes all records for the local peer. Returns the heads of the parcels among them.
pub(crate) fn take_parcels(local_peer: &mut Pair) -> Vec<ParcelHead> {
    let mut parcels = Vec::new();
    while let Some(heading) = local_peer.inward.peek().unwrap() {
        let mut head = vec![0; heading.head];
        local_peer.inward.read(0, &mut head);
        if let Some(Asked::Parcel(head)) = Asked::decode(&head) {
            parcels.push(head);
        }
        let end = local_peer.inward.pass(heading);
        local_peer.inward.settle(end);
    }
    parcels
}

fn put_record(local_peer: &mut Pair, head: &[u8], body: &[u8]) {
    let heading = Heading {
        kind: RecordKind::Whole,
        class: Class::Ordered,
        head: head.len(),
        len: body.len(),
        flag: false,
    };
    local_peer.outward.put(heading, &[Part::Bytes(head), Part::Bytes(body)]).unwrap();
}

/// A driver that polls hears its peers by the fast paths, although the helper sleeps on the link
/// and may not get a core for long. A leaving driver gives the link back.
#[test]
fn driver_that_polls_takes_the_link_from_the_helper() {
    let spins = WaitPolicy { wait: WaitMode::Spin, has_room: true, ..WAIT_POLICY };
    let (node, _local_peer) = node_with_helper(spins, None);
    let is_watched = || node.threads.driver.helper_claim.is_held();
    let wait_for_watch = || {
        let begun = Instant::now();
        while !is_watched() {
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody watches the link");
            std::thread::yield_now();
        }
    };
    wait_for_watch();
    let mut polls = 0;
    let taken = node.wait(None, || {
        polls += 1;
        (!is_watched() || polls > 1000).then(|| !is_watched())
    });
    assert_eq!(taken, Some(true));
    wait_for_watch();
    end_helper(&node);
}

/// COH-8.7: a driver in a signal handler that waits for a page runs no turns. The helper takes what
/// arrives, page or not.
#[test]
fn node_whose_driver_stands_still_hears_its_local_peer() {
    let (node, mut local_peer) = node_with_helper(WAIT_POLICY, None);
    let driving = node.threads.driver.try_drive(node.now()).unwrap();
    for tag in 0..4 {
        put_message(&mut local_peer, tag);
        let begun = Instant::now();
        let arrived = loop {
            match node.mail.take(&node, None) {
                None if begun.elapsed() < Duration::from_secs(30) => std::thread::yield_now(),
                arrived => break arrived,
            }
        };
        assert_eq!(arrived.expect("it arrives although nobody drives").tag, tag);
    }
    driving.leave(node.now());
    end_helper(&node);
}

/// MEM-16.5: the local peer sleeps, too, and the node that is about to sleep runs no whole turn
/// before it does.
#[test]
fn a_local_peer_that_sleeps_is_told_of_credit_that_comes_back_before_a_sleep() {
    let (node, mut local_peer) = node_and_local_peer();
    put_message(&mut local_peer, 1);
    while node.mail.mailbox.len() == 0 {
        node.try_turn(node.now()).unwrap();
    }
    assert_eq!(node.mail.take(&node, None).unwrap().tag, 1);
    let before = local_peer.outward.returned();
    local_peer.inward.fall_asleep();
    assert!(local_peer.line.hear().unwrap().is_none());
    assert_eq!(node.next_timeout(), Some(Time(0)), "it looks once more before it sleeps");
    assert!(local_peer.line.hear().unwrap().is_some());
    assert!(local_peer.outward.returned() > before);
}

/// MEM-7.1: an end that came before a listener was attached is reported at once, also to a thread
/// that sleeps on the descriptor.
#[test]
fn who_is_told_late_of_an_end_is_told_at_once() {
    let (node, mut local_peer) = node_and_local_peer();
    let queue = CompletionQueue::new(&node, None);
    let counter = Counter::new(&node, None);
    let _descriptor = node.tasks.watch_loop.descriptor(&node);
    let news = node.tasks.watch_loop.news();
    assert!(news.clear(), "a loop looks once at first");
    // An operation of the engine.
    let completion = Completion::new();
    completion.settle(Ok(Value::Done));
    node.note(Request::Tell { completion: Arc::clone(&completion), sink: counter.sink() });
    assert!(counter.counts().ended() == 1 && news.clear());
    // A message that went by the fast path, and was taken.
    let route = node.shm_route_to(1, None).unwrap();
    let position = node.fast.send_fast(&node, &route, Class::Ordered, 7, b"fast").unwrap();
    let sent = Operation::<()>::in_ring(&route, position, 8);
    let heading = local_peer.inward.peek().unwrap().unwrap();
    let end = local_peer.inward.pass(heading);
    local_peer.inward.settle(end);
    assert!(sent.is_done());
    sent.report_to(&queue, 3).unwrap();
    assert!(queue.len() == 1 && news.clear());
    // A message that was not taken. No thread is woken before it is.
    let position = node.fast.send_fast(&node, &route, Class::Ordered, 8, b"fast").unwrap();
    Operation::<()>::in_ring(&route, position, 8).report_to(&queue, 4).unwrap();
    let pending = Completion::new();
    node.note(Request::Tell { completion: pending, sink: counter.sink() });
    assert!(queue.len() == 1 && !news.clear());
}

/// A batch's held posts leave when its thread waits, also if another thread drives, because the
/// driver may sleep.
#[test]
fn who_waits_in_a_batch_lets_go_what_it_has_posted() {
    let (node, local_peer) = node_and_local_peer();
    let another = node.threads.driver.try_drive(Time(0)).unwrap();
    local_peer.inward.fall_asleep();
    node.batch(|| {
        let sent = node.submit(
            Request::Send { to: 1, class: Class::Ordered, tag: 1, body: Body::Empty },
            None,
        );
        assert!(local_peer.line.hear().unwrap().is_none(), "it waits for more");
        assert!(node.wait(Some(Instant::now()), || sent.outcome()).is_none());
        assert!(local_peer.line.hear().unwrap().is_some());
    });
    another.leave(node.now());
}

/// COH-15.4: a wait that runs into its limit may have ended just now, because the notifier cannot
/// release.
#[test]
fn wait_that_times_out_tells_what_it_was_told() {
    let (node, mut local_peer) = node_and_local_peer();
    let notify = [[KIND, 18].as_slice(), &[0; 24]].concat();
    put_record(&mut local_peer, &notify, &[0]);
    node.try_turn(node.now()).unwrap();
    let held = node.engine.enter();
    let waited = std::thread::scope(|threads| {
        let wait = || wait_for_notification(&node, (1, true), Some(Duration::ZERO), "wait");
        let waiting = threads.spawn(wait);
        // The request, and then its end.
        while node.requests.submissions.len() < 2 {
            std::thread::yield_now();
        }
        drop(held);
        waiting.join().unwrap()
    });
    let text = waited.unwrap_err().to_string();
    assert!(text.contains("could not bring its writes"), "{text}");
}

/// MEM-6.3: a withdrawn name is free, even if the thread in the engine has not handled the
/// withdrawal yet.
#[test]
fn a_name_that_was_given_up_is_free_at_once() {
    let (node, _local_peer) = node_and_local_peer();
    let named = || {
        let name = Some("name".to_owned());
        LocalRegion::new(&node, Region::zeroed(64).unwrap(), Rights::READ, name, None).unwrap()
    };
    let (first, second) = (named(), named());
    let published =
        |region: &LocalRegion| Published { key: region.key(), len: 64, rights: Rights::READ };
    node.publish("name", published(&first)).unwrap();
    let held = node.engine.enter();
    drop(first);
    drop(held);
    node.publish("name", published(&second)).unwrap();
}

/// Reads one fault, then fails.
#[derive(Debug)]
struct Half(std::fs::File);

impl Tracker for Half {
    fn kind(&self) -> TrackerKind {
        TrackerKind::Mprotect
    }
    fn attach(&self, _: &View) -> Result<(), SharedError> {
        Ok(())
    }
    fn detach(&self, _: &View) {}
    fn install(&self, _: &View, _: Range<u64>, _: Access) -> Result<(), SharedError> {
        Ok(())
    }
    fn set_access(&self, _: &View, _: Range<u64>, _: Access) -> Result<(), SharedError> {
        Ok(())
    }
    fn invalidate(&self, _: &View, _: Range<u64>) -> Result<(), SharedError> {
        Ok(())
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
    fn faults(&self, into: &mut Vec<FaultAt>) -> std::io::Result<usize> {
        into.push(FaultAt { array: 0, page: 3, access: None });
        Err(std::io::Error::from_raw_os_error(5))
    }
}

/// COH-8.5: the threads of these faults sleep, and the faults would not be read again.
#[test]
fn faults_that_were_read_before_one_could_not_be_are_served() {
    let (node, _local_peer) =
        node_with(Some(Arc::new(Half(std::fs::File::open("/dev/zero").unwrap()))));
    // While another thread is in the engine, submissions stay visible.
    let held = node.engine.enter();
    std::thread::scope(|threads| {
        threads.spawn(|| Helper(&node).take_faults(&mut Faults::default()));
        while node.requests.submissions.is_empty() {
            std::thread::yield_now();
        }
        drop(held);
    });
    assert!(node.with_engine(|engine| {
        engine.pages().failure().is_some_and(|why| why.contains("page faults"))
    }));
}

/// MEM-15.4: the submissions that wait for the thread in the engine are bounded as well.
#[test]
fn who_asks_faster_than_the_one_in_the_engine_begins_waits_for_it() {
    const ASKED: usize = 10_000;
    let (node, _local_peer) = node_and_local_peer();
    let held = node.engine.enter();
    let asked = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..ASKED {
                asked.fetch_add(1, Ordering::SeqCst);
                node.push(Submission {
                    request: Request::Withdraw { name: String::new() },
                    completion: None,
                    keep: None,
                });
            }
        });
        // The submissions stay within the bound, however long this takes.
        while node.requests.submissions.len() <= LEFT_MAX {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| std::thread::yield_now());
        assert_eq!(asked.load(Ordering::SeqCst), LEFT_MAX + 1);
        assert_eq!(node.requests.submissions.len(), LEFT_MAX + 1);
        drop(held);
    });
    assert_eq!(asked.into_inner(), ASKED);
    node.try_turn(node.now()).unwrap();
    assert!(node.requests.submissions.is_empty());
}

/// END-3.1: a thread aborts the job while another thread handles the news of an abort. It returns
/// when requests fail.
#[test]
fn abort_known_to_two_threads_returns_when_later_requests_fail() {
    let (node, _local_peer) = node_and_local_peer();
    let node = &node;
    std::thread::scope(|scope| {
        let (done, returned) = std::sync::mpsc::channel();
        node.with_engine(|_| {
            scope.spawn(|| node.departures.end_aborted(node, "the first reason"));
            while !node.departures.is_aborted() {
                std::thread::yield_now();
            }
            scope.spawn(move || {
                node.departures.end_aborted(node, "another reason");
                done.send(()).unwrap();
            });
            // Neither thread has ended the engine, which this thread holds.
            assert!(returned.recv_timeout(Duration::from_millis(100)).is_err());
        });
        returned.recv().unwrap();
    });
    let error = node
        .coherence
        .collective(node, &"barrier", Request::Barrier, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("the first reason"), "{error}");
}
