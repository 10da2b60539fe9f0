//! Litmus tests of release consistency, with locks and with barriers (COH-1.1): outcomes that no
//! load may return.

use crate::cluster::Cluster;
use crate::cluster::threads::{Cell, Op, Thread};
use oikaze_protocol::coherence::Homes;

const SEEDS: u64 = 60;

/// Runs each program in a thread of its own, on successive nodes. With more programs than nodes,
/// two threads share a node.
fn run(nodes: u32, seed: u64, programs: &[Vec<Op>]) -> Vec<Vec<u64>> {
    let mut cluster = Cluster::new(nodes, seed);
    let homes = if seed.is_multiple_of(2) { Homes::Cyclic { pages: 1 } } else { Homes::Block };
    cluster.declare("x", 3, homes);
    let shift = (seed / 7) as u32;
    let threads =
        (shift..).zip(programs).map(|(node, ops)| Thread::new(node % nodes, ops.clone())).collect();
    cluster.run(threads)
}

fn locked(lock: u64, op: Op) -> Vec<Op> {
    vec![Op::Lock(lock), op, Op::Unlock(lock)]
}

fn all(parts: impl IntoIterator<Item = Vec<Op>>) -> Vec<Op> {
    parts.into_iter().flatten().collect()
}

fn every(shape: impl Fn(u32, u64)) {
    for seed in 0..SEEDS {
        for nodes in [1, 2, 3, 4] {
            shape(nodes, seed);
        }
    }
}

/// COH-7.2, 7.3, COH-5.4.
#[test]
fn message_passing_through_a_lock() {
    every(|nodes, seed| {
        let (x, y) = Cell::pair(seed);
        let writer = vec![Op::Lock(1), Op::Store(x, 1), Op::Store(y, 1), Op::Unlock(1)];
        let reader = vec![Op::Lock(1), Op::Load(y), Op::Load(x), Op::Unlock(1)];
        let read = run(nodes, seed, &[writer, reader]);
        assert!(read[1][0] == read[1][1], "seed {seed}: {read:?}");
    });
}

/// COH-4.3, COH-7.3: x is read without a lock of its own. The store to x is visible because it
/// happened before two acquires of different locks.
#[test]
fn message_passing_is_transitive_over_locks() {
    every(|nodes, seed| {
        let (x, y) = Cell::pair(seed);
        let z = Cell::word(2, 100);
        let first = vec![Op::Store(x, 7), Op::Lock(1), Op::Store(y, 1), Op::Unlock(1)];
        let second = vec![
            Op::Lock(1),
            Op::Load(y),
            Op::Unlock(1),
            Op::UnlessGo(1, 0),
            Op::Lock(2),
            Op::Store(z, 1),
            Op::Unlock(2),
        ];
        // The reader has a copy of the old page first, so that forgetting to invalidate it would
        // show.
        let third = vec![
            Op::Lock(2),
            Op::Load(z),
            Op::Unlock(2),
            Op::UnlessGo(1, 0),
            Op::Expect(x, 7),
            Op::Expect(y, 1),
        ];
        run(nodes, seed, &[first, second, third]);
    });
}

/// Runs two programs, each with the cells in its order: under locks, of which one load finds
/// `found`, and, on several nodes, with a barrier in between.
fn buffering(
    under_locks: impl Fn(Cell, Cell) -> [Op; 2],
    found: u64,
    with_barrier: impl Fn(Cell, Cell) -> [Op; 2],
) {
    every(|nodes, seed| {
        let (x, y) = Cell::pair(seed);
        let through_locks = |a, b| all(under_locks(a, b).map(|op| locked(1, op)));
        let read = run(nodes, seed, &[through_locks(x, y), through_locks(y, x)]);
        assert!(read[0][0] == found || read[1][0] == found, "seed {seed}: {read:?}");
        if nodes > 1 {
            let around_barrier = |a, b| {
                let [before, after] = with_barrier(a, b);
                vec![before, Op::Barrier, after]
            };
            run(2, seed, &[around_barrier(x, y), around_barrier(y, x)]);
        }
    });
}

