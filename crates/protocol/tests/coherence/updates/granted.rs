//! Changes that the grant of a lock brings, and what it tells (COH-7.4, COH-10.17).

use super::{
    DEPART, all_at, ask_and_hold_back, barrier, fill, guarded, hold_back, holds, pages, post, read,
    statistics,
};
use crate::cluster::{Cluster, Node, programs};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, CoherenceError, Ownership, Value};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::Token;

fn lock(cluster: &mut Cluster, rank: Rank, lock: u64) {
    cluster.succeeds(rank, |c, token, m| c.lock(lock, token, m));
}

fn unlock(cluster: &mut Cluster, rank: Rank, lock: u64) {
    cluster.succeeds(rank, |c, token, m| c.unlock(lock, token, m));
}

/// Stores a word of page 0 without a guard.
fn store(cluster: &mut Cluster, rank: Rank, at: usize, value: u64) {
    while !cluster.nodes[rank as usize].machine.store(0, at, 8, value) {
        cluster.succeeds(rank, |c, token, m| c.touch(0, 0..1, Access::Write, token, m));
    }
}

/// COH-10.21: an answer shows bytes of the holder's interval. It is settled before the holder
/// changes them back and gives the lock back.
#[test]
fn bytes_that_a_late_answer_has_shown_are_not_kept_by_a_grant() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(2, seed);
        cluster.declare("p", 1, all_at(0, 1));
        store(&mut cluster, 0, 40, 1);
        let (token, answer) = ask_and_hold_back(&mut cluster);
        lock(&mut cluster, 0, 2);
        store(&mut cluster, 0, 24, 7);
        post(&mut cluster, 0, answer);
        cluster.run_until_quiet();
        assert_eq!(cluster.take(1, token), Some(Ok(Value::None)));
        store(&mut cluster, 0, 24, 0);
        store(&mut cluster, 0, 32, 5);
        unlock(&mut cluster, 0, 2);
        lock(&mut cluster, 1, 2);
        assert_eq!([24, 32].map(|at| read(&mut cluster, 1, at)), [0, 5], "seed {seed}");
    }
}

/// COH-3.5: a home names what it writes after a late interval, which a lock may bring to others.
#[test]
fn a_grant_brings_no_bytes_from_before_what_a_home_wrote_later() {
    (0..40).for_each(programs::late_section_before_a_home);
}

/// COH-10.17: guards tell what the home itself has written, if they own it.
#[test]
fn guarded_pages_of_the_home_come_with_the_lock() {
    for (ownership, granted) in [(Ownership::Owned, 1), (Ownership::Merged, 0)] {
        let mut cluster = guarded(2, 1, all_at(0, 1), 5);
        fill(&mut cluster, 0, pages(0..1), 3, Ownership::Owned, &[]);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 1, 8), 3);
        lock(&mut cluster, 0, 2);
        fill(&mut cluster, 0, 8..16, 4, ownership, &[]);
        unlock(&mut cluster, 0, 2);
        lock(&mut cluster, 1, 2);
        assert_eq!(holds(&cluster, 1, 0..1), granted == 1);
        assert_eq!(statistics(&cluster, 1).granted_pages, granted);
        assert_eq!([0, 8].map(|at| read(&mut cluster, 1, at)), [3, 4]);
    }
}

/// COH-10.17: a holder keeps as much of many small changes as there is room for.
#[test]
fn a_holder_that_changes_a_little_of_many_pages_passes_some_of_them_on() {
    const MANY: u64 = 2500;
    let mut cluster = guarded(3, MANY, all_at(0, MANY), 5);
    for rank in [1, 2] {
        cluster.succeeds(rank, |c, token, m| c.touch(0, 0..MANY, Access::Read, token, m));
    }
    lock(&mut cluster, 1, 3);
    for page in 0..MANY {
        let at = page * PAGE as u64;
        fill(&mut cluster, 1, at..at + 8, 7, Ownership::Owned, &[]);
    }
    unlock(&mut cluster, 1, 3);
    lock(&mut cluster, 2, 3);
    let granted = statistics(&cluster, 2).granted_pages;
    assert!((1000..MANY).contains(&granted), "{granted}");
    for page in [0, granted - 1, granted, MANY - 1] {
        assert_eq!(read(&mut cluster, 2, page * PAGE as u64), 7, "page {page}");
    }
}

