//! Ranks that are killed, or abort the job, in each kind of collective.

use super::calls::{ALL, Call};
use super::{all_said, die, run, say, say_error};
use crate::ways::ExchangeWay::{self, TwoMachines};
use crate::ways::{ways, ways_of_part};
use oikaze::prelude::*;

/// Nodes of a job, all but two of which are killed.
const NODES: u32 = 6;
const KILLED: usize = NODES as usize - 2;
/// Elements of a rank: a few, and so many that they take several rounds and all credit.
const LENS: [usize; 2] = [3, 600_000];

/// Collectives of one job, in each of which a rank is killed.
fn part(number: usize) -> impl Iterator<Item = &'static Call> {
    ALL.iter().skip(number * KILLED).take(KILLED)
}

/// COLL-3.4, COLL-6.1, COLL-6.3: the others get an error that names the lost node. They make a team
/// of their own, in which the same collective works.
#[test]
fn survivors_of_a_death_in_any_collective_go_on_in_a_new_team() {
    for number in 0..ALL.len().div_ceil(KILLED) {
        for way in ways_of_part(number) {
            check_deaths(number, way);
        }
    }
}

fn check_deaths(number: usize, way: ExchangeWay) {
    let ended = run(NODES, &format!("deaths {number}"), way);
    let killed = part(number).count();
    let dead = ended.iter().filter(|node| !node.status.success()).count();
    assert_eq!(dead, killed, "{way:?}: {ended:#?}");
    let lines: Vec<_> = (0..killed).map(|victim| format!("lost {victim}")).collect();
    let lines: Vec<_> = part(number).zip(&lines).map(|((name, _), line)| [*name, line]).collect();
    all_said(&ended, &lines.iter().map(|line| &line[..]).collect::<Vec<_>>());
}

pub fn play(number: &str) {
    let number: usize = number.parse().unwrap();
    let job = oikaze::join().unwrap();
    let mut team = job.shrink().unwrap();
    assert_eq!(team.size(), NODES);
    for (victim, (name, begin)) in (0..).zip(part(number)) {
        let len = LENS[victim as usize % 2];
        let_die(&job, &team, victim);
        let failed = if job.rank() == victim {
            // Half of them die before the call, the others in the middle of it.
            if *name != "split" && victim < 2 {
                drop(begin(&team, len));
            }
            die();
        } else {
            let right = begin(&team, len)();
            // A rank whose part was done gets the error from its next collective.
            right.and_then(|right| {
                assert!(right, "{name}");
                team.all_reduce(1_u32, Sum)
            })
        };
        let error = failed.expect_err("a rank of the team is dead");
        assert_eq!(error.lost_peer(), Some(victim), "{name}: {error}");
        assert!(error.to_string().contains(&format!("node {victim}")), "{error}");
        // The old team stays failed.
        let old = team.split(Some(0), 0).map(drop).unwrap_err();
        assert_eq!(old.lost_peer(), Some(victim), "{old}");
        team = team.shrink().unwrap();
        let living: Vec<u32> = (victim + 1..NODES).collect();
        assert_eq!(team.ranks(), living);
        assert!(begin(&team, len)().unwrap(), "{name} of the survivors");
        say(&format!("{name}: lost {victim}"));
    }
    // A team that was made of the first one, and not of a later one, has the same ranks.
    assert_eq!(job.shrink().unwrap().ranks(), team.ranks());
    // Parcels that a victim has not read are not operations that have failed unseen.
    job.leave().unwrap();
}

/// Waits until no rank of the team needs the victim for an earlier collective.
fn let_die(job: &Job, team: &Team, victim: u32) {
    if job.rank() == victim {
        for rank in team.ranks().iter().filter(|rank| **rank != victim) {
            job.receive(Some(*rank)).unwrap();
        }
    } else {
        // The victim may be dead before it acknowledges this.
        let _ = job.peer(victim).unwrap().send(Class::Ordered, 0, b"done").wait();
    }
}

/// END-3.1: an abort ends all collectives of all ranks, with the reason.
#[test]
fn abort_by_a_rank_ends_every_collective_with_the_reason() {
    for way in ways(TwoMachines) {
        let ended = run(3, "abort", way);
        let lines = vec![&["out of fuel"][..]; ALL.len() + 1];
        all_said(&ended[..2], &lines);
    }
}

pub fn play_abort() {
    let job = oikaze::join().unwrap();
    let team = job.shrink().unwrap();
    if job.rank() == 2 {
        job.receive(Some(0)).unwrap();
        job.receive(Some(1)).unwrap();
        job.end_with_reason("out of fuel");
        return;
    }
    let calls = ALL.iter().filter(|(name, _)| *name != "split");
    let waits: Vec<_> = calls.map(|(_, begin)| begin(&team, 1000)).collect();
    // The abort may be known before the acknowledgement.
    let _ = job.peer(2).unwrap().send(Class::Ordered, 0, b"all have begun").wait();
    // Collectives that need nothing of rank 2 may have ended well.
    for wait in waits {
        match wait() {
            Ok(_) => say("out of fuel came later"),
            error => say_error(error),
        }
    }
    say_error(team.all_reduce(1, Sum));
    say_error(job.shrink());
}
