//! Homes that move (COH-11).

use crate::cluster::programs;
use crate::cluster::threads::{Cell, Op, Thread};
use crate::cluster::{Cluster, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, CoherenceError, CoherenceStatistics, Homes, Ownership, ReduceOp, Reduction, TargetOp,
    Value, Values,
};
use oikaze_protocol::limits::{FAILURE_TIME, PAGE, VAIN_QUESTIONS_MAX};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Token;

/// Codes of an answer with pages, and of a departure.
const PAGES: u8 = 2;
const DEPART: u8 = 5;

/// Creates a cluster with an array whose homes move from node 0 on.
fn cluster(nodes: u32, seed: u64, pages: u64) -> Cluster {
    let mut cluster = Cluster::new(nodes, seed);
    cluster.homes_move = true;
    cluster.declare("p", pages, Homes::Explicit(vec![0; pages as usize]));
    cluster
}

fn statistics(cluster: &Cluster, rank: usize) -> CoherenceStatistics {
    *cluster.nodes[rank].coherence.statistics()
}

/// Stores a number into the first word of a page.
fn write(cluster: &mut Cluster, rank: Rank, page: u64, value: u64) {
    cluster.succeeds(rank, |c, token, m| c.touch(0, page..page + 1, Access::Write, token, m));
    let stored = cluster.nodes[rank as usize].machine.store(0, page as usize * PAGE, 8, value);
    assert!(stored, "seed {}", cluster.seed);
}

/// As [`write`], of a page that is valid here. The network stands still meanwhile.
fn write_here(cluster: &mut Cluster, rank: Rank, page: u64, value: u64) {
    let token =
        cluster.call(rank, |c, token, m| c.touch(0, page..page + 1, Access::Write, token, m));
    cluster.all_succeeded([(rank, token)]);
    assert!(cluster.nodes[rank as usize].machine.store(0, page as usize * PAGE, 8, value));
}

fn read(cluster: &mut Cluster, rank: Rank, page: u64) -> Option<u64> {
    cluster.succeeds(rank, |c, token, m| c.touch(0, page..page + 1, Access::Read, token, m));
    cluster.nodes[rank as usize].machine.load(0, page as usize * PAGE, 8)
}

fn barrier(cluster: &mut Cluster) {
    let calls = begin_barrier(cluster, 0);
    cluster.run_until_quiet();
    cluster.all_succeeded(calls);
}

/// Begins a barrier on all nodes, and lets the network go on for some steps. What follows comes in
/// either round of the barrier, or between them.
fn begin_barrier(cluster: &mut Cluster, steps: u64) -> Vec<(Rank, Token)> {
    let all = 0..cluster.nodes.len() as Rank;
    let calls: Vec<_> =
        all.map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m)))).collect();
    cluster.steps(steps);
    calls
}

/// COH-11.1, 11.2, 11.4, 11.6: a page moves at the first barrier to the node that has written it.
/// Its writes then cost no diff.
#[test]
fn page_moves_to_the_node_that_writes_it_first() {
    for seed in seeds(0, 40) {
        let mut cluster = cluster(2 + (seed % 3) as u32 * 5, seed, 3);
        write(&mut cluster, 1, 2, 7);
        barrier(&mut cluster);
        assert_eq!(statistics(&cluster, 1).homes_moved, 1, "seed {seed}");
        let diffs = statistics(&cluster, 1).diffs;
        for round in 8..12 {
            assert_eq!(read(&mut cluster, 0, 2), Some(round - 1), "seed {seed}");
            write(&mut cluster, 1, 2, round);
            barrier(&mut cluster);
        }
        let now = statistics(&cluster, 1);
        assert_eq!((now.diffs, now.barriers), (diffs, 5), "seed {seed}");
    }
}

/// COH-11.1, 11.2: a page that two nodes write stays. A later one moves after two changes by one
/// node, and then stays for 64 collectives (COH-11.8).
#[test]
fn page_stays_while_several_nodes_write_it() {
    let mut cluster = cluster(3, 1, 2);
    let moved = |cluster: &Cluster| [1, 2].map(|rank| statistics(cluster, rank).homes_moved);
    for rank in [1, 2] {
        cluster.run(vec![Thread::new(rank, vec![Op::Store(Cell::word(0, rank as usize), 5)])]);
    }
    barrier(&mut cluster);
    assert_eq!(moved(&cluster), [0, 0]);
    write(&mut cluster, 1, 0, 1);
    barrier(&mut cluster);
    assert_eq!(moved(&cluster), [0, 0], "after one change");
    write(&mut cluster, 1, 0, 2);
    barrier(&mut cluster);
    assert_eq!(moved(&cluster), [1, 0]);
    for round in 0..80 {
        assert_eq!(moved(&cluster)[1], u64::from(round > 64), "round {round}");
        write(&mut cluster, 2, 0, 10 + round);
        barrier(&mut cluster);
    }
    assert_eq!(read(&mut cluster, 0, 0), Some(89));
}

