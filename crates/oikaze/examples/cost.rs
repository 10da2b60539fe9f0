//! Measures what a small message costs on this side of the kernel: two engines, a wire in memory,
//! one thread.
//!
//! `cargo run --release -p oikaze --example cost [CASE [ROUNDS]]` prints nanoseconds and
//! allocations of each case; under `valgrind --tool=callgrind --toggle-collect='cost::rounds*'` a
//! case's instructions are counted, which no other load on the machine changes.

use crossbeam_queue::SegQueue;
use oikaze::{Class, Rank, Region, Rights};
use oikaze_engine::{Completion, Engine, Request, Setup, Submission, tracked};
use oikaze_launch::Secret;
use oikaze_os::counting::Counting;
use oikaze_os::memory::tracking::PageSet;
use oikaze_os::net::{Arrival, Link, LocalAddress, Outgoing, Statistics};
use oikaze_protocol::rma::AtomicOp;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Segment, Settings};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Datagrams under way, and buffers for more.
#[derive(Default)]
struct Way {
    full: VecDeque<Vec<u8>>,
    empty: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
struct Wire {
    to: Arc<Mutex<Way>>,
    from: Arc<Mutex<Way>>,
}

fn open(way: &Mutex<Way>) -> MutexGuard<'_, Way> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address() -> SocketAddr {
    ([127, 0, 0, 1], 1000).into()
}

impl Link for Wire {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut way = open(&self.to);
        for datagram in batch {
            let mut bytes = way.empty.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(datagram.head);
            datagram.payload.append_to(&mut bytes);
            bytes.extend_from_slice(datagram.tag);
            way.full.push_back(bytes);
        }
        Ok(batch.len())
    }
    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let mut way = open(&self.from);
        let count = way.full.len();
        while let Some(bytes) = way.full.pop_front() {
            take(Arrival::new(address(), &bytes));
            way.empty.push(bytes);
        }
        Ok(count)
    }
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        Ok(Vec::new())
    }
    fn datagram_max(&self) -> usize {
        8972
    }
    fn receive_buffer(&self, _: usize) -> usize {
        8 << 20
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

struct Node {
    engine: Engine<Wire, PageSet>,
    flying: VecDeque<Arc<Completion>>,
    /// A key and a slot of a region of its own.
    region: (u64, u32),
    /// Messages read and their bytes, since credit was given back.
    read: (u64, u64),
}

impl Node {
    fn new(me: Rank, wire: Wire) -> Result<Node, Box<dyn std::error::Error>> {
        let setup = Setup {
            me,
            nodes: 2,
            incarnation: 1,
            addresses: vec![vec![address()]; 2],
            datagram_max: Vec::new(),
            connections: (0..2).map(|rank| u64::from(100 + 10 * me + rank)).collect(),
            settings: Settings { datagram_max: 8972, ..Settings::default() },
            secret: Secret::from_bytes([7; 32]),
            local_peers: Vec::new(),
        };
        let mut engine =
            Engine::new(setup, wire, PageSet::new(), Arc::new(SegQueue::new()), Time(0))?;
        engine.connect(Time(0));
        let registered = engine.memory().insert(Region::zeroed(4096)?, Rights::ALL)?;
        Ok(Node {
            engine,
            flying: VecDeque::new(),
            region: (registered.key, registered.slot),
            read: (0, 0),
        })
    }

    fn post(&mut self, request: Request, now: Time) {
        let (submission, completion) = tracked(request, None);
        self.engine.submit(submission, now);
        self.flying.push_back(completion);
    }

    /// Read what has arrived; how many. Credit is given back in large pieces, as a node does.
    fn read(&mut self, now: Time) -> u64 {
        let before = self.read.0;
        while let Some(arrived) = self.engine.take_arrived() {
            self.read.0 += 1;
            self.read.1 += arrived.body.len() as u64;
        }
        let (messages, bytes) = self.read;
        if messages >= 10_000 {
            self.read = (0, 0);
            let request = Request::Consumed { from: 1 - self.engine.rank(), messages, bytes };
            self.engine.submit(Submission { request, completion: None, keep: None }, now);
        }
        messages - before
    }

    fn forget_done(&mut self) {
        while self.flying.front().is_some_and(|first| first.is_done()) {
            self.flying.pop_front();
        }
    }
}

/// Operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A message of 8 bytes and one back; counts as two.
    Messages,
    /// A put of 8 bytes from a region and one back; counts as two.
    Puts,
    /// A fetch-add and its answer.
    Atomics,
    /// 64 messages of 8 bytes, posted together from a region; counts as 64.
    Burst,
    /// A turn in which nothing happens.
    Idle,
}

