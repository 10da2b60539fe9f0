//! Random programs of locks, whose holders pass them on directly (COH-7.9), with threads that stop
//! waiting, and a node that dies.

use super::Cluster;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{CoherenceError, LockMode, Value};
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::Token;
use std::collections::BTreeMap;

/// Number of nodes. The first two manage the locks, and one of the others dies.
const NODES: u32 = 4;

/// Locks of the programs, which the first two nodes manage.
const LOCKS: [u64; 2] = [4, 5];

/// Nodes that have each lock, and whether they only read.
type Holders = BTreeMap<u64, Vec<(Rank, bool)>>;

/// A thread that takes locks one after another.
struct Taker {
    node: Rank,
    /// Locks to take. A thread may stop waiting for one.
    sections: Vec<(u64, LockMode, bool)>,
    asked: Option<Token>,
    holds: bool,
}

impl Taker {
    /// Takes one step. Returns `false` if the thread waits, or has ended.
    fn step(&mut self, cluster: &mut Cluster, holders: &mut Holders) -> bool {
        let Some((lock, mode, stops)) = self.sections.last().copied() else { return false };
        let Some(token) = self.asked else {
            let call = |c: &mut super::Coherence, t, m: &mut super::Machine| match self.holds {
                true => c.unlock(lock, t, m),
                false => c.lock_in_mode(lock, mode, t, m),
            };
            if self.holds {
                let all = holders.entry(lock).or_default();
                let mine = all.iter().position(|one| *one == (self.node, mode.reads));
                if let Some(at) = mine {
                    all.remove(at);
                }
            }
            self.asked = Some(cluster.call(self.node, call));
            return true;
        };
        match cluster.take(self.node, token) {
            None if stops && !self.holds && cluster.random.chance(0.1) => {
                cluster.call(self.node, |c, _, m| c.cancel(token, m));
                self.end_section();
            }
            None => return false,
            Some(Ok(Value::LockTaken)) if mode.tries && !self.holds => self.end_section(),
            Some(Ok(Value::None)) if !self.holds => {
                let dead = |rank: &Rank| !cluster.nodes[*rank as usize].alive;
                let all = holders.entry(lock).or_default();
                let excludes =
                    |(rank, reads): &&(Rank, bool)| !(dead(rank) || *reads && mode.reads);
                let other = all.iter().find(excludes).copied();
                assert_eq!(other, None, "seed {}: lock {lock} has two holders", cluster.seed);
                all.push((self.node, mode.reads));
                (self.holds, self.asked) = (true, None);
            }
            Some(Ok(_)) => self.end_section(),
            Some(Err(CoherenceError::NodeDead { rank, .. })) => {
                let dead = !cluster.nodes[rank as usize].alive;
                assert!(dead, "seed {}: node {rank} is alive", cluster.seed);
                self.end_section();
            }
            Some(Err(error)) => panic!("seed {}: {error}", cluster.seed),
        }
        true
    }

    fn end_section(&mut self) {
        self.sections.pop();
        (self.asked, self.holds) = (None, false);
    }
}

/// Runs a random program. Returns how many times a holder passed a lock on directly.
pub fn run(seed: u64) -> u64 {
    let mut cluster = Cluster::new(NODES, seed);
    let mut random = Random::new(seed ^ 0x10c5);
    let mut takers: Vec<Taker> = (0..NODES)
        .flat_map(|node| (0..1 + random.below(2)).map(move |_| node).collect::<Vec<_>>())
        .map(|node| Taker { node, sections: Vec::new(), asked: None, holds: false })
        .collect();
    for taker in &mut takers {
        let section = |random: &mut Random| {
            let mode = LockMode { tries: random.chance(0.3), reads: random.chance(0.4) };
            (random.pick(&LOCKS), mode, random.chance(0.2))
        };
        taker.sections = (0..2 + random.below(4)).map(|_| section(&mut random)).collect();
    }
    let victim = random.chance(0.6).then(|| random.pick(&[2, 3]));
    let (death, speed) = (random.below(200), random.pick(&[0.3, 0.6, 0.9]));
    let mut holders = Holders::new();
    for at in 0.. {
        if let Some(dead) = victim.filter(|_| at == death) {
            cluster.kill(dead);
            takers.retain(|taker| taker.node != dead);
        }
        let mut went_on = cluster.random.chance(speed) && cluster.step();
        let first = cluster.random.below(takers.len());
        for place in (first..takers.len()).chain(0..first) {
            went_on = went_on || takers[place].step(&mut cluster, &mut holders);
        }
        if !went_on && !cluster.step() && at > death {
            break;
        }
    }
    for taker in &takers {
        assert!(taker.sections.is_empty(), "seed {seed}: node {} waits for ever", taker.node);
    }
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
    cluster.passed
}

