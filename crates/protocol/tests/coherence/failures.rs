//! Dead nodes (COH-8): no wait lasts for ever, and every error names the dead node.

use crate::cluster::locked::{
    ask_in_a_loop, pass_and_die, read_beside_abandoned, read_locks, run, try_locks,
};
use crate::cluster::programs::{PAGES, homes, program};
use crate::cluster::threads::{self, Cell, Op, Thread};
use crate::cluster::{Cluster, seeds};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, CoherenceError, Homes, Value};
use oikaze_protocol::random::Random;

fn names(error: &CoherenceError, dead: Rank) -> bool {
    matches!(error, CoherenceError::NodeDead { rank, .. } | CoherenceError::PageLost { rank, .. } if *rank == dead)
}

/// COH-8.1, 8.2.
#[test]
fn a_barrier_fails_everywhere_whoever_died() {
    for seed in 0..90 {
        let (nodes, dead) = (3, (seed % 3) as Rank);
        let mut cluster = Cluster::with_array(nodes, seed, 3);
        let mut tokens = vec![];
        for rank in 0..nodes {
            if rank != dead || seed % 2 == 0 {
                tokens.push((rank, cluster.call(rank, |c, token, m| c.barrier(token, m))));
            }
            cluster.steps(seed % 5);
        }
        cluster.kill(dead);
        cluster.run_until_quiet();
        for (rank, token) in tokens.into_iter().filter(|(rank, _)| *rank != dead) {
            match cluster.take(rank, token) {
                // The dead node had arrived at the barrier before it died.
                Some(Ok(Value::None)) if seed % 2 == 0 => {}
                Some(Err(error)) => assert!(names(&error, dead), "seed {seed}: {error}"),
                other => panic!("seed {seed}: node {rank}: {other:?}"),
            }
            let later = cluster.call(rank, |c, token, m| c.barrier(token, m));
            let error = cluster.take(rank, later).unwrap().unwrap_err();
            assert!(names(&error, dead), "{error}");
            assert!(error.to_string().starts_with("barrier: node"), "{error}");
        }
    }
}

/// COH-8.2: nodes that end because another one has died are not taken for the cause.
#[test]
fn the_first_death_is_named_whoever_ends_after_it() {
    for seed in 0..60 {
        let (first, then) = if seed % 2 == 0 { (2, 1) } else { (1, 2) };
        let mut cluster = Cluster::with_array(4, seed, 3);
        cluster.kill(first);
        cluster.run_until_quiet();
        // A diff to a home that dies before the diff arrives is lost, too.
        let store = Op::Store(Cell::word(then as usize - 1, 0), 7);
        cluster.run(vec![Thread::new(0, vec![store])]);
        let waiting = cluster.call(0, |c, token, m| c.barrier(token, m));
        cluster.steps(seed % 7);
        cluster.kill(then);
        cluster.run_until_quiet();
        for rank in [0, 3] {
            let later = cluster.call(rank, |c, token, m| c.barrier(token, m));
            let tokens = if rank == 0 { vec![waiting, later] } else { vec![later] };
            for token in tokens {
                let error = cluster.take(rank, token).unwrap().unwrap_err();
                assert!(names(&error, first), "seed {seed}: {error}");
            }
        }
    }
}

/// COH-8.3: a load from a dead home goes on with the last bytes, and the next synchronisation names
/// array and page (COH-3.8).
#[test]
fn a_lost_page_is_named_at_the_next_synchronisation() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("field", 3, Homes::Block);
        let first = Thread::new(0, vec![Op::Load(Cell::word(2, 0)), Op::Barrier]);
        let rest = (1..3).map(|node| {
            Thread::new(node, vec![Op::Store(Cell::word(2, node as usize), 5), Op::Barrier])
        });
        // A race on purpose: node 0 has an old copy, invalid after the barrier.
        cluster.run([first].into_iter().chain(rest).collect());
        cluster.kill(2);
        let faults_first = seed % 2 == 0;
        if !faults_first {
            cluster.run_until_quiet();
        }
        cluster.run(vec![Thread::new(
            0,
            vec![Op::Load(Cell::word(2, 0)), Op::Store(Cell::word(2, 1), 1)],
        )]);
        let token = cluster.call(0, |c, token, m| c.lock(0, token, m));
        cluster.run_until_quiet();
        let error = cluster.take(0, token).unwrap().unwrap_err();
        let lost = CoherenceError::PageLost {
            doing: "lock 0".into(),
            array: "field".into(),
            page: 2,
            rank: 2,
        };
        assert_eq!(error, lost, "seed {seed}");
        let token = cluster.call(0, |c, token, m| c.barrier(token, m));
        let text = cluster.take(0, token).unwrap().unwrap_err().to_string();
        assert!(text.contains("page 2 of array \"field\"") && text.contains("node 2"), "{text}");
    }
}

