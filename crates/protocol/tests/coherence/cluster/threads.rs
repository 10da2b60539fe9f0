//! Threads as small programs of loads, stores, locks, barriers, and jumps that depend on loaded
//! values.

use super::machine::Machine;
use super::{Cluster, Node, Outcome};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, ArrayId, Coherence, CoherenceError, Ownership, Value, WriteId,
};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::Token;

/// A few bytes of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub array: ArrayId,
    pub at: usize,
    pub len: usize,
}

impl Cell {
    /// A 64-bit word of array 0.
    pub fn word(page: usize, word: usize) -> Cell {
        Cell { array: 0, at: page * PAGE + word * 8, len: 8 }
    }

    /// Returns the cells x and y, on two pages with different homes or on one page.
    pub fn pair(seed: u64) -> (Cell, Cell) {
        match seed % 3 {
            0 => (Cell::word(0, 0), Cell::word(1, 0)),
            1 => (Cell::word(2, 5), Cell::word(0, 7)),
            _ => (Cell::word(1, 3), Cell::word(1, 4)),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    /// Loads a cell into the next register.
    Load(Cell),
    Store(Cell, u64),
    /// Loads a cell and checks its value.
    Expect(Cell, u64),
    /// Adds to a cell. The addition is not atomic, so the thread holds a lock.
    Add(Cell, u64),
    Lock(u64),
    Unlock(u64),
    Barrier,
    /// Barrier of the team of these nodes, with a number of its own. One thread of each calls it.
    TeamBarrier(usize, Vec<Rank>),
    /// Notifies a node.
    Notify(Rank),
    /// Waits for the next notification of a node. One thread of each node does.
    WaitNotify(Rank),
    /// Makes all threads of a node wait for each other, as with `std::sync::Barrier`. Each such op
    /// has a number.
    Together(usize),
    /// Drops the last register, and jumps to the op with this index unless the register had this
    /// value.
    UnlessGo(u64, usize),
    Touch(Cell, Access),
    /// Fills a page with one word, under a write guard over the whole page.
    Fill(Cell, u64),
    /// Subscribes to updates of the cell's page, or ends the subscription.
    Subscribe(Cell, bool),
    /// Tells that the array will be written with plain stores, too.
    TrackPages(ArrayId),
    /// Requests this number of pages from the cell's page on, and does not wait for them.
    Prefetch(Cell, u64),
    /// Touches the pages of all these cells at once.
    TouchMany(Vec<Cell>, Access),
}

#[derive(Clone, Debug)]
pub struct Thread {
    pub node: Rank,
    ops: Vec<Op>,
    at: usize,
    waits: Option<Token>,
    /// Is `true` if the op is tried again after the wait.
    again: bool,
    /// Write guard of the op, and whether its store has been done.
    guard: Option<(WriteId, bool)>,
    /// Page on which the thread sleeps, and the page's number of wakeups before.
    sleeps: Option<(ArrayId, u64, u64)>,
    /// Value that the first half of an `Add` has loaded.
    loaded: Option<u64>,
    pub registers: Vec<u64>,
    /// Knowledge that this node tells its team.
    told: Option<Vec<u8>>,
    /// Is `true` from telling the team until learning from it.
    learns: bool,
    /// Error of the operation that ended the thread.
    pub failed: Option<CoherenceError>,
}

impl Thread {
    pub fn new(node: Rank, ops: Vec<Op>) -> Thread {
        let registers = vec![];
        Thread {
            node,
            ops,
            at: 0,
            waits: None,
            again: false,
            guard: None,
            sleeps: None,
            loaded: None,
            registers,
            told: None,
            learns: false,
            failed: None,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.at >= self.ops.len() || self.failed.is_some()
    }

    /// Replaces checked loads by plain loads.
    pub fn forget_expectations(&mut self) {
        for op in &mut self.ops {
            if let Op::Expect(cell, _) = *op {
                *op = Op::Load(cell);
            }
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "node {} at {} {:?} waits {:?} sleeps {:?}",
            self.node,
            self.at,
            self.ops.get(self.at),
            self.waits,
            self.sleeps
        )
    }

    fn ended_op(&mut self) -> bool {
        self.at += 1;
        true
    }
}

/// Advances one thread that can go on, except threads of a dead node. Returns `false` if there is
/// none.
pub fn step_any(cluster: &mut Cluster, threads: &mut [Thread], dead: Rank) -> bool {
    let first = cluster.random.below(threads.len());
    let gone = !cluster.nodes[dead as usize].alive;
    let all = threads.len();
    (0..all)
        .map(|i| (first + i) % all)
        .any(|i| !(gone && threads[i].node == dead) && step(cluster, threads, i))
}

/// Advances one thread. Returns `false` if it cannot go on.
pub fn step(cluster: &mut Cluster, threads: &mut [Thread], index: usize) -> bool {
    if threads[index].has_ended() {
        return false;
    }
    let thread = &mut threads[index];
    let node = &mut cluster.nodes[thread.node as usize];
    if let Some(token) = thread.waits {
        let Some(outcome): Option<Outcome> = node.outcomes.remove(&token) else { return false };
        thread.waits = None;
        match outcome {
            Ok(Value::Knowledge(told)) => thread.told = Some(told),
            Ok(_) => {}
            Err(error) => thread.failed = Some(error),
        }
        return core::mem::take(&mut thread.again) || thread.ended_op();
    }
    if let Some((array, page, wakes)) = thread.sleeps {
        if node.machine.wakes(array, page) == wakes {
            return false;
        }
        thread.sleeps = None;
    }
    let rank = thread.node;
    match thread.ops[thread.at].clone() {
        Op::Load(cell) => load(cluster, thread, cell).is_none_or(|value| {
            thread.registers.push(value);
            thread.ended_op()
        }),
        Op::Expect(cell, expected) => load(cluster, thread, cell).is_none_or(|value| {
            let (seed, at) = (cluster.seed, thread.at);
            assert_eq!(value, expected, "seed {seed}: node {rank}, op {at}: {cell:?}");
            thread.ended_op()
        }),
        Op::Store(cell, value) => !store(cluster, thread, cell, value) || thread.ended_op(),
        Op::Add(cell, more) => match thread.loaded {
            None => {
                thread.loaded = load(cluster, thread, cell);
                true
            }
            Some(old) => {
                let stored = store(cluster, thread, cell, old.wrapping_add(more));
                if stored {
                    thread.loaded = None;
                }
                !stored || thread.ended_op()
            }
        },
        Op::Fill(cell, value) => !fill(cluster, thread, cell, value) || thread.ended_op(),
        Op::Subscribe(cell, wanted) => {
            let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
            let bytes = cell.at as u64..(cell.at + cell.len) as u64;
            coherence.subscribe(cell.array, bytes, wanted, machine).unwrap();
            cluster.collect(rank);
            thread.ended_op()
        }
        Op::TrackPages(array) => {
            let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
            coherence.track_by_pages(array, machine);
            cluster.collect(rank);
            thread.ended_op()
        }
        Op::Lock(lock) => {
            wait(thread, cluster.call(rank, |c, token, pages| c.lock(lock, token, pages)))
        }
        Op::Unlock(lock) => {
            wait(thread, cluster.call(rank, |c, token, pages| c.unlock(lock, token, pages)))
        }
        Op::TeamBarrier(number, members) => team_barrier(cluster, thread, number, &members),
        Op::Notify(to) => {
            wait(thread, cluster.call(rank, |c, token, pages| c.notify(to, token, pages)))
        }
        Op::WaitNotify(from) => {
            let call =
                |c: &mut Coherence, token, m: &mut Machine| c.wait_notify(from, true, token, m);
            wait(thread, cluster.call(rank, call))
        }
        Op::Barrier => wait(thread, cluster.call(rank, |c, token, pages| c.barrier(token, pages))),
        Op::Touch(cell, access) => {
            let page = (cell.at / PAGE) as u64;
            wait(
                thread,
                cluster.call(rank, |c, token, pages| {
                    c.touch(cell.array, page..page + 1, access, token, pages)
                }),
            )
        }
        Op::TouchMany(cells, access) => {
            let array = cells.first().map_or(0, |cell| cell.array);
            let pages = cells.iter().filter(|cell| cell.array == array).map(|cell| {
                let page = (cell.at / PAGE) as u64;
                page..page + 1
            });
            let pages = pages.collect();
            wait(
                thread,
                cluster.call(rank, |c, token, m| c.touch_many(array, pages, access, token, m)),
            )
        }
        Op::Prefetch(cell, pages) => {
            let page = (cell.at / PAGE) as u64;
            let as_touch = cluster.random.chance(0.3);
            let Node { coherence, machine, .. } = &mut cluster.nodes[rank as usize];
            if as_touch {
                coherence.touch(cell.array, page..page + pages, Access::Read, Token::NONE, machine);
            } else {
                coherence.prefetch(cell.array, &[page..page + pages, 0..1], machine);
            }
            cluster.collect(rank);
            thread.ended_op()
        }
        Op::UnlessGo(value, to) => {
            let read = thread.registers.pop();
            thread.at = if read == Some(value) { thread.at + 1 } else { to };
            true
        }
        Op::Together(number) => {
            let waits_or_passed = |t: &Thread| {
                let mut left = t.ops[t.at..].iter().filter(|op| matches!(op, Op::Together(_)));
                t.has_ended()
                    || matches!(t.ops[t.at], Op::Together(n) if n == number)
                    || left.all(|op| matches!(op, Op::Together(n) if *n > number))
            };
            let all = threads.iter().filter(|t| t.node == rank).all(waits_or_passed);
            if all { threads[index].ended_op() } else { false }
        }
    }
}

/// Releases, tells the other members, and learns from them when all have told.
fn team_barrier(
    cluster: &mut Cluster,
    thread: &mut Thread,
    number: usize,
    members: &[Rank],
) -> bool {
    let rank = thread.node;
    if let Some(told) = thread.told.take() {
        cluster.told.entry(number).or_default().insert(rank, told);
        thread.learns = true;
        return true;
    }
    if !thread.learns {
        thread.again = true;
        return wait(thread, cluster.call(rank, |c, token, pages| c.release_to_team(token, pages)));
    }
    let told = cluster.told.get(&number).filter(|told| told.len() == members.len());
    let Some(told) = told else { return false };
    let others: Vec<Vec<u8>> =
        told.iter().filter(|(of, _)| **of != rank).map(|(_, told)| told.clone()).collect();
    thread.learns = false;
    wait(thread, cluster.call(rank, |c, token, pages| c.acquire_from_team(&others, token, pages)))
}

fn wait(thread: &mut Thread, token: Token) -> bool {
    thread.waits = Some(token);
    true
}

fn load(cluster: &mut Cluster, thread: &mut Thread, cell: Cell) -> Option<u64> {
    let value = cluster.nodes[thread.node as usize].machine.load(cell.array, cell.at, cell.len);
    if value.is_none() {
        fault(cluster, thread, cell, Access::Read);
    }
    value
}

fn store(cluster: &mut Cluster, thread: &mut Thread, cell: Cell, value: u64) -> bool {
    let is_guarded = cluster.nodes[thread.node as usize].coherence.is_guarded(cell.array);
    let takes = is_guarded || (cluster.takes_guards && cluster.random.chance(0.1));
    if thread.guard.is_none() && takes {
        // A guard that merges may cover what other nodes write.
        let page = cell.at / PAGE * PAGE;
        return if cluster.random.chance(0.3) {
            take_guard(cluster, thread, cell, page..page + PAGE, Ownership::Merged)
        } else {
            take_guard(cluster, thread, cell, cell.at..cell.at + cell.len, Ownership::Owned)
        };
    }
    if let Some((_, true)) = thread.guard {
        return end_guard(cluster, thread);
    }
    let done = store_mapped(cluster, thread, cell, value);
    match &mut thread.guard {
        Some((_, is_stored)) => {
            *is_stored = done;
            done && cluster.random.chance(0.5) && end_guard(cluster, thread)
        }
        None => done,
    }
}

/// Fills a page step by step, under a guard.
fn fill(cluster: &mut Cluster, thread: &mut Thread, cell: Cell, value: u64) -> bool {
    let page = cell.at / PAGE * PAGE;
    match thread.guard {
        None => take_guard(cluster, thread, cell, page..page + PAGE, Ownership::Owned),
        Some((_, true)) => end_guard(cluster, thread),
        Some(_) => {
            let words = (page..page + PAGE).step_by(8);
            let done = words
                .map(|at| Cell { at, len: 8, ..cell })
                .all(|cell| store_mapped(cluster, thread, cell, value));
            thread.guard = thread.guard.map(|(guard, _)| (guard, done));
            false
        }
    }
}

/// Begins a write guard, or touches its pages first. Never ends the op.
fn take_guard(
    cluster: &mut Cluster,
    thread: &mut Thread,
    cell: Cell,
    bytes: core::ops::Range<usize>,
    ownership: Ownership,
) -> bool {
    let Node { coherence, machine, .. } = &mut cluster.nodes[thread.node as usize];
    let bytes = bytes.start as u64..bytes.end as u64;
    match coherence.begin_write(cell.array, bytes, ownership, machine) {
        Some(guard) => thread.guard = Some((guard, false)),
        None => {
            let page = (cell.at / PAGE) as u64;
            let touch = |c: &mut Coherence, token, pages: &mut Machine| {
                c.touch(cell.array, page..page + 1, Access::Write, token, pages)
            };
            thread.again = true;
            thread.waits = Some(cluster.call(thread.node, touch));
        }
    }
    cluster.collect(thread.node);
    false
}

/// Ends the thread's guard, and pushes what it wrote to some nodes. Returns `true`.
fn end_guard(cluster: &mut Cluster, thread: &mut Thread) -> bool {
    let Some((guard, _)) = thread.guard.take() else { return true };
    let all = 0..cluster.nodes.len() as Rank;
    let often = if cluster.random.chance(0.5) { 0.0 } else { 0.6 };
    let push: Vec<Rank> = all.filter(|_| cluster.random.chance(often)).collect();
    let Node { coherence, machine, .. } = &mut cluster.nodes[thread.node as usize];
    coherence.end_write(guard, &push, machine);
    cluster.collect(thread.node);
    true
}

fn store_mapped(cluster: &mut Cluster, thread: &mut Thread, cell: Cell, value: u64) -> bool {
    let done =
        cluster.nodes[thread.node as usize].machine.store(cell.array, cell.at, cell.len, value);
    if !done {
        fault(cluster, thread, cell, Access::Write);
    }
    done
}

/// Makes the thread sleep until its page is mapped, as the kernel does. Some trackers cannot tell
/// loads from stores.
fn fault(cluster: &mut Cluster, thread: &mut Thread, cell: Cell, access: Access) {
    let page = (cell.at / PAGE) as u64;
    let told = cluster.random.chance(0.7).then_some(access);
    let node = &mut cluster.nodes[thread.node as usize];
    thread.sleeps = Some((cell.array, page, node.machine.wakes(cell.array, page)));
    node.coherence.fault(cell.array, page, told, &mut node.machine);
    cluster.collect(thread.node);
}
