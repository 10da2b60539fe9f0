//! Counts the cost of an empty barrier of two engines beside two messages: allocations, and
//! instructions.
//!
//! The engines share a wire in memory and run on this thread, so every run does exactly the same.
//! docs/BENCH.md says how to count instructions with this program.

use crossbeam_queue::SegQueue;
use oikaze_engine::{Completion, Engine, KeyOptions, Request, Setup, Submission, tracked};
use oikaze_os::counting::Counting;
use oikaze_os::memory::tracking::PageSet;
use oikaze_os::net::{Arrival, Link, LinkProperties, LocalAddress, Outgoing, Sink, Statistics};
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::DATAGRAM_ETHERNET;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Settings};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Number of measured rounds.
const ROUNDS: u64 = 1000;
/// Maximum number of allocations of one barrier, at both ends together: the completion that a
/// thread waits for, and a part of a block of the queue of requests.
const BARRIER_ALLOCATIONS_MAX: f64 = 2.5;

/// Datagrams of one direction, one behind the other. Nothing is allocated once it has its size.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

struct Wire {
    to: Arc<Mutex<Pipe>>,
    from: Arc<Mutex<Pipe>>,
    peer: SocketAddr,
}

impl Link for Wire {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut pipe = self.to.lock().unwrap();
        for datagram in batch {
            pipe.lens.push(datagram.len());
            pipe.bytes.extend_from_slice(datagram.head);
            datagram.payload.append_to(&mut pipe.bytes);
            pipe.bytes.extend_from_slice(datagram.tag);
        }
        Ok(batch.len())
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let Pipe { bytes, lens } = &mut *self.from.lock().unwrap();
        let mut rest = &bytes[..];
        for len in &*lens {
            let (datagram, later) = rest.split_at(*len);
            sink.take(Arrival::new(self.peer, datagram));
            rest = later;
        }
        let count = lens.len();
        bytes.clear();
        lens.clear();
        Ok(count)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        Ok(Vec::new())
    }

    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties::within_process(usize::from(DATAGRAM_ETHERNET), 1 << 20)
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

struct Node {
    engine: Engine<Wire, PageSet>,
    submissions: Arc<SegQueue<Submission>>,
}

impl Node {
    fn new(me: Rank, to: &Arc<Mutex<Pipe>>, from: &Arc<Mutex<Pipe>>) -> Node {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9000));
        let link = Wire { to: Arc::clone(to), from: Arc::clone(from), peer };
        let submissions = Arc::new(SegQueue::new());
        let setup = Setup {
            me,
            nodes: 2,
            incarnation: 1,
            addresses: vec![vec![peer]; 2],
            datagram_max: Vec::new(),
            connections: (0..2).map(|rank| u64::from(100 + 10 * me + rank)).collect(),
            settings: Settings { datagram_max: DATAGRAM_ETHERNET, ..Settings::default() },
            secret: Secret::from_bytes([7; 32]),
            keys: KeyOptions::default(),
            local_peers: Vec::new(),
        };
        let mut engine =
            Engine::new(setup, link, PageSet::new(), Arc::clone(&submissions), Time(0)).unwrap();
        engine.connect(Time(0));
        Node { engine, submissions }
    }

    fn ask(&self, request: Request) -> Arc<Completion> {
        let (submission, completion) = tracked(request, None);
        self.submissions.push(submission);
        completion
    }

    /// Runs turns as a thread does that has submitted something.
    fn turn(&mut self, now: Time) {
        while self.engine.turn(now).more {}
    }
}

/// Two connected nodes, and the time.
struct Two {
    nodes: [Node; 2],
    now: Time,
}

impl Two {
    fn connected() -> Two {
        let (one, other) = Default::default();
        let mut two =
            Two { nodes: [Node::new(0, &one, &other), Node::new(1, &other, &one)], now: Time(0) };
        let are_connected = |[a, b]: &[Node; 2]| {
            a.engine.peers().is_connected(1) && b.engine.peers().is_connected(0)
        };
        while !are_connected(&two.nodes) {
            two.now += Duration::from_micros(100);
            two.nodes.iter_mut().for_each(|node| node.turn(two.now));
        }
        two
    }

    /// Submits a request of each node, sends, and receives as a thread does that waits.
    fn round(&mut self, request: impl Fn(Rank) -> Request) -> [Arc<Completion>; 2] {
        let completions = [0, 1].map(|me| self.nodes[me].ask(request(me as Rank)));
        for waits in [false, true] {
            self.now += Duration::from_micros(4);
            for node in &mut self.nodes {
                match waits {
                    false => node.turn(self.now),
                    true => drop(node.engine.turn_until_news(self.now, || None)),
                }
            }
        }
        completions
    }

    /// Performs empty barriers. The name is known to docs/BENCH.md.
    #[inline(never)]
    fn barriers(&mut self, count: u64) {
        for _ in 0..count {
            let both = self.round(|_| Request::Barrier);
            assert!(both.iter().all(|one| one.is_done()));
        }
    }

    /// Sends a message of 8 bytes each way. The name is known to docs/BENCH.md.
    #[inline(never)]
    fn exchanges(&mut self, count: u64) {
        for _ in 0..count {
            let body = || Body::copy_of(&[1; 8]);
            self.round(|me| Request::Send {
                to: 1 - me,
                class: Class::Ordered,
                tag: 1,
                body: body(),
            });
            for (node, from) in self.nodes.iter_mut().zip([1, 0]) {
                let arrived = node.engine.inbox().take_arrived().expect("a message");
                let bytes = arrived.body.len() as u64;
                let request = Request::Consumed { from, messages: 1, bytes };
                node.submissions.push(Submission { request, completion: None, keep: None });
            }
        }
    }
}

/// COH-6.11: an empty interval is a short message.
#[test]
fn empty_barrier_of_two_engines_allocates_little() {
    let mut two = Two::connected();
    let mut allocations = |rounds: fn(&mut Two, u64)| {
        rounds(&mut two, ROUNDS);
        let before = HEAP.calls_here();
        rounds(&mut two, ROUNDS);
        (HEAP.calls_here() - before) as f64 / ROUNDS as f64
    };
    let exchange = allocations(Two::exchanges);
    let barrier = allocations(Two::barriers);
    println!("allocations: a barrier {barrier}, an exchange of messages {exchange}");
    assert!(barrier <= BARRIER_ALLOCATIONS_MAX, "{barrier} allocations");
}