/// COH-7.4: a node that fails a lock, because a death may have ended the collective that its grant
/// names, hands on what the grant tells.
#[test]
fn a_grant_that_cannot_be_taken_is_handed_on_whole() {
    for seed in 0..40 {
        let is_queued = seed % 2 == 0;
        let mut cluster = Cluster::new(5, seed);
        cluster.declare("p", 1, all_at(0, 1));
        store(&mut cluster, 0, 8, 5);
        barrier(&mut cluster);
        assert_eq!(read(&mut cluster, 3, 8), 5);
        lock(&mut cluster, 1, 5);
        let failing = cluster.call(2, |c, token, m| c.lock(5, token, m));
        cluster.run_until_quiet();
        let ask = |cluster: &mut Cluster| cluster.call(3, |c, token, m| c.lock(5, token, m));
        let queued = is_queued.then(|| ask(&mut cluster));
        cluster.run_until_quiet();
        (1..5).for_each(|rank| {
            cluster.call(rank, |c, token, m| c.barrier(token, m));
        });
        cluster.run_until_quiet();
        let Node { coherence, machine, .. } = &mut cluster.nodes[0];
        coherence.barrier(Token(1 << 32), machine);
        let departures = hold_back(&mut cluster, 0, DEPART);
        let in_time = departures.into_iter().filter(|(to, _)| *to != 2).collect();
        post(&mut cluster, 0, in_time);
        cluster.run_until_quiet();
        store(&mut cluster, 1, 8, 7);
        unlock(&mut cluster, 1, 5);
        assert_eq!(cluster.take(2, failing), None, "seed {seed}: its departure is late");
        cluster.kill(4);
        cluster.run_until_quiet();
        let failed = cluster.take(2, failing);
        let is_failed = matches!(failed, Some(Err(CoherenceError::NodeDead { rank: 4, .. })));
        assert!(is_failed, "seed {seed}: {failed:?}");
        let next = queued.unwrap_or_else(|| ask(&mut cluster));
        cluster.run_until_quiet();
        cluster.all_succeeded([(3, next)]);
        assert_eq!(read(&mut cluster, 3, 8), 7, "seed {seed}");
    }
}

/// COH-7.4, COH-7.5: a thread takes over the request of one that has stopped waiting, although the
/// grant has come, and waits for a departure. The lock is not given back in between.
#[test]
fn a_request_whose_grant_waits_for_a_departure_is_taken_over() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(3, seed);
        lock(&mut cluster, 1, 3);
        let stopped = cluster.call(2, |c, token, m| c.lock(3, token, m));
        cluster.run_until_quiet();
        let barriers: Vec<(u32, Token)> = (0..3)
            .map(|rank| (rank, cluster.call(rank, |c, token, m| c.barrier(token, m))))
            .collect();
        cluster.network.held = Some((0, 2, DEPART));
        cluster.steps(400);
        cluster.all_succeeded(barriers[..2].iter().copied());
        let unlocked = cluster.call(1, |c, token, m| c.unlock(3, token, m));
        cluster.steps(400);
        cluster.all_succeeded([(1, unlocked)]);
        assert_eq!(cluster.take(2, stopped), None, "seed {seed}: its departure is late");
        cluster.call(2, |c, _, m| c.cancel(stopped, m));
        let other = cluster.call(0, |c, token, m| c.lock(3, token, m));
        cluster.steps(400);
        let again = cluster.call(2, |c, token, m| c.lock(3, token, m));
        cluster.network.held = None;
        cluster.run_until_quiet();
        cluster.all_succeeded([barriers[2], (2, again)]);
        assert_eq!((cluster.take(2, stopped), cluster.take(0, other)), (None, None), "seed {seed}");
        unlock(&mut cluster, 2, 3);
        cluster.all_succeeded([(0, other)]);
    }
}

/// COH-10.17: a grant has one byte of what later holders have overwritten. Nodes that pass a page
/// on do not send the changes of all others with it, and their copies stay valid.
#[test]
fn a_grant_brings_overwritten_bytes_once() {
    const GRANT: u8 = 7;
    const TURNS: u64 = 12;
    for seed in 0..20 {
        let mut cluster = guarded(4, 1, all_at(3, 1), seed);
        for rank in 0..3 {
            assert_eq!(read(&mut cluster, rank, 8), 0);
        }
        for turn in 0..TURNS {
            let rank = (turn % 3) as Rank;
            lock(&mut cluster, rank, 2);
            assert!(holds(&cluster, rank, 0..1), "seed {seed}, turn {turn}");
            assert_eq!(read(&mut cluster, rank, 8), turn, "seed {seed}");
            assert_eq!(read(&mut cluster, rank, 4080), turn, "seed {seed}");
            fill(&mut cluster, rank, pages(0..1), turn + 1, Ownership::Owned, &[]);
            unlock(&mut cluster, rank, 2);
        }
        let granted: u64 = (0..4).filter_map(|rank| cluster.posted.get(&(GRANT, rank))).sum();
        assert!(granted < TURNS * (PAGE as u64 + 200), "seed {seed}: {granted} bytes");
    }
}
