//! Notifications (COH-15.4, 15.5), in any order of messages.

use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Channel, Cluster, programs, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::random::Random;
use std::collections::{BTreeMap, VecDeque};

/// Number of operations of each node that happened before a point.
type Past = Vec<u64>;

/// A cell, as a sequential machine has it.
#[derive(Clone, Default)]
struct Memory {
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
    memory: Vec<(Cell, Memory)>,
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

impl Drawing {
    fn new(nodes: u32, seed: u64) -> Drawing {
        let zero: Past = vec![0; nodes as usize];
        let cell = |at: usize| Cell::word(at % 3, at);
        let memory = Memory { value: 0, written: zero.clone(), read: zero.clone() };
        Drawing {
            random: Random::new(seed),
            pasts: vec![zero; nodes as usize],
            memory: (0..7).map(|at| (cell(at), memory.clone())).collect(),
            sent: BTreeMap::new(),
            ops: vec![Vec::new(); nodes as usize],
            teams: 0,
        }
    }

    fn access(&mut self, node: usize) {
        let at = self.random.below(self.memory.len());
        let writes = self.random.chance(0.5);
        let value = self.random.next_u64();
        let past = &mut self.pasts[node];
        past[node] += 1;
        let (cell, memory) = &mut self.memory[at];
        if !covers(past, &memory.written) {
            return;
        }
        if !writes {
            self.ops[node].push(Op::Expect(*cell, memory.value));
            merge(&mut memory.read, past);
        } else if covers_reads(past, &memory.read, node) {
            self.ops[node].push(Op::Store(*cell, value));
            let read = past.clone();
            *memory = Memory { value, written: past.clone(), read };
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

    /// Barrier of these nodes by this operation.
    fn meet(&mut self, members: &[usize], op: &Op) {
        let mut all = vec![0; self.pasts.len()];
        members.iter().for_each(|node| merge(&mut all, &self.pasts[*node]));
        for node in members {
            self.pasts[*node].clone_from(&all);
            self.ops[*node].push(op.clone());
        }
    }

    /// Draws operations, and returns the threads.
    fn draw(mut self, count: usize) -> Vec<Thread> {
        let nodes = self.pasts.len();
        // Some programs have few barriers, so that much is kept.
        let often = [0.0, 0.002, 0.02][self.random.below(3)];
        for _ in 0..count {
            let node = self.random.below(nodes);
            let other = (node + 1 + self.random.below(nodes - 1)) % nodes;
            match self.random.below(10) {
                0..5 => self.access(node),
                5 | 6 => self.notify(node, other),
                7 | 8 => self.wait(other, node),
                _ if self.random.chance(0.3) => {
                    let members = [node.min(other), node.max(other)];
                    self.teams += 1;
                    let ranks = members.iter().map(|node| *node as Rank).collect();
                    self.meet(&members, &Op::TeamBarrier(self.teams, ranks));
                }
                _ => {}
            }
            if self.random.chance(often) {
                self.meet(&(0..nodes).collect::<Vec<_>>(), &Op::Barrier);
            }
        }
        self.meet(&(0..nodes).collect::<Vec<_>>(), &Op::Barrier);
        for ops in &mut self.ops {
            ops.extend(self.memory.iter().map(|(cell, memory)| Op::Expect(*cell, memory.value)));
        }
        (0..).zip(self.ops).map(|(node, ops)| Thread::new(node, ops)).collect()
    }
}

/// Returns `true` if all reads by other nodes happened before.
fn covers_reads(past: &Past, read: &Past, node: usize) -> bool {
    (0..).zip(past.iter().zip(read)).all(|(of, (mine, theirs))| of == node || mine >= theirs)
}

/// COH-15.4, 15.5, COH-4.6: what was left out of a notification, or was forgotten, is not missed.
#[test]
fn random_programs_with_notifications_read_what_a_sequential_machine_would() {
    for seed in seeds(8_000_000, 300) {
        let nodes = 2 + (seed % 4) as u32;
        let mut cluster = Cluster::new(nodes, seed);
        cluster.takes_guards = seed.is_multiple_of(3);
        let placed = programs::homes(&mut Random::new(seed), nodes, 3);
        cluster.declare("x", 3, placed);
        let threads = Drawing::new(nodes, seed).draw(400 + (seed % 7) as usize * 200);
        cluster.run(threads);
    }
}

/// Returns the number of intervals that a node keeps.
fn kept(cluster: &Cluster, node: usize) -> u64 {
    let statistics = cluster.nodes[node].coherence.statistics();
    statistics.intervals_kept - statistics.intervals_forgotten
}

/// Runs one round of two lengths after another, and returns the longest notification and the
/// largest number of kept intervals of a node, after each.
fn grown(
    nodes: u32,
    counts: [u64; 2],
    programs: impl Fn(u64, u64) -> Vec<Vec<Op>>,
) -> [(usize, u64); 2] {
    let mut cluster = Cluster::with_array(nodes, 5, 6);
    let mut first = 0;
    counts.map(|count| {
        let threads = (0..).zip(programs(first, count));
        let threads = threads.map(|(node, ops)| Thread::new(node, ops)).collect();
        cluster.channels.values_mut().for_each(|channel| channel.lengths.clear());
        cluster.run(threads);
        first += count;
        let longest = cluster.channels.values().flat_map(|channel| &channel.lengths).max();
        let all = 0..nodes as usize;
        (longest.copied().unwrap_or(0), all.map(|node| kept(&cluster, node)).max().unwrap_or(0))
    })
}

/// Each node in turn adds to what the one before it has written, on two pages in turn.
fn ring(nodes: u64, first: u64, count: u64) -> Vec<Vec<Op>> {
    let mut ops = vec![Vec::new(); nodes as usize];
    for step in first..first + count {
        let (node, next) = (step % nodes, (step + 1) % nodes);
        let cell = |step: u64| Cell::word((step % 2) as usize * 3, 5);
        let mine = &mut ops[node as usize];
        if step > 0 {
            mine.push(Op::WaitNotify(((step - 1) % nodes) as Rank));
            mine.push(Op::Expect(cell(step - 1), step - 1));
        }
        mine.extend([Op::Store(cell(step), step), Op::Notify(next as Rank)]);
    }
    ops
}

/// COH-15.5, COH-4.6: bytes of a notification and what nodes keep do not grow with the steps.
#[test]
fn many_steps_of_two_nodes_grow_nothing() {
    let [before, after] = grown(2, [1000, 100_000], |first, count| ring(2, first, count));
    // The vectors' numbers are a little longer.
    assert!(after.0 <= before.0 + 10 && before.0 < 60, "{before:?}, {after:?}");
    assert!(after.1 <= 64 && before.1 <= 64, "{before:?}, {after:?}");
}

#[test]
fn many_steps_of_a_ring_grow_nothing() {
    let [before, after] = grown(3, [1000, 30_000], |first, count| ring(3, first, count));
    assert!(after.0 <= before.0 + 9 && before.0 < 90, "{before:?}, {after:?}");
    assert!(after.1 <= 64 + 9 && before.1 <= 64 + 9, "{before:?}, {after:?}");
}

/// COH-4.5: the reader never says what it knows, and the third node learns all at a barrier.
#[test]
fn a_writer_that_hears_nothing_keeps_a_bounded_number_of_intervals() {
    let cell = |step: u64| Cell::word((step % 3) as usize, 5);
    let programs = |first: u64, count: u64| {
        let (mut writer, mut reader, mut third) = (Vec::new(), Vec::new(), Vec::new());
        for step in first..first + count {
            writer.extend([Op::Store(cell(step), step), Op::Notify(1)]);
            reader.push(Op::WaitNotify(0));
        }
        if first == 0 {
            third.extend((0..3).map(|step| Op::Load(cell(step))));
        } else {
            for ops in [&mut writer, &mut reader, &mut third] {
                ops.push(Op::Barrier);
            }
        }
        if first > 0 {
            let last = first + count;
            let expected = |step: u64| Op::Expect(cell(step), step);
            for ops in [&mut reader, &mut third] {
                ops.extend((last - 3..last).map(expected));
            }
        }
        vec![writer, reader, third]
    };
    let [before, after] = grown(3, [4000, 20_000], programs);
    assert!(after.0 <= before.0 + 9 && before.0 < 40, "{before:?}, {after:?}");
    assert!(before.1 <= 1280, "{before:?}");
    assert_eq!(after.1, 0, "a barrier has told all");
}

/// COH-15.5: a notification that left out what a lost one had told changes nothing, and is refused.
/// A barrier tells all.
#[test]
fn what_a_lost_notification_has_told_is_not_missed() {
    for seed in seeds(8_100_000, 50) {
        let (x, y) = (Cell::word(0, 5), Cell::word(1, 5));
        let mut cluster = Cluster::with_array(2, seed, 6);
        let run = |cluster: &mut Cluster, first: Vec<Op>, second: Vec<Op>| {
            cluster.run(vec![Thread::new(0, first), Thread::new(1, second)]);
        };
        let written = |cell, value| vec![Op::Store(cell, value), Op::Notify(1)];
        run(&mut cluster, written(x, 1), vec![Op::WaitNotify(0), Op::Expect(x, 1)]);
        run(&mut cluster, written(x, 2), Vec::new());
        assert!(cluster.channels.get_mut(&(0, 1)).and_then(Channel::arrive).is_some());
        run(&mut cluster, written(y, 3), Vec::new());
        let body =
            cluster.channels.get_mut(&(0, 1)).and_then(Channel::arrive).expect("it was sent");
        let token = cluster.call(1, |c, token, pages| c.acquire_from_team(&[body], token, pages));
        let error = cluster.nodes[1].outcomes.remove(&token).expect("an outcome").unwrap_err();
        assert!(error.to_string().contains("earlier notification"), "{error}");
        let seen = vec![Op::Barrier, Op::Expect(x, 2), Op::Expect(y, 3)];
        run(&mut cluster, vec![Op::Barrier], seen);
        run(&mut cluster, written(x, 4), vec![Op::WaitNotify(0), Op::Expect(x, 4)]);
    }
}