/// COH-8.2.
#[test]
fn locks_of_the_dead_fail() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(3, seed);
        // Lock 1: node 1 manages it. Lock 2: node 2 holds it, node 0 manages lock 3, which node 2
        // holds as well.
        let held = [3, 4].map(|lock| cluster.call(2, |c, token, m| c.lock(lock, token, m)));
        cluster.run_until_quiet();
        held.into_iter()
            .for_each(|token| assert_eq!(cluster.take(2, token), Some(Ok(Value::None))));
        let waiting = [2, 3, 4].map(|lock| cluster.call(0, |c, token, m| c.lock(lock, token, m)));
        cluster.steps(seed % 7);
        cluster.kill(2);
        cluster.run_until_quiet();
        for (lock, token) in [2, 3, 4].into_iter().zip(waiting) {
            match cluster.take(0, token) {
                Some(Err(error)) => assert!(
                    names(&error, 2) && error.to_string().contains(&format!("lock {lock}")),
                    "{error}"
                ),
                Some(Ok(_)) if lock == 2 => {} // its manager granted it before it died
                other => panic!("seed {seed}: lock {lock}: {other:?}"),
            }
        }
        // A lock that needs no dead node works.
        cluster.succeeds(0, |c, token, m| c.lock(7, token, m));
    }
}

/// COH-8.1: two nodes lose only each other. The third node believes one of them, or both, that the
/// other is dead. Every wait ends.
#[test]
fn a_node_that_is_taken_for_dead_hears_of_it() {
    for seed in 0..40 {
        let (asks_first, at_once) = (seed % 2 == 0, seed % 4 < 2);
        let mut cluster = Cluster::new(3, seed);
        let ask =
            |cluster: &mut Cluster, rank| cluster.call(rank, |c, token, m| c.lock(2, token, m));
        let held = ask(&mut cluster, 2);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(2, held), Some(Ok(Value::None)));
        let early = asks_first.then(|| [0, 1].map(|rank| ask(&mut cluster, rank)));
        for (finder, lost) in [(0, 1), (1, 0)] {
            cluster.call(finder, |c, _, m| c.node_died(lost, m));
            cluster.network.drop_from(0, 1);
            cluster.network.drop_from(1, 0);
            if !at_once {
                cluster.run_until_quiet();
            }
        }
        cluster.run_until_quiet();
        let waiting = early.unwrap_or_else(|| [0, 1].map(|rank| ask(&mut cluster, rank)));
        cluster.call(2, |c, token, m| c.unlock(2, token, m));
        cluster.run_until_quiet();
        for (rank, token) in (0..).zip(waiting) {
            match cluster.take(rank, token) {
                Some(Ok(Value::None)) => {}
                Some(Err(error)) => assert!(names(&error, 2), "seed {seed}: {error}"),
                other => panic!("seed {seed}: node {rank}: {other:?}"),
            }
        }
    }
}

/// COH-8.2: no node has passed a collective that failed (COH-7.4), whichever nodes had arrived at
/// it.
#[test]
fn locks_between_the_living_work_after_a_collective_has_failed() {
    for seed in 0..40 {
        let mut cluster = Cluster::with_array(4, seed, 4);
        let arrived = [0, 1].map(|rank| cluster.call(rank, |c, token, m| c.barrier(token, m)));
        cluster.run_until_quiet();
        cluster.kill(3);
        cluster.run_until_quiet();
        for (rank, token) in (0..).zip(arrived) {
            assert!(names(&cluster.take(rank, token).unwrap().unwrap_err(), 3));
        }
        for (rank, lock) in [(2, 1), (1, 2), (2, 0), (0, 1)] {
            cluster.succeeds(rank, |c, token, m| c.lock(lock, token, m));
            cluster.succeeds(rank, |c, token, m| c.unlock(lock, token, m));
        }
    }
}

