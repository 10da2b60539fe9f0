//! Barriers of teams (COH-15), in any order of messages.

use crate::cluster::Cluster;
use crate::cluster::threads::{Cell, Op, Thread};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Homes;

const SEEDS: u64 = 150;

/// Runs the programs of the nodes from 0 on.
fn run(nodes: u32, seed: u64, programs: Vec<Vec<Op>>) -> Vec<Vec<u64>> {
    let mut cluster = Cluster::new(nodes, seed);
    cluster.takes_guards = seed % 4 == 1;
    let homes = if seed.is_multiple_of(2) { Homes::Cyclic { pages: 1 } } else { Homes::Block };
    cluster.declare("x", 3, homes);
    cluster.run((0..).zip(programs).map(|(node, ops)| Thread::new(node, ops)).collect())
}

fn team(number: usize, members: &[Rank]) -> Op {
    Op::TeamBarrier(number, members.to_vec())
}

/// COH-15.1, COH-15.2.
#[test]
fn writes_before_a_team_barrier_are_seen_after_it() {
    for seed in 0..SEEDS {
        let (x, y) = Cell::pair(seed);
        let pair = [0, 2];
        // Each has a copy of the old page, so that forgetting to invalidate it would show.
        let side = |mine, theirs| {
            vec![
                Op::Load(theirs),
                team(1, &pair),
                Op::Store(mine, 1),
                team(2, &pair),
                Op::Expect(theirs, 1),
                team(3, &pair),
                Op::Store(mine, 2),
                team(4, &pair),
                Op::Expect(theirs, 2),
                Op::Barrier,
                Op::Expect(mine, 2),
            ]
        };
        let idle = || vec![Op::Barrier, Op::Expect(x, 2), Op::Expect(y, 2)];
        run(4, seed, vec![side(x, y), idle(), side(y, x), idle()]);
    }
}

/// COH-15.2: what a member knows of a third node is told, too.
#[test]
fn team_barriers_and_locks_are_transitive() {
    for seed in 0..SEEDS {
        let (x, y) = Cell::pair(seed);
        let z = Cell::word(2, 100);
        let first = vec![Op::Store(x, 7), team(1, &[0, 1]), Op::Barrier];
        let second = vec![
            team(1, &[0, 1]),
            Op::Store(y, 8),
            Op::Lock(1),
            Op::Store(z, 1),
            Op::Unlock(1),
            Op::Barrier,
        ];
        let third = vec![
            Op::Load(x),
            Op::Lock(1),
            Op::Load(z),
            Op::Unlock(1),
            Op::UnlessGo(1, 1),
            team(2, &[2, 3]),
            Op::Barrier,
        ];
        let fourth =
            vec![Op::Load(x), team(2, &[2, 3]), Op::Expect(x, 7), Op::Expect(y, 8), Op::Barrier];
        run(4, seed, vec![first, second, third, fourth]);
    }
}

/// COH-15.2: a member may still wait for the departure that another one has seen.
#[test]
fn a_team_barrier_after_a_barrier_waits_for_the_departure() {
    for seed in 0..SEEDS {
        let (x, y) = Cell::pair(seed);
        let side = |mine, theirs| {
            let mut ops = vec![Op::Load(theirs)];
            for n in 0..4 {
                ops.extend([
                    Op::Store(mine, 2 * n + 1),
                    Op::Barrier,
                    Op::Expect(theirs, 2 * n + 1),
                    team(2 * n as usize, &[0, 1]),
                    Op::Store(mine, 2 * n + 2),
                    team(2 * n as usize + 1, &[0, 1]),
                    Op::Expect(theirs, 2 * n + 2),
                    Op::Barrier,
                ]);
            }
            ops
        };
        let third = vec![Op::Barrier; 8];
        run(3, seed, vec![side(x, y), side(y, x), third]);
    }
}

/// COH-15.1: a member's words come from another process.
#[test]
fn what_makes_no_sense_is_refused() {
    let mut cluster = Cluster::new(2, 1);
    cluster.declare("x", 3, Homes::Block);
    let told = cluster.call(0, |c, token, pages| c.release_to_team(token, pages));
    let Some(Ok(oikaze_protocol::coherence::Value::Knowledge(sound))) =
        cluster.nodes[0].outcomes.remove(&told)
    else {
        panic!("nothing was written")
    };
    let mut late = sound.clone();
    late[0] = 9;
    for body in [vec![], vec![0xff; 40], sound[..sound.len() - 1].to_vec(), late] {
        let token = cluster.call(1, |c, token, pages| c.acquire_from_team(&[body], token, pages));
        let outcome = cluster.nodes[1].outcomes.remove(&token).unwrap();
        assert!(outcome.unwrap_err().to_string().contains("do not exist"));
    }
    let token = cluster.call(1, |c, token, pages| c.acquire_from_team(&[sound], token, pages));
    assert!(cluster.nodes[1].outcomes.remove(&token).unwrap().is_ok());
}
