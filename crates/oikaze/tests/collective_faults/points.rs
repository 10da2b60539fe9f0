//! A node that is killed or stopped at each point of a barrier, of a collective of short values, of
//! one whose values go in pieces, and of a lock, in the memory of a machine.

use super::{all_said, run, say};
use crate::ways::ExchangeWay;
use oikaze::prelude::*;
use oikaze_os::shm::signal_at_point;
use rustix::process::Signal;

const NODES: u32 = 3;
/// Elements of each rank: a short value, and a value in as many pieces as a rank has buffers.
const LENS: [usize; 2] = [1, 4096];

/// Name of a call of all nodes, and the call in a round, which returns whether its values are
/// right.
type Call = (&'static str, fn(&Job, u64) -> oikaze::Result<bool>);

const CALLS: &[Call] = &[
    ("barrier", |job, _| job.barrier().map(|()| true)),
    ("all_reduce of a short value", |job, round| all_reduce(job, LENS[0], round)),
    ("all_reduce in pieces", |job, round| all_reduce(job, LENS[1], round)),
    ("broadcast in pieces", |job, round| {
        let root = round as u32 % NODES;
        let mut values = values(job.rank(), LENS[1], round);
        job.broadcast_into(root, &mut values)?;
        Ok(values == self::values(root, LENS[1], round))
    }),
    ("lock", |job, round| {
        // One that had no entry yet, and one for which the others wait.
        for lock in [round, 0] {
            job.lock(lock)?.release()?;
        }
        Ok(true)
    }),
];

/// Returns the values of a rank, which differ from those of other ranks and rounds.
fn values(rank: u32, len: usize, round: u64) -> Vec<u64> {
    (0..len as u64).map(|at| at << 32 | round << 8 | u64::from(rank)).collect()
}

fn all_reduce(job: &Job, len: usize, round: u64) -> oikaze::Result<bool> {
    let mut sums = values(job.rank(), len, round);
    job.all_reduce_into(&mut sums, Sum)?;
    let of_ranks: Vec<_> = (0..NODES).map(|rank| values(rank, len, round)).collect();
    let is_right =
        |(at, sum): (usize, &u64)| *sum == of_ranks.iter().map(|one| one[at]).sum::<u64>();
    Ok(sums.iter().enumerate().all(is_right))
}

/// COLL-3.4, COH-6.16, COH-8.2: the others get the right values or the error of a lost node, at
/// each point at which the node is killed.
#[test]
fn node_killed_at_any_point_in_memory_is_lost_to_the_others() {
    for (call, (name, _)) in CALLS.iter().enumerate() {
        let points = (1..).take_while(|point| is_killed(call, *point)).count();
        assert!(points > 1, "{name}: it has {points} points");
    }
}

/// Kills a node at a point of a call. Returns `false` if the call has ended before.
fn is_killed(call: usize, point: u64) -> bool {
    let victim = (point % u64::from(NODES)) as usize;
    let mut ended = run(NODES, &format!("kill {call} {point}"), ExchangeWay::Memory);
    let is_dead = !ended[victim].status.success();
    let lost = format!("lost {victim}");
    let line = if is_dead { lost.as_str() } else { "all is well" };
    if is_dead {
        ended.remove(victim);
    }
    assert!(ended.iter().all(|node| node.status.success()), "{call} {point}: {ended:#?}");
    all_said(&ended, &[&[line]]);
    is_dead
}

pub fn play_kill(argument: &str) {
    let (call, point) = argument.split_once(' ').unwrap();
    let (name, call) = CALLS[call.parse::<usize>().unwrap()];
    let point: u64 = point.parse().unwrap();
    let victim = (point % u64::from(NODES)) as u32;
    let job = oikaze::join().unwrap();
    let in_round = |round| {
        if job.rank() == victim {
            signal_at_point(if round == 1 { point } else { 0 }, Signal::KILL);
        }
        assert!(call(&job, round)?, "{name}: round {round}");
        Ok(())
    };
    // All nodes have joined before one dies, which may be before the others have ended the call
    // before. Nodes that only read need no dead reader before a call that needs all.
    let ended = job.barrier().and_then(|()| (0..3).try_for_each(in_round));
    match ended.and_then(|()| job.barrier()) {
        Ok(()) => say("all is well"),
        Err(error) => {
            assert_eq!(error.lost_peer(), Some(victim), "{name}: {error}");
            let survivors = job.shrink().unwrap();
            assert_eq!(survivors.all_reduce(1_u32, Sum).unwrap(), NODES - 1);
            say(&format!("lost {victim}"));
        }
    }
    job.leave().unwrap();
}

/// COLL-7.2, COLL-7.7, COH-6.15: a node that is stopped at any point, and goes on later, keeps no
/// value from the others and changes none.
#[test]
fn node_stopped_at_any_point_in_memory_gives_right_values_later() {
    let ended = run(NODES, "stop", ExchangeWay::Memory);
    let lines: Vec<_> = CALLS.iter().map(|(name, _)| [*name]).collect();
    all_said(&ended, &lines.iter().map(|line| &line[..]).collect::<Vec<_>>());
}

pub fn play_stop() {
    let job = oikaze::join().unwrap();
    for (name, call) in CALLS {
        for victim in 0..NODES {
            let is_stopped = |point| {
                if job.rank() == victim {
                    signal_at_point(point, Signal::STOP);
                }
                assert!(call(&job, point).unwrap(), "{name}: point {point} of node {victim}");
                let left = signal_at_point(0, Signal::STOP);
                job.broadcast(victim, &[u32::from(left == 0)]).unwrap() == [1]
            };
            let points = (1..).take_while(|point| is_stopped(*point)).count();
            assert!(points > 1, "{name}: it has {points} points");
        }
        say(name);
    }
    job.leave().unwrap();
}
