//! All teams of a node.

use super::TeamCore;
use crate::node::{Node, lock};
use crossbeam_queue::SegQueue;
use oikaze_engine::{Failure, Parcel};
use oikaze_protocol::limits::MESSAGE_MAX;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of teams of which it is remembered that they are gone. A parcel for an older one
/// is kept until the node ends.
const GONE_MAX: usize = 1024;

/// Maximum number of teams of which parcels are kept before this node makes them, and of their
/// bytes. Nobody who obeys the credit comes near.
const EARLY_TEAMS_MAX: usize = 4096;
const EARLY_BYTES_MAX: u64 = 2 * MESSAGE_MAX;

/// Teams of a node, by number.
#[derive(Default)]
pub(crate) struct Registry {
    teams: Mutex<Teams>,
    /// Teams with news.
    due: SegQueue<Arc<TeamCore>>,
    /// Set when a node is lost or the job ends, which concerns all teams.
    all_due: AtomicBool,
}

#[derive(Default)]
struct Teams {
    here: BTreeMap<u64, Arc<TeamCore>>,
    /// Parcels for teams that this node has not made yet. The senders' credit bounds them.
    early: BTreeMap<u64, Vec<Parcel>>,
    early_bytes: u64,
    gone: std::collections::VecDeque<u64>,
}

impl Teams {
    fn keep_early(&mut self, id: u64, parcel: Parcel) {
        let bytes = self.early_bytes + parcel.body.len() as u64;
        let is_known = self.early.contains_key(&id) || self.early.len() < EARLY_TEAMS_MAX;
        if is_known && bytes <= EARLY_BYTES_MAX {
            self.early_bytes = bytes;
            self.early.entry(id).or_default().push(parcel);
        }
    }

    fn take_early(&mut self, id: u64) -> Vec<Parcel> {
        let parcels = self.early.remove(&id).unwrap_or_default();
        self.early_bytes -= parcels.iter().map(|parcel| parcel.body.len() as u64).sum::<u64>();
        parcels
    }
}

std::thread_local! {
    /// Set while this thread runs teams. Sending a parcel runs a turn, which would begin anew.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

impl Registry {
    /// Adds a team. Returns `false` if this node has a team of this number.
    pub fn add(&self, core: &Arc<TeamCore>) -> bool {
        let mut teams = lock(&self.teams);
        if teams.here.insert(core.id(), Arc::clone(core)).is_some() {
            return false;
        }
        for parcel in teams.take_early(core.id()) {
            core.deposit(parcel);
        }
        self.due.push(Arc::clone(core));
        true
    }

    /// Removes a team that nobody uses any more.
    pub fn remove(&self, id: u64) {
        let mut teams = lock(&self.teams);
        teams.here.remove(&id);
        teams.take_early(id);
        teams.gone.push_back(id);
        if teams.gone.len() > GONE_MAX {
            teams.gone.pop_front();
        }
    }

    /// Returns the number of teams.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.teams).here.len()
    }

    /// Takes a parcel from the engine.
    pub fn deposit(&self, parcel: Parcel) {
        let mut teams = lock(&self.teams);
        let id = parcel.head.team;
        if let Some(core) = teams.here.get(&id) {
            core.deposit(parcel);
            self.due.push(Arc::clone(core));
        } else if !teams.gone.contains(&id) {
            teams.keep_early(id, parcel);
        }
    }

    /// Notes that a parcel of a collective could not be sent.
    pub fn unsent(&self, team: u64, number: u64, failure: Failure) {
        if let Some(core) = lock(&self.teams).here.get(&team) {
            core.unsent(number, failure);
            self.due.push(Arc::clone(core));
        }
    }

    /// Makes all teams look for losses.
    pub fn wake_all(&self) {
        self.all_due.store(true, Ordering::SeqCst);
    }

    /// Makes a team run soon.
    pub fn ask(&self, core: &Arc<TeamCore>) {
        core.ask();
        self.due.push(Arc::clone(core));
    }

    /// Runs the teams that have news, outside of the engine.
    #[inline]
    pub fn run(&self, node: &Node) {
        if !self.due.is_empty() || self.all_due.load(Ordering::Relaxed) {
            self.run_due(node);
        }
    }

    fn run_due(&self, node: &Node) {
        /// Ends the run also if a waker panics.
        struct Running;
        impl Drop for Running {
            fn drop(&mut self) {
                RUNS.set(false);
            }
        }
        if RUNS.replace(true) {
            return;
        }
        let _running = Running;
        loop {
            if self.all_due.swap(false, Ordering::SeqCst) {
                for core in lock(&self.teams).here.values() {
                    core.ask();
                    self.due.push(Arc::clone(core));
                }
            }
            let Some(core) = self.due.pop() else { break };
            core.advance(node);
            if core.is_over() {
                self.remove(core.id());
            }
        }
    }
}
