//! Random programs without data races, against what a sequential machine would read.

use super::threads::{Cell, Op, Thread};
use super::{Cluster, Node};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, Delivery, Homes, Ownership};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::Token;
use std::collections::BTreeMap;

/// Pages of each array.
pub const PAGES: u64 = 6;
/// Array whose pages are written whole.
const FILLED: u32 = 2;

pub fn homes(random: &mut Random, nodes: u32, pages: u64) -> Homes {
    match random.below(3) {
        0 => Homes::Block,
        1 => Homes::Cyclic { pages: 1 + random.below(3) as u64 },
        _ => Homes::Explicit((0..pages).map(|_| random.below(nodes as usize) as Rank).collect()),
    }
}

/// Cells of 1 to 8 bytes, none overlapping, crowded on few pages of two arrays.
fn cells(random: &mut Random, count: usize) -> Vec<Cell> {
    let mut next = BTreeMap::new();
    (0..count)
        .map(|_| {
            let (array, page) = (random.below(2) as u32, random.below(PAGES as usize));
            let at = next.entry((array, page)).or_insert_with(|| random.below(64));
            let len = 1 + random.below(8);
            let cell = Cell { array, at: page * PAGE + *at, len };
            *at += len + if random.chance(0.3) { random.below(100) } else { 0 };
            cell
        })
        .collect()
}

fn cut(value: u64, len: usize) -> u64 {
    if len == 8 { value } else { value & ((1 << (len * 8)) - 1) }
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i + 1));
    }
}