/// COH-11.2: the call of two rounds has one result.
#[test]
fn reduction_at_which_homes_move_has_one_result() {
    for seed in seeds(0, 20) {
        let mut cluster = cluster(3, seed, 2);
        write(&mut cluster, 2, 1, 3);
        let sum = |value| Reduction { op: ReduceOp::Sum, values: Values::U64(vec![value]) };
        let call = |rank| cluster.call(rank, |c, t, m| c.reduce(sum(u64::from(rank)), t, m));
        let calls: Vec<_> = (0..3).map(call).collect();
        cluster.run_until_quiet();
        for (rank, token) in (0..).zip(calls) {
            let result = cluster.take(rank, token);
            assert_eq!(result, Some(Ok(Value::Reduced(Values::U64(vec![3])))), "seed {seed}");
        }
        assert_eq!(statistics(&cluster, 2).homes_moved, 1, "seed {seed}");
    }
}

/// COH-11.6: a node that has subscribed by a call gets updates of the new home.
#[test]
fn subscription_follows_its_page() {
    for seed in seeds(0, 40) {
        let mut cluster = cluster(3, seed, 1);
        cluster.run(vec![
            Thread::new(1, vec![Op::Subscribe(Cell::word(0, 0), true)]),
            Thread::new(1, vec![Op::Load(Cell::word(0, 0))]),
        ]);
        write(&mut cluster, 2, 0, 1);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 1, 0), Some(1));
        let before = statistics(&cluster, 1);
        for value in 2..6 {
            write(&mut cluster, 2, 0, value);
            barrier(&mut cluster);
            assert_eq!(read(&mut cluster, 1, 0), Some(value), "seed {seed}");
        }
        let now = statistics(&cluster, 1);
        assert_eq!(now.fetches, before.fetches, "seed {seed}");
        assert_eq!(statistics(&cluster, 2).homes_moved, 1, "seed {seed}");
    }
}

/// COH-11.6: an old home stores to a page while it moves.
#[test]
fn stores_of_an_old_home_are_kept() {
    seeds(0, 200).for_each(programs::stores_of_an_old_home);
}

/// COH-11.7: a node dies in either round. Every call ends, and whoever still gets a lock reads what
/// its last holder has written.
#[test]
fn death_in_either_round_leaves_one_truth() {
    let (mut passed, mut failed) = (0, 0);
    for seed in seeds(0, 600) {
        let nodes = [3, 4, 12][seed as usize % 3];
        let mut cluster = cluster(nodes, seed, 2);
        let dead = 1 + (seed % u64::from(nodes - 1)) as Rank;
        let writer = if dead == 1 { 2 } else { 1 };
        write(&mut cluster, writer, 1, 1);
        let alive: Vec<Rank> = (0..nodes).filter(|rank| *rank != dead).collect();
        let barriers: Vec<_> = (0..nodes)
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
            .collect();
        cluster.steps(seed / 3 % 80);
        cluster.kill(dead);
        cluster.run_until_quiet();
        for (rank, token) in barriers.into_iter().filter(|(rank, _)| *rank != dead) {
            match cluster.take(rank, token) {
                Some(Ok(Value::None)) => passed += 1,
                Some(Err(CoherenceError::NodeDead { rank, .. })) if rank == dead => failed += 1,
                other => panic!("seed {seed}: node {rank}: {other:?}"),
            }
        }
        // A lock that node 0 manages.
        let mut written = 1;
        for (value, rank) in (2..).zip(alive.iter().chain(&alive)) {
            let token = cluster.call(*rank, |c, token, m| c.lock(0, token, m));
            cluster.run_until_quiet();
            if cluster.take(*rank, token).expect("the lock comes or fails").is_err() {
                continue;
            }
            assert_eq!(read(&mut cluster, *rank, 1), Some(written), "seed {seed}, node {rank}");
            write(&mut cluster, *rank, 1, value);
            let token = cluster.call(*rank, |c, token, m| c.unlock(0, token, m));
            cluster.run_until_quiet();
            let unlocked = cluster.take(*rank, token).expect("the unlock ends");
            written = if unlocked.is_ok() { value } else { written };
        }
    }
    assert!(passed > 100 && failed > 100, "{passed} passed, {failed} failed");
}

