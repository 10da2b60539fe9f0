//! All teams of a node.

use crate::node::parts::Node;
use crate::sync::lock;
use crossbeam_queue::SegQueue;
use oikaze_engine::Parcel;
use oikaze_os::shm::Arena;
use oikaze_protocol::limits::MESSAGE_MAX;
use oikaze_protocol::time::Time;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time between two ticks of the teams. A rank that waits for the same parcel at two ticks in a row
/// sends a notice (COLL-3.3).
const TICK: Duration = Duration::from_millis(100);

/// Maximum number of teams of which it is remembered that they are gone. A parcel for an older one
/// is kept until the node ends.
const GONE_MAX: usize = 1024;

/// Maximum number of teams of which parcels are kept before this node makes them, and of their
/// bytes. Nobody who obeys the credit comes near.
const EARLY_TEAMS_MAX: usize = 4096;
const EARLY_BYTES_MAX: u64 = 2 * MESSAGE_MAX;

/// Number of the team of all nodes.
pub const WORLD: u64 = 0;

/// Team of a node, as its registry sees it.
pub trait RegisteredTeam: Send + Sync {
    /// Returns the team's number.
    fn id(&self) -> u64;

    /// Takes a parcel from the engine.
    fn deposit(&self, parcel: Parcel);

    /// Notes that the team is to run.
    fn ask(&self);

    /// Notes that time has passed. Returns `true` if the team is to run.
    fn tick(&self) -> bool;

    /// Runs collectives until all wait. Returns `true` if the team has ended.
    fn advance(self: Arc<Self>, node: &Node) -> bool;

    /// Tells all ranks if one of them waits in a collective that this rank should have called
    /// before the collective of coherence in which it waits, `what` (COLL-3.9). Returns `true` if
    /// no rank waits for a later call of this one.
    fn accuse_order(&self, node: &Node, what: &str) -> bool;

    /// Returns the numbers of collectives and of splits that this rank has called.
    fn called(&self) -> (u64, u64);

    /// Fails all collectives that have not ended, and continues with these numbers (COLL-3.7).
    fn abandon(self: Arc<Self>, node: &Node, called: (u64, u64), why: &str);
}

/// Teams of a node, by number.
pub struct Registry {
    teams: Mutex<Teams>,
    /// Teams with news.
    due: SegQueue<Arc<dyn RegisteredTeam>>,
    /// Set when a node is lost or the job ends, which concerns all teams.
    all_due: AtomicBool,
    /// Node time of the next tick in nanoseconds.
    next_tick: AtomicU64,
    /// Memory in which the team of all nodes gives values to collectives, if the nodes are of one
    /// machine.
    arena: Option<Arc<Arena>>,
}

#[derive(Default)]
struct Teams {
    here: BTreeMap<u64, Arc<dyn RegisteredTeam>>,
    /// Parcels for teams that this node has not made yet. The senders' credit bounds them.
    early: BTreeMap<u64, Vec<Parcel>>,
    early_bytes: u64,
    gone: std::collections::VecDeque<u64>,
}

impl Teams {
    fn keep_early(&mut self, id: u64, parcel: Parcel) {
        let bytes = self.early_bytes + parcel.body.len();
        let is_known = self.early.contains_key(&id) || self.early.len() < EARLY_TEAMS_MAX;
        if is_known && bytes <= EARLY_BYTES_MAX {
            self.early_bytes = bytes;
            self.early.entry(id).or_default().push(parcel);
        }
    }

    fn take_early(&mut self, id: u64) -> Vec<Parcel> {
        let parcels = self.early.remove(&id).unwrap_or_default();
        self.early_bytes -= parcels.iter().map(|parcel| parcel.body.len()).sum::<u64>();
        parcels
    }
}