/// Draws a program of phases between barriers. In each phase, a cell has at most one writing
/// thread, and other threads read it only if no thread writes it. Threads also add to cells under
/// locks, and check the sums after the last barrier.
pub fn program(random: &mut Random, nodes: u32, threads_per_node: usize) -> Vec<Thread> {
    let all = nodes as usize * threads_per_node;
    let (mut free, locked) = (cells(random, 40), 6);
    let counters: Vec<(u64, Cell)> = free
        .drain(..locked)
        .map(|cell| (random.below(4) as u64, Cell { len: cell.len, ..cell }))
        .collect();
    let mut memory: BTreeMap<Cell, u64> = free.iter().map(|cell| (*cell, 0)).collect();
    let mut sums: BTreeMap<Cell, u64> = BTreeMap::new();
    let mut filled = [0; PAGES as usize];
    let mut ops: Vec<Vec<Op>> = vec![Vec::new(); all];
    let phases = if random.chance(0.3) { 12 } else { 6 };
    let (reads, often) = (0.2 + random.below(7) as f64 / 10.0, random.below(7) as f64 / 10.0);
    // In larger clusters, only one thread of each node stops at a barrier. The others read cells
    // that nobody writes before the barrier after it.
    let go_on = threads_per_node > 1 && nodes >= 10;
    let mut quiet: Vec<Cell> = Vec::new();
    for phase in 0..2 + random.below(phases) {
        let mut parts: Vec<Vec<Vec<Op>>> = vec![Vec::new(); all];
        let was_quiet = core::mem::take(&mut quiet);
        for cell in &free {
            let writer = if was_quiet.contains(cell) { all } else { random.below(all * 2) };
            let old = memory[cell];
            if writer < all {
                let value = cut(random.next_u64(), cell.len);
                let twice =
                    random.chance(0.3).then(|| Op::Store(*cell, cut(random.next_u64(), cell.len)));
                let look = random.chance(0.5).then_some(Op::Expect(*cell, old));
                let own =
                    twice.into_iter().chain([Op::Store(*cell, value), Op::Expect(*cell, value)]);
                parts[writer].push(look.into_iter().chain(own).collect());
                memory.insert(*cell, value);
            } else {
                for part in parts.iter_mut().filter(|_| random.chance(reads)) {
                    part.push(vec![Op::Expect(*cell, old)]);
                }
                quiet.extend((go_on && random.chance(0.5)).then_some(*cell));
            }
        }
        // Whole pages of a third array.
        for (page, value) in filled.iter_mut().enumerate() {
            let writer = random.below(all * 2);
            let word = Cell { array: FILLED, ..Cell::word(page, random.below(PAGE / 8)) };
            if writer < all {
                let look = random.chance(0.5).then_some(Op::Expect(word, *value));
                let twice = random.chance(0.2).then(|| Op::Fill(word, random.next_u64()));
                *value = random.next_u64();
                let own = [Op::Fill(word, *value), Op::Expect(word, *value)];
                parts[writer].push(look.into_iter().chain(twice).chain(own).collect());
            } else {
                for part in parts.iter_mut().filter(|_| random.chance(reads)) {
                    part.push(vec![Op::Expect(word, *value)]);
                }
            }
        }
        for part in &mut parts {
            for (lock, cell) in &counters {
                if !random.chance(0.25) {
                    continue;
                }
                let more = random.below(5) as u64;
                *sums.entry(*cell).or_default() += more;
                part.push(vec![Op::Lock(*lock), Op::Add(*cell, more), Op::Unlock(*lock)]);
            }
            if random.chance(often) {
                let page = Cell { array: FILLED, ..Cell::word(random.below(PAGES as usize), 0) };
                let cell = if random.chance(0.5) { page } else { free[random.below(free.len())] };
                part.push(vec![Op::Subscribe(cell, random.chance(0.7))]);
            }
            if random.chance(0.03) {
                part.push(vec![Op::TrackPages(random.below(3) as u32)]);
            }
            if random.chance(0.2) {
                let access = if random.chance(0.5) { Access::Read } else { Access::Write };
                part.push(vec![Op::Touch(free[random.below(free.len())], access)]);
            }
            if random.chance(0.2) {
                let access = if random.chance(0.5) { Access::Read } else { Access::Write };
                let cells = (0..1 + random.below(5)).map(|_| free[random.below(free.len())]);
                part.push(vec![Op::TouchMany(cells.collect(), access)]);
            }
            if random.chance(0.3) {
                let cell = free[random.below(free.len())];
                part.push(vec![Op::Prefetch(
                    cell,
                    1 + random.below(PAGES as usize - cell.at / PAGE) as u64,
                )]);
            }
            shuffle(random, part);
        }
        for (thread, part) in parts.into_iter().enumerate() {
            ops[thread].extend(part.into_iter().flatten());
            let leads = thread % threads_per_node == 0;
            let read = quiet.iter().filter(|_| !leads && random.chance(0.3));
            let read = read.map(|cell| Op::Expect(*cell, memory[cell]));
            barrier(&mut ops[thread], phase, leads.then_some(Op::Barrier).into_iter().chain(read));
        }
    }
    for ops in &mut ops {
        ops.extend(memory.iter().map(|(cell, value)| Op::Expect(*cell, *value)));
        for (page, value) in filled.iter().enumerate() {
            let word = Cell::word(page, random.below(PAGE / 8));
            ops.push(Op::Expect(Cell { array: FILLED, ..word }, *value));
        }
        ops.extend(sums.iter().map(|(cell, sum)| Op::Expect(*cell, cut(*sum, cell.len))));
    }
    ops.into_iter()
        .enumerate()
        .map(|(i, ops)| Thread::new((i / threads_per_node) as Rank, ops))
        .collect()
}

/// Appends a barrier: the threads of a node meet, one of them calls the barrier, while the others
/// do something else, and they meet again.
fn barrier(ops: &mut Vec<Op>, phase: usize, meanwhile: impl IntoIterator<Item = Op>) {
    ops.push(Op::Together(phase * 2));
    ops.extend(meanwhile);
    ops.push(Op::Together(phase * 2 + 1));
}

pub fn run(nodes: u32, threads: usize, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed ^ 0xabcd);
    cluster.takes_guards = true;
    cluster.homes_move = seed.is_multiple_of(3);
    let guarded = random.below(4);
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        let homes = homes(&mut random, nodes, PAGES);
        let array = cluster.declare(name, PAGES, homes);
        if guarded >= number || (number == 3 && guarded > 0) {
            cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
        }
        // Each node may choose for itself.
        for node in &mut cluster.nodes {
            let delivery = Delivery::ALL[random.below(Delivery::ALL.len())];
            let chosen = random.chance(0.4).then_some(delivery);
            node.coherence.set_delivery(array, chosen);
        }
    }
    let threads = program(&mut random, nodes, threads);
    cluster.run(threads);
    cluster
}