/// Writes a word of the first page under a guard.
fn write_under_guard(cluster: &mut Cluster, rank: Rank, at: u64, ownership: Ownership) {
    cluster.call(rank, |coherence, _, machine| {
        let guard = coherence.begin_write(0, at..at + 8, ownership, machine).expect("it is valid");
        assert!(machine.store(0, at as usize, 8, at + 1));
        coherence.end_write(guard, &[], machine);
    });
}

/// COH-11.6: between the rounds, the first plain guard of an old home begins to track the pages. A
/// guard that merges has written before it.
#[test]
fn pages_tracked_between_the_rounds_keep_what_a_guard_has_merged() {
    let mut moved = 0;
    for seed in seeds(0, 400) {
        let mut cluster = cluster(2 + (seed % 2) as u32, seed, 1);
        cluster.nodes.iter_mut().for_each(|node| node.coherence.track_by_guards(0));
        [0, 1].into_iter().for_each(|rank| assert_eq!(read(&mut cluster, rank, 0), Some(0)));
        write_under_guard(&mut cluster, 1, 0, Ownership::Owned);
        let calls = begin_barrier(&mut cluster, seed / 2 % 30);
        write_under_guard(&mut cluster, 0, 8, Ownership::Merged);
        cluster.call(0, |coherence, _, machine| coherence.track_by_pages(0, machine));
        cluster.run_until_quiet();
        cluster.all_succeeded(calls);
        barrier(&mut cluster);
        for rank in 0..cluster.nodes.len() {
            assert_eq!(read(&mut cluster, rank as Rank, 0), Some(1), "seed {seed}, node {rank}");
            let merged = cluster.nodes[rank].machine.load(0, 8, 8);
            assert_eq!(merged, Some(9), "seed {seed}, node {rank}");
        }
        moved += statistics(&cluster, 1).homes_moved;
    }
    assert!(moved > 100, "{moved}");
}

/// COH-11.3: operations on elements that begin between the rounds go on after them, even if nobody
/// waits for them any longer.
#[test]
fn operations_cancelled_between_the_rounds_are_made() {
    for seed in seeds(0, 200) {
        let mut cluster = cluster(2, seed, 2);
        write(&mut cluster, 1, 0, 7);
        let calls = begin_barrier(&mut cluster, seed % 30);
        let at = PAGE as u64;
        let operations = [(TargetOp::Read, &[][..]), (TargetOp::Write, &[5; 8])];
        let tokens = operations.map(|(op, operands)| {
            cluster.call(1, |c, token, m| c.target(0, at, 8, op, operands, token, m))
        });
        for token in tokens {
            cluster.call(1, |coherence, _, machine| coherence.cancel(token, machine));
        }
        cluster.run_until_quiet();
        cluster.all_succeeded(calls);
        assert_eq!(tokens.map(|token| cluster.take(1, token)), [None, None], "seed {seed}");
        barrier(&mut cluster);
        let written = read(&mut cluster, 0, 1);
        assert_eq!(written, Some(u64::from_le_bytes([5; 8])), "seed {seed}");
    }
}

/// COH-11.2, COH-11.4: runs of pages for one node are at most 1024 in either round, also if what
/// another node has written cuts a run into many. The others move later.
#[test]
fn at_most_1024_runs_of_pages_move_to_a_node_at_once() {
    for cuts in [false, true] {
        let pages = 4096;
        let mut cluster = cluster(2, 3, pages);
        cluster.succeeds(1, |c, token, m| c.touch(0, 0..pages, Access::Write, token, m));
        for page in (0..pages as usize).filter(|page| cuts || page % 2 == 0) {
            assert!(cluster.nodes[1].machine.store(0, page * PAGE, 8, 5));
        }
        for page in (0..pages).filter(|page| cuts && page % 2 == 1) {
            write(&mut cluster, 0, page, 6);
        }
        barrier(&mut cluster);
        assert_eq!(statistics(&cluster, 1).homes_moved, 1024, "cut: {cuts}");
        assert_eq!(read(&mut cluster, 0, pages - 2), Some(5));
    }
}

/// COH-11.8: one node fills an array before the first barrier, and gets its pages. They move on at
/// once to the nodes that work on them.
#[test]
fn array_that_one_node_fills_moves_on_to_the_nodes_that_work_on_it() {
    let mut cluster = Cluster::new(3, 5);
    cluster.homes_move = true;
    cluster.declare("p", 6, Homes::Block);
    let moved = |cluster: &Cluster| [0, 1, 2].map(|rank| statistics(cluster, rank).homes_moved);
    (0..6).for_each(|page| write(&mut cluster, 0, page, 1));
    barrier(&mut cluster);
    assert_eq!(moved(&cluster), [4, 0, 0]);
    for round in 0..3 {
        assert_eq!(moved(&cluster), if round < 2 { [4, 0, 0] } else { [4, 2, 2] });
        (0..6).for_each(|page| write(&mut cluster, page as Rank / 2, page, round));
        barrier(&mut cluster);
    }
    assert_eq!(read(&mut cluster, 0, 5), Some(2));
}

