//! Random programs without data races, against what a sequential machine would read (COH-2.3,
//! COH-3.7).

use crate::cluster::programs::{PAGES, homes, run};
use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Cluster, seeds};
use oikaze_protocol::random::Random;

/// COH-1.1, COH-3.1, 3.2, 3.3 and 3.7, COH-4.1, 4.2, COH-6.1, 6.4, COH-7.1.
#[test]
fn random_programs_read_what_a_sequential_machine_would() {
    for seed in seeds(0, 1500) {
        run(1 + (seed % 5) as u32, 1, seed);
    }
}

/// COH-5.1, 5.5.
#[test]
fn random_programs_with_several_threads_per_node() {
    for seed in seeds(1_000_000, 600) {
        run(1 + (seed % 4) as u32, 2 + (seed % 2) as usize, seed);
    }
}

/// COH-6.5: unlocks make intervals while another thread of their node waits in a barrier. The data
/// that threads pass on by locks must be visible after the next barrier of the thread that got it
/// (COH-7.4).
#[test]
fn batons_pass_while_others_wait_in_barriers() {
    for seed in seeds(2_000_000, 600) {
        let nodes = 2 + (seed % 3) as u32;
        let mut cluster = Cluster::new(nodes, seed);
        let mut random = Random::new(seed);
        let placed = homes(&mut random, nodes, PAGES);
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
                ops.extend([
                    Op::Lock(3),
                    Op::Load(turn),
                    Op::Unlock(3),
                    Op::UnlessGo(round, again),
                ]);
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
}

#[test]
#[ignore]
fn one_seed() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    if seed >= 1_000_000 {
        run(1 + (seed % 4) as u32, 2 + (seed % 2) as usize, seed);
    } else {
        run(1 + (seed % 5) as u32, 1, seed);
    }
}