/// Passes data on by locks while other threads wait in barriers. The unlocks make late intervals.
pub fn pass_baton(nodes: u32, seed: u64) {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed);
    let placed = homes(&mut random, nodes, PAGES);
    cluster.homes_move = seed.is_multiple_of(2);
    cluster.declare("a", PAGES, placed);
    let turn = Cell::word(random.below(6), 400);
    let data: Vec<Cell> = (0..5).map(|i| Cell::word(random.below(6), 10 + i)).collect();
    let rounds = 2 * u64::from(nodes);
    let mut threads = Vec::new();
    for node in 0..nodes {
        let barriers = 1 + seed % 3;
        threads.push(Thread::new(node, (0..barriers).map(|_| Op::Barrier).collect()));
        let mut ops = Vec::new();
        for round in (0..rounds).filter(|round| (*round % u64::from(nodes)) as u32 == node) {
            let again = ops.len();
            ops.extend([Op::Lock(3), Op::Load(turn), Op::Unlock(3), Op::UnlessGo(round, again)]);
            ops.extend(data.iter().map(|cell| Op::Expect(*cell, round * 10)));
            ops.extend(data.iter().map(|cell| Op::Store(*cell, round * 10 + 10)));
            ops.extend([Op::Lock(3), Op::Store(turn, round + 1), Op::Unlock(3)]);
        }
        // A barrier of all nodes follows the last turn, so that every thread sees the final
        // value.
        ops.extend([Op::Together(1), Op::Barrier]);
        ops.extend(data.iter().map(|cell| Op::Expect(*cell, rounds * 10)));
        threads.push(Thread::new(node, ops));
    }
    cluster.run(threads);
}

/// Each node writes a word in each round, and reads the next node's after a barrier. Two barriers
/// in a row follow, so that a fast node is one ahead.
pub fn exchange(nodes: u32, seed: u64) {
    let mut cluster = Cluster::new(nodes, seed);
    let placed = homes(&mut Random::new(seed), nodes, PAGES);
    cluster.declare("a", PAGES, placed);
    let cell = |node: u32| Cell::word(node as usize % PAGES as usize, (node % nodes) as usize);
    let threads = (0..nodes).map(|node| {
        let next = cell((node + 1) % nodes);
        let round = |round| {
            let store = Op::Store(cell(node), round);
            [store, Op::Barrier, Op::Expect(next, round), Op::Barrier, Op::Barrier]
        };
        Thread::new(node, (1..8).flat_map(round).collect())
    });
    let threads = threads.collect();
    cluster.run(threads);
}

/// The home of a page changes a word and changes it back, while another node fetches the page and
/// then subscribes to it. That node reads the word after a barrier (COH-10.21).
pub fn changes_back(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    cluster.declare("p", 1, Homes::Explicit(vec![0]));
    let (word, other) = (Cell::word(0, 3), Cell::word(0, 9));
    let (subscribe, met) = (Op::Subscribe(other, true), Op::Together(1));
    cluster.run(vec![Thread::new(0, vec![Op::Store(word, 1)])]);
    let changes = (0..10).flat_map(|_| [Op::Store(word, 2), Op::Store(word, 1)]);
    let reads = [Op::Load(other), met.clone(), Op::Barrier, Op::Expect(word, 1)];
    cluster.run(vec![
        Thread::new(0, changes.chain([Op::Barrier]).collect()),
        Thread::new(1, reads.to_vec()),
        Thread::new(1, vec![subscribe.clone(), met]),
        Thread::new(2, vec![subscribe, Op::Barrier, Op::Expect(word, 1)]),
    ]);
}