/// Random programs in which a node dies at a random moment. All threads of other nodes end, and
/// their errors name the dead node.
#[test]
fn nobody_hangs_when_a_node_dies() {
    for seed in seeds(0, 1000) {
        let nodes = 2 + (seed % 4) as u32;
        let mut cluster = Cluster::new(nodes, seed);
        let mut random = Random::new(seed ^ 0x77);
        for name in ["a", "b", "c"] {
            let placed = homes(&mut random, nodes, PAGES);
            cluster.declare(name, PAGES, placed);
        }
        let dead = random.below(nodes as usize) as Rank;
        let mut all = program(&mut random, nodes, 1);
        // Check only that the program ends, because a load after the death may return any value.
        all.iter_mut().for_each(Thread::forget_expectations);
        let moment = random.below(1500);
        let mut idle = 0;
        for step in 0.. {
            if step == moment {
                cluster.kill(dead);
            }
            let moved = if cluster.random.chance(0.5) {
                cluster.step()
            } else {
                threads::step_any(&mut cluster, &mut all, dead)
            };
            idle = if moved { 0 } else { idle + 1 };
            if idle > 60 && step > moment {
                break;
            }
        }
        for thread in all.iter().filter(|thread| thread.node != dead) {
            assert!(thread.has_ended(), "seed {seed}: {}", thread.describe());
            assert!(
                thread.failed.as_ref().is_none_or(|error| names(error, dead)),
                "seed {seed}: {:?}",
                thread.failed
            );
        }
    }
}

/// COH-7.5: a lock whose requester has cancelled goes on to the next requester.
#[test]
fn a_cancelled_lock_is_given_back() {
    for seed in 0..40 {
        let mut cluster = Cluster::with_array(3, seed, 3);
        let first = cluster.call(0, |c, token, m| c.lock(5, token, m));
        cluster.run_until_quiet();
        assert!(cluster.take(0, first).is_some());
        let second = cluster.call(1, |c, token, m| c.lock(5, token, m));
        if seed % 2 == 0 {
            cluster.run_until_quiet();
        }
        cluster.call(1, |c, _, m| c.cancel(second, m));
        let third = cluster.call(2, |c, token, m| c.lock(5, token, m));
        let unlock = cluster.call(0, |c, token, m| c.unlock(5, token, m));
        cluster.run_until_quiet();
        assert!(cluster.take(0, unlock).is_some());
        assert!(cluster.take(1, second).is_none());
        assert_eq!(cluster.take(2, third), Some(Ok(Value::None)));
    }
}

/// COH-7.1, COH-7.5, COH-7.9 to 7.11, COH-8.2: a lock has one holder, and every wait ends.
#[test]
fn random_programs_of_locks_have_one_holder_and_end() {
    let passed: u64 = seeds(0, 1500).map(run).sum();
    assert!(passed > 1000, "{passed} locks were passed on directly");
}

/// COH-7.5, COH-7.12: a request that tries waits for nobody, and leaves no lock behind.
#[test]
fn a_request_that_tries_does_not_wait() {
    seeds(0, 80).for_each(try_locks);
}

/// COH-7.5: a thread that asks in a loop, each time with a time limit, has one place in the queue.
#[test]
fn a_request_that_was_abandoned_is_used_again() {
    seeds(0, 40).for_each(ask_in_a_loop);
}

/// COH-7.15: nodes that read do not wait for a request that writes and that nobody waits for.
#[test]
fn requests_that_read_pass_by_an_abandoned_one() {
    seeds(0, 40).for_each(read_beside_abandoned);
}

/// COH-7.14: nodes read at once, and those that write are alone.
#[test]
fn requests_that_read_share_a_lock() {
    seeds(0, 80).for_each(read_locks);
}

/// COH-7.11: the manager asks who has a lock whose holder or giver has died.
#[test]
fn a_lock_that_was_passed_before_a_death_goes_on() {
    let passed = seeds(0, 200).filter(|seed| pass_and_die(*seed)).count();
    assert!((20..180).contains(&passed), "the grant has come {passed} times");
}

/// A touch of pages of a dead node ends too.
#[test]
fn a_touch_of_a_dead_home_ends() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed);
        cluster.declare("p", 90, Homes::Cyclic { pages: 7 });
        let token = cluster.call(0, |c, token, m| c.touch(0, 0..90, Access::Write, token, m));
        cluster.steps(seed);
        cluster.kill(1);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(0, token), Some(Ok(Value::None)), "seed {seed}");
        let token = cluster.call(0, |c, token, m| c.barrier(token, m));
        cluster.run_until_quiet();
        assert!(names(&cluster.take(0, token).unwrap().unwrap_err(), 1));
    }
}