/// A node passes a lock on and dies. Parts of what it sent are lost. If the grant has come, the
/// lock goes on, and otherwise it is broken.
pub fn pass_and_die(seed: u64) -> bool {
    let mut cluster = Cluster::new(NODES, seed);
    cluster.succeeds(2, |c, token, m| c.lock(4, token, m));
    let next = cluster.call(1, |c, token, m| c.lock(4, token, m));
    cluster.run_until_quiet();
    cluster.call(2, |c, token, m| c.unlock(4, token, m));
    cluster.steps(seed % 3);
    cluster.kill(2);
    let last = cluster.call(3, |c, token, m| c.lock(4, token, m));
    cluster.run_until_quiet();
    let outcome = cluster.take(1, next).expect("the request is answered");
    let is_passed = outcome.is_ok();
    if is_passed {
        cluster.succeeds(1, |c, token, m| c.unlock(4, token, m));
    }
    let later = cluster.take(3, last).expect("the last request is answered");
    assert_eq!(later.is_ok(), is_passed, "seed {seed}: {later:?}");
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
    is_passed
}

/// A node tries a lock that another one has, and gets an answer at once. The next request gets the
/// lock when it is given back. A node tries the free lock, and stops waiting for the answer: the
/// lock is given back all the same (COH-7.5, COH-7.12).
pub fn try_locks(seed: u64) {
    let mut cluster = Cluster::new(NODES, seed);
    let tries = LockMode { tries: true, reads: false };
    cluster.succeeds(2, |c, token, m| c.lock_in_mode(4, tries, token, m));
    let next =
        (!seed.is_multiple_of(2)).then(|| cluster.call(3, |c, token, m| c.lock(4, token, m)));
    cluster.run_until_quiet();
    for rank in [0, 2, 3] {
        let token = cluster.call(rank, |c, token, m| c.lock_in_mode(4, tries, token, m));
        cluster.run_until_quiet();
        assert_eq!(cluster.take(rank, token), Some(Ok(Value::LockTaken)), "seed {seed}");
    }
    cluster.succeeds(2, |c, token, m| c.unlock(4, token, m));
    if let Some(next) = next {
        cluster.run_until_quiet();
        cluster.all_succeeded([(3, next)]);
        cluster.succeeds(3, |c, token, m| c.unlock(4, token, m));
    }
    cluster.run_until_quiet();
    let stopped = cluster.call(0, |c, token, m| c.lock_in_mode(4, tries, token, m));
    cluster.steps(seed % 5);
    let outcome = cluster.take(0, stopped);
    cluster.call(0, |c, _, m| c.cancel(stopped, m));
    if outcome.is_some() {
        cluster.succeeds(0, |c, token, m| c.unlock(4, token, m));
    }
    cluster.succeeds(1, |c, token, m| c.lock(4, token, m));
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
}

/// Threads of a node ask for a taken lock again and again, and stop waiting each time. They have
/// one request of each mode in the queue, in the place of the first one (COH-7.5).
pub fn ask_in_a_loop(seed: u64) {
    const TIMES: u64 = 40;
    let mut cluster = Cluster::new(NODES, seed);
    let reads = LockMode { tries: false, reads: true };
    cluster.succeeds(2, |c, token, m| c.lock(4, token, m));
    let ask = |cluster: &mut Cluster, rank, mode| {
        let token = cluster.call(rank, |c, token, m| c.lock_in_mode(4, mode, token, m));
        cluster.steps(seed % 7);
        token
    };
    for _ in 0..TIMES {
        for mode in [LockMode::default(), reads] {
            let token = ask(&mut cluster, 1, mode);
            cluster.call(1, |c, _, m| c.cancel(token, m));
        }
    }
    cluster.run_until_quiet();
    let other = ask(&mut cluster, 3, LockMode::default());
    cluster.run_until_quiet();
    let view = cluster.nodes[0].coherence.lock_view(4).expect("node 0 is the manager");
    // The manager does not know that nobody waits for the request that reads.
    assert_eq!((view.waiting, view.abandoned, view.first), (2, 1, Some(1)), "seed {seed}");
    let last = ask(&mut cluster, 1, LockMode::default());
    cluster.succeeds(2, |c, token, m| c.unlock(4, token, m));
    cluster.run_until_quiet();
    assert_eq!((cluster.take(1, last), cluster.take(3, other)), (Some(Ok(Value::None)), None));
    cluster.succeeds(1, |c, token, m| c.unlock(4, token, m));
    cluster.run_until_quiet();
    // The request that reads was abandoned, and gave the lock back.
    cluster.all_succeeded([(3, other)]);
    cluster.succeeds(3, |c, token, m| c.unlock(4, token, m));
    cluster.run_until_quiet();
    let view = cluster.nodes[0].coherence.lock_view(4).expect("node 0 is the manager");
    assert_eq!((view.holder, view.waiting), (None, 0), "seed {seed}");
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
}