/// A thread of node 1 fetches a page while another one waits in a barrier. Node 2 writes to the
/// page after that, and before it arrives (COH-6.20).
pub fn fetch_while_waiting(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    cluster.declare("p", 1, Homes::Explicit(vec![0]));
    let (word, other) = (Cell::word(0, 3), Cell::word(0, 9));
    let call =
        |cluster: &mut Cluster, rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m)));
    let waiting = call(&mut cluster, 1);
    cluster.run(vec![Thread::new(1, vec![Op::Expect(other, 0)])]);
    cluster.run(vec![Thread::new(2, vec![Op::Store(word, 7)])]);
    let others = [0, 2].map(|rank| call(&mut cluster, rank));
    cluster.run_until_quiet();
    cluster.all_succeeded(others.into_iter().chain([waiting]));
    cluster.run(vec![Thread::new(1, vec![Op::Expect(word, 7)])]);
}

/// A page that node 1 has requested may come after a barrier, before which node 2 writes to it
/// (COH-6.19).
pub fn request_over_barrier(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    cluster.declare("p", 1, Homes::Explicit(vec![0]));
    let (word, page) = (Cell::word(0, 3), 0..1);
    cluster.run(vec![Thread::new(2, vec![Op::Store(word, 1)])]);
    cluster.call(1, |c, _, m| c.prefetch(0, &[page], m));
    let call =
        |cluster: &mut Cluster, rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m)));
    let first = call(&mut cluster, 1);
    cluster.steps(seed % 3);
    cluster.run(vec![Thread::new(2, vec![Op::Store(word, 7)])]);
    let others = [0, 2].map(|rank| call(&mut cluster, rank));
    cluster.run_until_quiet();
    cluster.all_succeeded(others.into_iter().chain([first]));
    cluster.run(vec![Thread::new(1, vec![Op::Expect(word, 7)])]);
}

/// Nodes 1 and 2 fill a page one after the other, as a lock orders them. Their updates may come to
/// node 3 in the other order (COH-10.9).
pub fn crossed_writers(seed: u64) {
    let mut cluster = Cluster::new(4, seed);
    let array = cluster.declare("p", 1, Homes::Explicit(vec![0]));
    cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    let (word, barrier, load) = (Cell::word(0, 3), Op::Barrier, Op::Load(Cell::word(0, 3)));
    let locked = |value| [Op::Lock(1), Op::Fill(word, value), Op::Unlock(1), Op::Barrier];
    let fill = |value| [Op::Fill(word, value), Op::Barrier];
    // The writers learn at a barrier who subscribes.
    let begin = |ops: [Vec<Op>; 2]| ops.concat().into_iter().chain([load.clone()]).collect();
    let three = vec![barrier.clone(); 3];
    let first = [vec![barrier.clone()], fill(5).to_vec(), vec![barrier.clone()]].concat();
    let second = [vec![barrier.clone(); 2], fill(6).to_vec()].concat();
    let reader = [vec![Op::Subscribe(word, true), load.clone()], three.clone()].concat();
    let read = cluster.run(vec![
        Thread::new(0, begin([three, vec![barrier.clone()]])),
        Thread::new(1, begin([first, locked(11).to_vec()])),
        Thread::new(2, begin([second, locked(12).to_vec()])),
        Thread::new(3, begin([reader, vec![barrier.clone()]])),
    ]);
    let last: Vec<u64> = read.iter().filter_map(|values| values.last().copied()).collect();
    assert!(last.iter().all(|value| Some(value) == last.first()), "seed {seed}: {last:?}");
}

