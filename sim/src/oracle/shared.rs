//! Checks locks and collectives, which no node can do alone.

use crate::violation::Check;
use oikaze_protocol::Rank;
use std::collections::BTreeMap;

/// State of a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Lock {
    holder: Option<(Rank, usize)>,
    /// Number of finished critical sections.
    count: u64,
}

/// All locks and collectives of a run.
#[derive(Debug)]
pub struct SharedOracle {
    locks: BTreeMap<u64, Lock>,
    /// Number of collectives that each node has entered.
    entered: Vec<u64>,
    /// Error that nodes got, by number of the collective in which they disagreed.
    said: BTreeMap<u64, String>,
}

impl SharedOracle {
    pub(super) fn new(nodes: u32) -> SharedOracle {
        SharedOracle {
            locks: BTreeMap::new(),
            entered: vec![0; nodes as usize],
            said: BTreeMap::new(),
        }
    }

    /// Notes that a thread holds a lock. Returns the number of critical sections before its own.
    ///
    /// # Errors
    /// Another thread holds the lock.
    pub fn acquired(&mut self, lock: u64, who: (Rank, usize)) -> Result<u64, String> {
        let known = self.locks.entry(lock).or_default();
        match known.holder.replace(who) {
            None => Ok(known.count),
            Some(other) => Err(format!(
                "lock {lock} was granted to node {} thread {} while node {} thread {} holds it",
                who.0, who.1, other.0, other.1
            )),
        }
    }

    /// Notes that a thread releases a lock.
    pub fn releases(&mut self, lock: u64) {
        let known = self.locks.entry(lock).or_default();
        known.holder = None;
        known.count += 1;
    }

    /// Notes that a node enters its next collective. Returns the collective's number.
    pub fn enters(&mut self, node: Rank) -> u64 {
        let entered = &mut self.entered[node as usize];
        *entered += 1;
        *entered
    }

    /// Notes that a node learned that the nodes have called different collectives.
    ///
    /// # Errors
    /// Another node got another error (COH-6.2).
    pub fn disagreed(&mut self, collective: u64, said: &str) -> Check {
        let before = self.said.entry(collective).or_insert_with(|| said.to_owned());
        if before == said {
            Ok(())
        } else {
            Err(format!(
                "of collective {collective} one node was told \"{before}\", another \"{said}\""
            ))
        }
    }

    /// Checks a collective that has ended at a node.
    ///
    /// # Errors
    /// A node has not entered it.
    pub fn is_over(&self, collective: u64) -> Check {
        match self.entered.iter().position(|entered| *entered < collective) {
            None => Ok(()),
            Some(rank) => {
                Err(format!("collective {collective} is over before node {rank} has entered it"))
            }
        }
    }
}