#[test]
fn store_buffering() {
    buffering(|a, b| [Op::Store(a, 1), Op::Load(b)], 1, |a, b| [Op::Store(a, 1), Op::Expect(b, 1)]);
}

#[test]
fn load_buffering() {
    buffering(|a, b| [Op::Load(a), Op::Store(b, 1)], 0, |a, b| [Op::Expect(a, 0), Op::Store(b, 1)]);
}

#[test]
fn independent_reads_of_independent_writes() {
    every(|nodes, seed| {
        let (x, y) = Cell::pair(seed);
        let reads = |a, b| all([locked(1, Op::Load(a)), locked(1, Op::Load(b))]);
        let programs =
            [locked(1, Op::Store(x, 1)), locked(1, Op::Store(y, 1)), reads(x, y), reads(y, x)];
        let read = run(nodes, seed, &programs);
        assert!(!(read[2] == [1, 0] && read[3] == [1, 0]), "seed {seed}: {read:?}");
        let both = vec![Op::Load(x), Op::Load(y), Op::Barrier, Op::Expect(x, 1), Op::Expect(y, 1)];
        // Loads before the barrier race with the stores on purpose: they bring copies that must be
        // invalidated.
        run(
            4,
            seed,
            &[
                vec![Op::Store(x, 1), Op::Barrier],
                vec![Op::Store(y, 1), Op::Barrier],
                both.clone(),
                both,
            ],
        );
    });
}

/// COH-4.4.
#[test]
fn reads_of_one_place_never_go_back() {
    every(|nodes, seed| {
        let (x, _) = Cell::pair(seed);
        let writer = all((1..6).map(|value| locked(1, Op::Store(x, value))));
        let reader = all((0..6).map(|_| locked(1, Op::Load(x))));
        let read = run(nodes, seed, &[writer, reader.clone(), reader]);
        assert!(read[1].is_sorted() && read[2].is_sorted(), "seed {seed}: {read:?}");
    });
}

/// COH-5.2: two writers on disjoint bytes of one page, in every interleaving; both are there
/// afterwards (COH-1.2).
#[test]
fn two_writers_on_one_page() {
    for seed in 0..SEEDS * 3 {
        let nodes = 3;
        let cells =
            |odd: usize| (0..40).map(move |i| Cell { array: 0, at: 4096 + i * 2 + odd, len: 1 });
        let writes = |odd: usize, add: u64| {
            cells(odd).zip(add..).map(|(cell, value)| Op::Store(cell, value)).collect::<Vec<_>>()
        };
        let check = || {
            let reads = cells(0).zip(1u64..).chain(cells(1).zip(101..));
            reads.map(|(cell, value)| Op::Expect(cell, value)).collect::<Vec<_>>()
        };
        // A lock in between makes one of them flush its dirty page early.
        let lock = |locked: bool| {
            if locked { vec![Op::Lock(seed % 3), Op::Unlock(seed % 3)] } else { vec![] }
        };
        let program = |odd: usize, add| {
            all([
                writes(odd, add),
                lock(seed % 2 == 0),
                writes(odd, add),
                vec![Op::Barrier],
                check(),
            ])
        };
        let third = all([vec![Op::Load(Cell::word(1, 0)), Op::Barrier], check()]);
        run(nodes, seed, &[program(0, 1), program(1, 101), third]);
    }
}

/// COH-7.9: a hand-over is one message to the next holder, and none of the manager's lies between.
#[test]
fn a_holder_grants_to_the_next_one_directly() {
    let mut cluster = Cluster::new(3, 1);
    cluster.succeeds(1, |c, token, m| c.lock(3, token, m));
    let next = cluster.call(2, |c, token, m| c.lock(3, token, m));
    cluster.run_until_quiet();
    let unlock = cluster.call(1, |c, token, m| c.unlock(3, token, m));
    cluster.network.drop_from(1, 0);
    cluster.run_until_quiet();
    cluster.all_succeeded([(1, unlock), (2, next)]);
    assert_eq!(cluster.passed, 1);
    assert_eq!(cluster.nodes[0].coherence.lock_view(3).map(|view| view.holder), Some(Some(1)));
}