/// Nodes that compare their barriers in an arena. The engines end a barrier only if a node has
/// something to tell (COH-6.14, COH-16.3). What was written to an array of pages is visible after
/// it, and a segment that all nodes have dropped ends with it.
pub fn barriers_in_an_arena(nodes: u32, seed: u64) {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed);
    let barrier = |cluster: &mut Cluster| {
        let told = cluster.nodes.iter_mut().any(|node| node.coherence.has_to_tell());
        if told {
            let call = |rank| cluster.call(rank, |c, token, m| c.barrier(token, m));
            let tokens: Vec<_> = (0..nodes).map(call).collect();
            cluster.run_until_quiet();
            cluster.all_succeeded((0..).zip(tokens));
        }
        told
    };
    let segment = cluster.declare("segment", PAGES, Homes::Block);
    cluster.nodes.iter_mut().for_each(|node| node.coherence.make_segment(segment));
    assert!(!barrier(&mut cluster), "seed {seed}: a segment has nothing to tell");
    let placed = homes(&mut random, nodes, PAGES);
    let array = cluster.declare("pages", PAGES, placed);
    let (mut writer, at) = (0, 8 * random.below(PAGES as usize * PAGE / 8));
    let page = (at / PAGE) as u64;
    for round in 1..4 {
        cluster.succeeds(writer, |c, t, m| c.touch(array, page..page + 1, Access::Write, t, m));
        assert!(cluster.nodes[writer as usize].machine.store(array, at, 8, round));
        barrier(&mut cluster);
        for rank in 0..nodes {
            cluster.succeeds(rank, |c, t, m| c.touch(array, page..page + 1, Access::Read, t, m));
            let read = cluster.nodes[rank as usize].machine.load(array, at, 8);
            assert_eq!(read, Some(round), "seed {seed}, node {rank}");
        }
        barrier(&mut cluster);
        writer = random.below(nodes as usize) as Rank;
    }
    for dropped in [array, segment] {
        cluster.nodes.iter_mut().for_each(|node| node.coherence.drop_array(dropped));
        barrier(&mut cluster);
        let has_ended = |node: &Node| node.coherence.array(dropped).is_none();
        assert!(cluster.nodes.iter().all(has_ended), "seed {seed}: array {dropped} is kept");
    }
    assert!(!barrier(&mut cluster), "seed {seed}: nothing is left to tell");
}

/// A node writes under a lock while its other thread may wait in the barrier already. The next
/// holder of the lock arrives at the barrier, so all nodes must see the write after it (COH-6.5).
pub fn late_news(nodes: u32, seed: u64) {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed);
    let (writer, holder) = (random.below(nodes as usize) as Rank, random.below(nodes as usize));
    let holder = if holder as Rank == writer { (writer + 1) % nodes } else { holder as Rank };
    // The other nodes keep copies, so the homes are these two.
    let placed =
        Homes::Explicit((0..PAGES).map(|p| if p == 0 { writer } else { holder }).collect());
    cluster.declare("a", PAGES, placed);
    let (data, flag) = (Cell::word(random.below(2), 3), Cell::word(2, 5));
    let mut threads = vec![Thread::new(
        writer,
        vec![Op::Lock(1), Op::Store(data, 7), Op::Store(flag, 1), Op::Unlock(1)],
    )];
    for node in 0..nodes {
        let mut ops = Vec::new();
        if node == holder {
            ops.extend([Op::Lock(1), Op::Load(flag), Op::Unlock(1), Op::UnlessGo(1, 0)]);
        } else if node != writer {
            // A race on purpose, whose value is not used: an old copy must be here.
            ops.push(Op::Load(data));
        }
        ops.extend([Op::Barrier, Op::Expect(data, 7)]);
        threads.push(Thread::new(node, ops));
    }
    cluster.run(threads);
}

