//! Random programs without data races in which nodes notify each other, against what a sequential
//! machine would read.

use super::Cluster;
use super::programs::homes;
use super::threads::{Cell, Op, Thread};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Delivery;
use oikaze_protocol::random::Random;
use std::collections::{BTreeMap, VecDeque};

/// Array whose pages are written whole.
const FILLED: u32 = 1;
/// Pages of each array.
const PAGES: u64 = 3;
/// Number of locks, each of which guards a counter.
const LOCKS: usize = 2;

/// Number of operations of each node that happened before a point.
type Past = Vec<u64>;

/// A cell, as a sequential machine has it.
#[derive(Clone)]
struct Memory {
    cell: Cell,
    value: u64,
    written: Past,
    /// Joined pasts of the reads since the last write.
    read: Past,
}

/// Draws race-free programs by running them on a sequential machine that knows what happened
/// before what.
struct Drawing {
    random: Random,
    pasts: Vec<Past>,
    memory: Vec<Memory>,
    /// Counters under locks.
    sums: [u64; LOCKS],
    sent: BTreeMap<(Rank, Rank), VecDeque<Past>>,
    ops: Vec<Vec<Op>>,
    teams: usize,
}

fn covers(past: &Past, other: &Past) -> bool {
    past.iter().zip(other).all(|(mine, theirs)| mine >= theirs)
}