const BURST: usize = 64;

struct World {
    nodes: [Node; 2],
    now: Time,
}

impl World {
    fn new() -> Result<World, Box<dyn std::error::Error>> {
        let wire = Wire::default();
        let back = Wire { to: Arc::clone(&wire.from), from: Arc::clone(&wire.to) };
        let mut world = World { nodes: [Node::new(0, wire)?, Node::new(1, back)?], now: Time(0) };
        while !(world.nodes[0].engine.is_connected(1) && world.nodes[1].engine.is_connected(0)) {
            world.turn(0);
            world.turn(1);
        }
        Ok(world)
    }

    fn turn(&mut self, node: usize) {
        self.now += Duration::from_micros(3);
        self.nodes[node].engine.turn(self.now);
    }

    fn one_way(&mut self, from: usize, put: bool) {
        let to = 1 - from;
        let there = self.nodes[to].region.0;
        let here = Segment { region: self.nodes[from].region.1, offset: 0, len: 8 };
        let request = if put {
            Request::Put {
                to: to as Rank,
                key: there,
                offset: 64,
                body: Body::Segment(here),
                signal: None,
            }
        } else {
            Request::Send {
                to: to as Rank,
                class: Class::Ordered,
                tag: 1,
                body: Body::copy_of(&[7; 8]),
            }
        };
        self.nodes[from].post(request, self.now);
        self.nodes[from].engine.turn_to_send(self.now);
        self.now += Duration::from_micros(3);
        self.nodes[to].engine.turn_for_news(self.now);
        self.nodes[to].read(self.now);
        self.nodes[to].forget_done();
    }

    /// Node 0 asks, node 1 serves and answers in one turn.
    fn fetch_add(&mut self) {
        let key = self.nodes[1].region.0;
        let op = AtomicOp::add(1_u64);
        self.nodes[0].post(Request::Atomic { at: 1, key, offset: 64, op, fetch: true }, self.now);
        self.nodes[0].engine.turn_to_send(self.now);
        self.now += Duration::from_micros(3);
        self.nodes[1].engine.turn_for_news(self.now);
        self.now += Duration::from_micros(3);
        self.nodes[0].engine.turn_for_news(self.now);
        self.nodes[0].forget_done();
        assert!(self.nodes[0].flying.is_empty(), "answered at once");
    }

    fn burst(&mut self) {
        let here = Segment { region: self.nodes[0].region.1, offset: 0, len: 8 };
        for tag in 0..BURST as u64 {
            self.nodes[0].post(
                Request::Send { to: 1, class: Class::Ordered, tag, body: Body::Segment(here) },
                self.now,
            );
        }
        self.nodes[0].engine.turn_to_send(self.now);
        self.turn(1);
        assert_eq!(self.nodes[1].read(self.now), BURST as u64);
        // Its acknowledgement.
        while self.nodes[0].flying.len() > 4 * BURST {
            self.turn(1);
            self.turn(0);
            self.nodes[0].forget_done();
        }
        self.nodes[0].forget_done();
    }

    /// So many rounds; how many operations they were.
    fn round(&mut self, case: Case) -> usize {
        match case {
            Case::Messages | Case::Puts => {
                self.one_way(0, case == Case::Puts);
                self.one_way(1, case == Case::Puts);
                2
            }
            Case::Atomics => {
                self.fetch_add();
                1
            }
            Case::Burst => {
                self.burst();
                BURST
            }
            Case::Idle => {
                self.now += Duration::from_nanos(300);
                self.nodes[0].engine.turn_for_news(self.now);
                1
            }
        }
    }
}

#[inline(never)]
fn rounds(world: &mut World, case: Case, count: usize) -> usize {
    (0..count).map(|_| world.round(case)).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cases = [
        ("messages", Case::Messages),
        ("puts", Case::Puts),
        ("atomics", Case::Atomics),
        ("burst", Case::Burst),
        ("idle", Case::Idle),
    ];
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next();
    let count = arguments.next().map_or(Ok(200_000), |count| count.parse())?;
    for (name, case) in
        cases.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name))
    {
        let mut world = World::new()?;
        for _ in 0..1000 {
            world.round(case);
        }
        let mut best = f64::MAX;
        let mut calls = 0.0;
        for _ in 0..5 {
            let (begun, before) = (Instant::now(), HEAP.calls());
            let operations = rounds(&mut world, case, count / 5) as f64;
            best = best.min(begun.elapsed().as_nanos() as f64 / operations);
            calls = (HEAP.calls() - before) as f64 / operations;
        }
        println!("{name:9} {best:8.1} ns  {calls:6.2} allocations");
    }
    Ok(())
}