std::thread_local! {
    /// Set while this thread runs teams. Sending a parcel runs a turn, which would begin anew.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

impl Registry {
    /// Makes a registry without teams. The team of all nodes uses the arena, if there is one.
    pub fn new(arena: Option<Arc<Arena>>) -> Registry {
        Registry {
            teams: Mutex::default(),
            due: SegQueue::default(),
            all_due: AtomicBool::default(),
            next_tick: AtomicU64::default(),
            arena,
        }
    }

    /// Returns the memory in which a team gives values to collectives, if it has any.
    pub fn arena_of(&self, team: u64) -> Option<Arc<Arena>> {
        self.arena.clone().filter(|_| team == WORLD)
    }

    /// Adds a team. Returns `false` if this node has a team of this number.
    pub fn add(&self, core: Arc<dyn RegisteredTeam>) -> bool {
        let mut teams = lock(&self.teams);
        if teams.here.insert(core.id(), Arc::clone(&core)).is_some() {
            return false;
        }
        for parcel in teams.take_early(core.id()) {
            core.deposit(parcel);
        }
        self.due.push(core);
        true
    }

    /// Returns all teams of this node.
    pub fn all(&self) -> Vec<Arc<dyn RegisteredTeam>> {
        lock(&self.teams).here.values().map(Arc::clone).collect()
    }

    /// Removes a team that nobody uses any more.
    pub fn remove(&self, id: u64) {
        let mut teams = lock(&self.teams);
        // Several threads may see the end of one team.
        if teams.here.remove(&id).is_none() {
            return;
        }
        teams.take_early(id);
        teams.gone.push_back(id);
        if teams.gone.len() > GONE_MAX {
            teams.gone.pop_front();
        }
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

    /// Looks for ranks that wait in a collective of data which this node, waiting in the collective
    /// of coherence `what`, should have called before (COLL-3.9). Returns `true` if no rank waits.
    #[cold]
    pub fn accuse_order(&self, node: &Node, what: &str) -> bool {
        let world = lock(&self.teams).here.get(&WORLD).cloned();
        let Some(world) = world else { return true };
        let is_quiet = world.accuse_order(node, what);
        self.ask(world);
        self.run(node);
        is_quiet
    }

    /// Makes all teams look for losses.
    pub fn wake_all(&self) {
        self.all_due.store(true, Ordering::SeqCst);
    }

    /// Lets all teams look how long they have waited, once every [`TICK`]. Each turn calls it.
    /// Drivers and the helper sleep for at most 100 ms (`SLEEP_MAX`), so teams tick also while no
    /// thread of the program waits.
    #[inline]
    pub fn tick(&self, now: Time) {
        if now.0 >= self.next_tick.load(Ordering::Relaxed) {
            self.tick_all(now);
        }
    }

    #[cold]
    fn tick_all(&self, now: Time) {
        self.next_tick.store((now + TICK).0, Ordering::Relaxed);
        for core in lock(&self.teams).here.values().filter(|core| core.tick()) {
            self.due.push(Arc::clone(core));
        }
    }

    /// Makes a team run soon.
    #[inline]
    pub fn ask(&self, core: Arc<dyn RegisteredTeam>) {
        core.ask();
        self.due.push(core);
    }

    /// Returns `true` if what a collective of this node waits for in the arena has happened.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.is_awaited_here())
    }

    /// Runs the teams that have news, outside of the engine.
    #[inline]
    pub fn run(&self, node: &Node) {
        if self.may_go_on() {
            self.ask_world();
        }
        if !self.due.is_empty() || self.all_due.load(Ordering::Relaxed) {
            self.run_due(node);
        }
    }

    /// Polls for values that other nodes of this machine give, for some microseconds, as long as
    /// something is waited for and polling pays.
    pub fn poll_slots(&self, node: &Node, mut is_done: impl FnMut() -> bool) {
        let Some(arena) = &self.arena else { return };
        let mut polls = node.word_polls();
        while !is_done() && arena.awaits() && polls.wait() {
            if arena.is_awaited_here() {
                self.run(node);
            }
        }
    }

    #[cold]
    fn ask_world(&self) {
        let world = lock(&self.teams).here.get(&WORLD).cloned();
        if let Some(world) = world {
            self.ask(world);
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
            let id = core.id();
            if core.advance(node) {
                self.remove(id);
            }
        }
    }
}