/// Threads add to cells of two pages under two locks, one of them sometimes inside of the other,
/// and write cells of their own between. After a barrier, all nodes check the sums, and write cells
/// of their own once more. Returns the number of pages that grants kept valid (COH-10.17).
pub fn sections(nodes: u32, seed: u64) -> u64 {
    let mut cluster = Cluster::new(nodes, seed);
    let mut random = Random::new(seed ^ 0x5ec7);
    cluster.takes_guards = random.chance(0.5);
    let placed = Homes::Explicit((0..2).map(|_| random.below(nodes as usize) as Rank).collect());
    let array = cluster.declare("s", 2, placed);
    if random.chance(0.5) {
        cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    }
    let cell = |random: &mut Random, lock: u64| {
        Cell::word(random.below(2), lock as usize * 8 + random.below(3))
    };
    let mut sums: BTreeMap<Cell, u64> = BTreeMap::new();
    let mut threads = Vec::new();
    for number in 0..nodes + random.below(3) as u32 {
        let mut ops = Vec::new();
        let own = Cell::word(random.below(2), 40 + number as usize);
        for _ in 0..2 + random.below(5) {
            let outer = random.below(2) as u64;
            let locks = if outer == 0 && random.chance(0.4) { vec![0, 1] } else { vec![outer] };
            ops.extend(locks.iter().map(|lock| Op::Lock(*lock)));
            for lock in locks.into_iter().rev() {
                for _ in 0..random.below(3) {
                    let (cell, more) = (cell(&mut random, lock), 1 + random.below(9) as u64);
                    *sums.entry(cell).or_default() += more;
                    ops.push(Op::Add(cell, more));
                }
                ops.push(Op::Unlock(lock));
                if random.chance(0.2) {
                    let value = random.next_u64();
                    sums.insert(own, value);
                    ops.push(Op::Store(own, value));
                }
            }
        }
        threads.push((number, own, ops));
    }
    let looks_first = random.chance(0.5);
    for (phase, looks) in [looks_first, false, true].into_iter().enumerate() {
        for (number, own, ops) in &mut threads {
            if phase == 2 {
                let value = random.next_u64();
                sums.insert(*own, value);
                ops.push(Op::Store(*own, value));
            }
            barrier(ops, phase, (*number < nodes).then_some(Op::Barrier));
        }
        let expected = sums.iter().map(|(cell, sum)| Op::Expect(*cell, *sum));
        let expected: Vec<Op> = expected.filter(|_| looks).collect();
        threads.iter_mut().for_each(|(_, _, ops)| ops.extend(expected.iter().cloned()));
    }
    let threads = threads.into_iter();
    cluster.run(threads.map(|(number, _, ops)| Thread::new(number % nodes, ops)).collect());
    cluster.nodes.iter().map(|node| node.coherence.statistics().granted_pages).sum()
}

/// A node writes a word under a lock, and once more after it. The second write reaches a reader
/// before the grant that brings the first one. The reader sees the second one after a barrier
/// (COH-10.17).
pub fn newer_update(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    let array = cluster.declare("p", 1, Homes::Explicit(vec![0]));
    cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    let (word, lock) = (Cell::word(0, 3), 3);
    cluster.run(vec![Thread::new(2, vec![Op::Load(word)])]);
    let section = vec![Op::Lock(lock), Op::Store(word, 1), Op::Unlock(lock)];
    cluster.run(vec![Thread::new(1, section)]);
    let Node { coherence, machine, .. } = &mut cluster.nodes[1];
    let page = 0..PAGE as u64;
    let write = coherence.begin_write(array, page, Ownership::Owned, machine).unwrap();
    assert!(machine.store(array, word.at, word.len, 2));
    coherence.end_write(write, &[2], machine);
    cluster.collect(1);
    cluster.run_until_quiet();
    cluster.run(vec![Thread::new(2, vec![Op::Lock(lock), Op::Unlock(lock)])]);
    let barrier = |node| Thread::new(node, vec![Op::Barrier, Op::Expect(word, 2)]);
    cluster.run((0..3).map(barrier).collect());
}

/// A node writes a word under a lock while it waits in a barrier. The word's home writes the word
/// under the lock after it, before or after its own departure. The next holder has fetched the page
/// meanwhile, and gets with the lock what the first node wrote (COH-3.5).
pub fn late_section_before_a_home(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    let array = cluster.declare("p", 1, Homes::Explicit(vec![1]));
    if seed.is_multiple_of(2) {
        cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    }
    let (word, other, lock) = (Cell::word(0, 3), Cell::word(0, 4), 3);
    let barrier =
        |cluster: &mut Cluster, rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m)));
    cluster.run(vec![Thread::new(0, vec![Op::Load(word)])]);
    cluster.run(vec![Thread::new(1, vec![Op::Store(other, 5)])]);
    let mut calls = vec![barrier(&mut cluster, 0)];
    cluster.run_until_quiet();
    let section = |node, value| {
        Thread::new(node, vec![Op::Lock(lock), Op::Store(word, value), Op::Unlock(lock)])
    };
    cluster.run(vec![section(0, 1)]);
    calls.push(barrier(&mut cluster, 1));
    cluster.run_until_quiet();
    if seed % 4 < 2 {
        calls.push(barrier(&mut cluster, 2));
        cluster.run_until_quiet();
    }
    cluster.run(vec![Thread::new(1, vec![Op::Lock(lock)])]);
    if calls.len() < 3 {
        calls.push(barrier(&mut cluster, 2));
        cluster.run_until_quiet();
    }
    cluster.all_succeeded(calls);
    cluster.run(vec![Thread::new(1, vec![Op::Store(word, 2), Op::Unlock(lock)])]);
    cluster.run(vec![Thread::new(2, vec![Op::Load(other)])]);
    let last = vec![Op::Lock(lock), Op::Expect(word, 2), Op::Unlock(lock)];
    cluster.run(vec![Thread::new(2, last)]);
}