/// A thread stops waiting for a lock that others read under. Nodes that ask for reading pass its
/// request by, and it gets the lock in its old place once a thread waits for it again (COH-7.15).
pub fn read_beside_abandoned(seed: u64) {
    let mut cluster = Cluster::new(NODES, seed);
    let reads = LockMode { tries: false, reads: true };
    let tries = LockMode { tries: true, ..reads };
    cluster.succeeds(2, |c, token, m| c.lock_in_mode(4, reads, token, m));
    let stopped = cluster.call(1, |c, token, m| c.lock(4, token, m));
    cluster.steps(seed % 5);
    let early = cluster.call(3, |c, token, m| c.lock_in_mode(4, reads, token, m));
    cluster.steps(seed % 3);
    cluster.call(1, |c, _, m| c.cancel(stopped, m));
    cluster.run_until_quiet();
    cluster.all_succeeded([(3, early)]);
    for mode in [reads, tries] {
        cluster.succeeds(0, |c, token, m| c.lock_in_mode(4, mode, token, m));
        cluster.succeeds(0, |c, token, m| c.unlock(4, token, m));
    }
    let again = cluster.call(1, |c, token, m| c.lock(4, token, m));
    cluster.run_until_quiet();
    let last = cluster.call(0, |c, token, m| c.lock_in_mode(4, reads, token, m));
    cluster.run_until_quiet();
    assert_eq!((cluster.take(1, again), cluster.take(0, last)), (None, None), "seed {seed}");
    for rank in [2, 3] {
        cluster.succeeds(rank, |c, token, m| c.unlock(4, token, m));
    }
    cluster.run_until_quiet();
    cluster.all_succeeded([(1, again)]);
    assert_eq!(cluster.take(0, last), None, "seed {seed}");
    cluster.succeeds(1, |c, token, m| c.unlock(4, token, m));
    cluster.run_until_quiet();
    cluster.all_succeeded([(0, last)]);
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
}

/// Two nodes read at once, and one that writes waits for both. A request that reads comes after the
/// one that writes, which waits. A node that dies while it reads breaks no lock (COH-7.14).
pub fn read_locks(seed: u64) {
    let mut cluster = Cluster::new(NODES, seed);
    let reads = LockMode { tries: false, reads: true };
    let tries = LockMode { tries: true, ..reads };
    let take = |cluster: &mut Cluster, rank, mode| {
        let token = cluster.call(rank, |c, token, m| c.lock_in_mode(4, mode, token, m));
        cluster.run_until_quiet();
        token
    };
    let unlock = |cluster: &mut Cluster, rank| {
        cluster.succeeds(rank, |c, token, m| c.unlock(4, token, m));
        cluster.run_until_quiet();
    };
    let readers = [(1, take(&mut cluster, 1, reads)), (1, take(&mut cluster, 1, tries))];
    cluster.all_succeeded(readers);
    let third = take(&mut cluster, 2, reads);
    cluster.all_succeeded([(2, third)]);
    let token = take(&mut cluster, 3, LockMode { tries: true, reads: false });
    assert_eq!(cluster.take(3, token), Some(Ok(Value::LockTaken)), "seed {seed}");
    let writer = take(&mut cluster, 3, LockMode::default());
    let (next, last) = (take(&mut cluster, 0, LockMode::default()), take(&mut cluster, 1, reads));
    let token = take(&mut cluster, 0, tries);
    assert_eq!(cluster.take(0, token), Some(Ok(Value::LockTaken)), "seed {seed}");
    unlock(&mut cluster, 1);
    unlock(&mut cluster, 1);
    assert_eq!(cluster.take(3, writer), None, "seed {seed}: node 2 reads");
    if seed.is_multiple_of(2) {
        cluster.kill(2);
        cluster.run_until_quiet();
    } else {
        unlock(&mut cluster, 2);
    }
    cluster.all_succeeded([(3, writer)]);
    assert_eq!((cluster.take(0, next), cluster.take(1, last)), (None, None), "seed {seed}");
    unlock(&mut cluster, 3);
    cluster.all_succeeded([(0, next)]);
    assert_eq!(cluster.take(1, last), None, "seed {seed}: node 0 writes");
    unlock(&mut cluster, 0);
    cluster.all_succeeded([(1, last)]);
    unlock(&mut cluster, 1);
    assert!(cluster.nodes.iter().all(|node| node.contradictions.is_empty()), "seed {seed}");
}