fn merge(past: &mut Past, other: &Past) {
    past.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

/// Returns `true` if all reads by other nodes happened before.
fn covers_reads(past: &Past, read: &Past, node: usize) -> bool {
    (0..).zip(past.iter().zip(read)).all(|(of, (mine, theirs))| of == node || mine >= theirs)
}

fn counter(lock: usize) -> Cell {
    Cell::word(lock, 100)
}

impl Drawing {
    fn new(nodes: u32, seed: u64) -> Drawing {
        let zero: Past = vec![0; nodes as usize];
        let words = (0..7).map(|at| Cell::word(at % PAGES as usize, at));
        let filled = (0..PAGES as usize - 1)
            .map(|page| Cell { array: FILLED, ..Cell::word(page, 7 * page + 3) });
        let memory = |cell| Memory { cell, value: 0, written: zero.clone(), read: zero.clone() };
        Drawing {
            random: Random::new(seed),
            memory: words.chain(filled).map(memory).collect(),
            pasts: vec![zero.clone(); nodes as usize],
            sums: [0; LOCKS],
            sent: BTreeMap::new(),
            ops: vec![Vec::new(); nodes as usize],
            teams: 0,
        }
    }

    fn access(&mut self, node: usize) {
        let (at, writes) = (self.random.below(self.memory.len()), self.random.chance(0.5));
        self.access_cell(node, at, writes);
    }

    /// Reads or writes a cell, if no race follows.
    fn access_cell(&mut self, node: usize, at: usize, writes: bool) {
        let value = self.random.next_u64();
        let past = &mut self.pasts[node];
        past[node] += 1;
        let memory = &mut self.memory[at];
        if !covers(past, &memory.written) {
            return;
        }
        if !writes {
            self.ops[node].push(Op::Expect(memory.cell, memory.value));
            merge(&mut memory.read, past);
        } else if covers_reads(past, &memory.read, node) {
            self.ops[node].push(match memory.cell.array {
                FILLED => Op::Fill(memory.cell, value),
                _ => Op::Store(memory.cell, value),
            });
            memory.value = value;
            (memory.written, memory.read) = (past.clone(), past.clone());
        }
    }

    fn notify(&mut self, from: usize, to: usize) {
        self.ops[from].push(Op::Notify(to as Rank));
        let past = self.pasts[from].clone();
        self.sent.entry((from as Rank, to as Rank)).or_default().push_back(past);
    }

    fn wait(&mut self, from: usize, to: usize) {
        let channel = self.sent.get_mut(&(from as Rank, to as Rank));
        if let Some(past) = channel.and_then(VecDeque::pop_front) {
            self.ops[to].push(Op::WaitNotify(from as Rank));
            merge(&mut self.pasts[to], &past);
        }
    }

    /// Lets two nodes write and notify each other several times, as nodes of a stencil do.
    fn exchange(&mut self, a: usize, b: usize) {
        let cells = [(); 2].map(|()| self.random.below(self.memory.len()));
        for _ in 0..2 + self.random.below(4) {
            for (node, at) in [a, b].into_iter().zip(cells) {
                self.access_cell(node, at, true);
            }
            self.notify(a, b);
            self.notify(b, a);
            self.wait(a, b);
            self.wait(b, a);
            for (node, at) in [b, a].into_iter().zip(cells) {
                self.access_cell(node, at, false);
            }
            if self.random.chance(0.5) {
                // Later operations may write the cells again.
                self.notify(a, b);
                self.notify(b, a);
                self.wait(a, b);
                self.wait(b, a);
            }
        }
    }

    /// Lets one node notify another one several times, before that one waits for some of them.
    fn stream(&mut self, a: usize, b: usize) {
        let count = 2 + self.random.below(3);
        for _ in 0..count {
            self.access(a);
            self.notify(a, b);
        }
        for _ in 0..self.random.below(count + 1) {
            self.wait(a, b);
        }
        self.access(b);
    }

    /// Lets two nodes write one cell, one after the other, and a third one learn of both.
    fn hand_over(&mut self, a: usize, b: usize, c: usize) {
        let at = self.random.below(self.memory.len());
        self.access_cell(a, at, true);
        self.notify(a, b);
        self.notify(a, c);
        self.wait(a, b);
        self.access_cell(b, at, true);
        if self.random.chance(0.7) {
            self.notify(b, c);
        }
        self.wait(a, c);
        self.wait(b, c);
        self.access_cell(c, at, false);
    }

    /// Barrier of these nodes by this operation.
    fn meet(&mut self, members: &[usize], op: &Op) {
        let mut all = vec![0; self.pasts.len()];
        members.iter().for_each(|node| merge(&mut all, &self.pasts[*node]));
        for node in members {
            self.pasts[*node].clone_from(&all);
            self.ops[*node].push(op.clone());
        }
    }

    fn meet_team(&mut self, node: usize, other: usize) {
        let members = [node.min(other), node.max(other)];
        self.teams += 1;
        let ranks = members.iter().map(|node| *node as Rank).collect();
        self.meet(&members, &Op::TeamBarrier(self.teams, ranks));
    }

    /// Adds to a counter under its lock. The order of the nodes does not matter.
    fn add(&mut self, node: usize) {
        let (lock, more) = (self.random.below(LOCKS), self.random.below(5) as u64);
        self.sums[lock] += more;
        let cell = counter(lock);
        self.ops[node].extend([
            Op::Lock(lock as u64),
            Op::Add(cell, more),
            Op::Unlock(lock as u64),
        ]);
    }

    fn subscribe(&mut self, node: usize) {
        let at = self.random.below(self.memory.len());
        let wanted = self.random.chance(0.8);
        self.ops[node].push(Op::Subscribe(self.memory[at].cell, wanted));
    }

    /// Draws operations, and returns the threads.
    fn draw(mut self, count: usize) -> Vec<Thread> {
        let nodes = self.pasts.len();
        let all: Vec<usize> = (0..nodes).collect();
        // Some programs have few barriers, so that much is kept.
        let often = [0.0, 0.002, 0.02][self.random.below(3)];
        let subscribes = [0.0, 0.01, 0.05][self.random.below(3)];
        let adds = [0.0, 0.03][self.random.below(2)];
        let tracks = [0.0, 0.0, 0.002][self.random.below(3)];
        for _ in 0..count {
            let node = self.random.below(nodes);
            let other = (node + 1 + self.random.below(nodes - 1)) % nodes;
            match self.random.below(20) {
                0..9 => self.access(node),
                9..12 => self.notify(node, other),
                12..15 => self.wait(other, node),
                15 if self.random.chance(0.5) => self.exchange(node, other),
                16 if self.random.chance(0.5) => self.stream(node, other),
                17 if nodes > 2 => {
                    let third = all.iter().find(|third| ![node, other].contains(third));
                    self.hand_over(node, other, third.copied().unwrap_or(0));
                }
                18 if self.random.chance(0.3) => self.meet_team(node, other),
                _ => {}
            }
            if self.random.chance(subscribes) {
                self.subscribe(node);
            }
            if self.random.chance(adds) {
                self.add(node);
            }
            if self.random.chance(tracks) {
                let array = self.random.below(2) as u32;
                self.ops[node].push(Op::TrackPages(array));
            }
            if self.random.chance(often) {
                self.meet(&all, &Op::Barrier);
            }
        }
        self.meet(&all, &Op::Barrier);
        for ops in &mut self.ops {
            ops.extend(self.memory.iter().map(|one| Op::Expect(one.cell, one.value)));
            let sums = (0..).zip(self.sums);
            ops.extend(sums.map(|(lock, sum)| Op::Expect(counter(lock), sum)));
        }
        (0..).zip(self.ops).map(|(node, ops)| Thread::new(node, ops)).collect()
    }
}

/// Runs a random program of about `count` operations.
pub fn run(nodes: u32, count: usize, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed ^ 0x1507);
    cluster.takes_guards = random.chance(0.4);
    for name in ["words", "filled"] {
        let placed = homes(&mut random, nodes, PAGES);
        let array = cluster.declare(name, PAGES, placed);
        if random.chance(0.6) {
            cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
        }
        for node in &mut cluster.nodes {
            let delivery = Delivery::ALL[random.below(Delivery::ALL.len())];
            node.coherence.set_delivery(array, random.chance(0.3).then_some(delivery));
        }
    }
    let threads = Drawing::new(nodes, seed).draw(count);
    cluster.run(threads);
    cluster
}