/// A node pushes a page under a lock. The next holder writes to the page before the update comes
/// (COH-10.4).
pub fn late_update(seed: u64) {
    let mut cluster = Cluster::new(3, seed);
    let array = cluster.declare("p", 1, Homes::Explicit(vec![0]));
    cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(array));
    let (word, lock) = (Cell::word(0, 3), 3);
    cluster.run(vec![
        Thread::new(1, vec![Op::Lock(lock), Op::Load(word)]),
        Thread::new(2, vec![Op::Load(word)]),
    ]);
    let Node { coherence, machine, .. } = &mut cluster.nodes[1];
    let page = 0..PAGE as u64;
    let write = coherence.begin_write(array, page, Ownership::Owned, machine).unwrap();
    assert!(machine.store(array, word.at, word.len, 1));
    coherence.end_write(write, &[2], machine);
    cluster.collect(1);
    let section = vec![Op::Lock(lock), Op::Expect(word, 1), Op::Store(word, 2), Op::Unlock(lock)];
    cluster.run(vec![Thread::new(1, vec![Op::Unlock(lock)]), Thread::new(2, section)]);
    let barrier = |node| Thread::new(node, vec![Op::Barrier, Op::Expect(word, 2)]);
    cluster.run((0..3).map(barrier).collect());
}

/// Creates a cluster of two nodes with a page whose home may move from node 0 on.
fn with_a_moving_home(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(2, seed);
    cluster.homes_move = true;
    cluster.declare("p", 1, Homes::Explicit(vec![0]));
    cluster
}

/// Stores a number into the word of this node in the page. The network stands still meanwhile if
/// the page is valid here.
fn store_own_word(cluster: &mut Cluster, rank: Rank, value: u64) {
    let token = cluster.call(rank, |c, token, m| c.touch(0, 0..1, Access::Write, token, m));
    if !cluster.nodes[rank as usize].machine.store(0, 8 * rank as usize, 8, value) {
        cluster.run_until_quiet();
        assert!(cluster.nodes[rank as usize].machine.store(0, 8 * rank as usize, 8, value));
    }
    cluster.all_succeeded([(rank, token)]);
}

fn begin_barrier(cluster: &mut Cluster) -> Vec<(Rank, Token)> {
    let all = 0..cluster.nodes.len() as Rank;
    all.map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m)))).collect()
}

fn barrier_of_all(cluster: &mut Cluster) {
    let calls = begin_barrier(cluster);
    cluster.run_until_quiet();
    cluster.all_succeeded(calls);
}

/// Checks on all nodes which numbers the page has.
fn has_words(cluster: &mut Cluster, words: &[u64]) {
    for rank in 0..cluster.nodes.len() as Rank {
        cluster.succeeds(rank, |c, token, m| c.touch(0, 0..1, Access::Read, token, m));
        for (at, word) in words.iter().enumerate() {
            let found = cluster.nodes[rank as usize].machine.load(0, 8 * at, 8);
            assert_eq!(found, Some(*word), "seed {}, node {rank}, word {at}", cluster.seed);
        }
    }
}

/// Lets a page move to node 1 while another thread of its old home stores to it (COH-11.6).
pub fn stores_of_an_old_home(seed: u64) {
    let mut cluster = with_a_moving_home(seed);
    store_own_word(&mut cluster, 1, 7);
    let calls = begin_barrier(&mut cluster);
    cluster.steps(seed % 40);
    store_own_word(&mut cluster, 0, 9);
    cluster.run_until_quiet();
    cluster.all_succeeded(calls);
    barrier_of_all(&mut cluster);
    has_words(&mut cluster, &[9, 7]);
}