/// COH-11.8: a page that its writer stores to all the time cannot move. So few barriers have a
/// second round for it.
#[test]
fn moves_that_stores_cancel_are_rarely_asked_for() {
    let mut cluster = cluster(2, 7, 1);
    let before = cluster.arrivals;
    for round in 0..40 {
        write(&mut cluster, 1, 0, 1000 * round);
        let calls = begin_barrier(&mut cluster, 0);
        for step in 1.. {
            write_here(&mut cluster, 1, 0, 1000 * round + step);
            if !cluster.step() {
                break;
            }
        }
        cluster.all_succeeded(calls);
    }
    assert_eq!(statistics(&cluster, 1).homes_moved, 0);
    // At the first barrier, and at one after two changes.
    let rounds = (cluster.arrivals - before) / 2;
    assert!((41..=42).contains(&rounds), "{rounds}");
}

/// COH-11.1: a node does not ask for pages of an array that it has dropped.
#[test]
fn pages_of_a_dropped_array_stay() {
    let mut cluster = cluster(2, 1, 1);
    write(&mut cluster, 1, 0, 7);
    cluster.nodes[1].coherence.drop_array(0);
    barrier(&mut cluster);
    assert_eq!(statistics(&cluster, 1).homes_moved, 0);
    assert_eq!(read(&mut cluster, 0, 0), Some(7));
}

/// COH-11.5, COH-13.1: a fetch that the old home has refused waits for the end of the round. Nobody
/// owes its pages meanwhile, so the node does not ask the old home about them.
#[test]
fn nobody_is_asked_about_pages_refused_as_moved() {
    let mut refused = 0;
    for seed in seeds(0, 60) {
        let mut cluster = cluster(3, seed, 1);
        write(&mut cluster, 1, 0, 7);
        let calls = begin_barrier(&mut cluster, 0);
        let has_ended = |cluster: &Cluster, rank| statistics(cluster, rank).barriers > 0;
        while !has_ended(&cluster, 0) || !has_ended(&cluster, 1) {
            assert!(cluster.step(), "seed {seed}");
        }
        if has_ended(&cluster, 2) {
            continue;
        }
        cluster.network.held = Some((0, 2, DEPART));
        let token = cluster.call(2, |c, token, m| c.touch(0, 0..1, Access::Read, token, m));
        let mut clock = Time::default();
        for _ in 0..VAIN_QUESTIONS_MAX + 3 {
            cluster.steps(600);
            clock += FAILURE_TIME;
            cluster.nodes[2].coherence.ask(clock, FAILURE_TIME);
            cluster.collect(2);
        }
        assert!(!has_ended(&cluster, 2), "seed {seed}");
        cluster.network.held = None;
        cluster.run_until_quiet();
        cluster.all_succeeded(calls);
        cluster.all_succeeded([(2, token)]);
        assert_eq!(cluster.nodes[2].contradictions, [], "seed {seed}");
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
}

/// COH-3.7: an answer of an old home may be read again from memory when its page has moved. So the
/// page is not received directly there when the old home fetches it.
#[test]
fn page_that_an_answer_reads_is_not_received_directly() {
    let (mut fetched, mut placed) = (0, 0);
    for seed in seeds(0, 60) {
        let mut cluster = cluster(3, seed, 1);
        write(&mut cluster, 1, 0, 7);
        cluster.network.held = Some((0, 2, PAGES));
        let held = cluster.call(2, |c, token, m| c.touch(0, 0..1, Access::Read, token, m));
        cluster.steps(60);
        let calls = begin_barrier(&mut cluster, 2000);
        cluster.all_succeeded(calls);
        write_here(&mut cluster, 1, 0, 8);
        let calls = begin_barrier(&mut cluster, 2000);
        cluster.all_succeeded(calls);
        fetched += statistics(&cluster, 1).homes_moved;
        let token = cluster.call(0, |c, token, m| c.touch(0, 0..1, Access::Read, token, m));
        cluster.steps(2000);
        cluster.all_succeeded([(0, token)]);
        assert_eq!(cluster.nodes[0].machine.load(0, 0, 8), Some(8), "seed {seed}");
        cluster.network.held = None;
        cluster.run_until_quiet();
        cluster.all_succeeded([(2, held)]);
        placed += cluster.network.placed;
        assert_eq!(read(&mut cluster, 2, 0), Some(8), "seed {seed}");
    }
    assert!(fetched == 60 && placed > 20, "{fetched} fetched, {placed} placed");
}
