//! Random programs without data races.
//!
//! A program is a list of acts for each thread. In every phase between two barriers, each cell has
//! one *use*, which says who may touch it and how the accesses are ordered. So a read must return
//! the latest write in the order in which the model ran them, whatever that order was.

use super::machine::{Page, WORDS};
use crate::Rank;
use crate::coherence::{Delivery, LockMode, Ownership};
use crate::random::Random;
use alloc::vec::Vec;

/// Number of pages that a program uses.
pub const PAGES: usize = 2;
/// Number of cells, each of which is one word.
pub const CELLS: usize = PAGES * WORDS;

/// Number of a cell.
pub type Cell = usize;

/// Act of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Loads a cell and checks its value.
    Read(Cell),
    Write(Cell, u64),
    /// Loads a cell, checks its value and stores a value that depends on it. The thread holds the
    /// lock of the cell.
    Add(Cell),
    /// Takes a read guard: makes the page of a cell valid first, and tells coherence of the guard.
    ReadGuard(Cell),
    /// Takes a write guard, as `ReadGuard` does. The thread has at most one.
    WriteGuard(Cell, Extent, Ownership),
    /// Ends the write guard, and pushes its bytes to the nodes whose bits are set.
    EndGuard(u8),
    /// Begins or ends a subscription to updates of the page of a cell.
    Subscribe(Cell, bool),
    /// Tells that the array of a cell will be written with plain stores, too.
    TrackPages(Cell),
    /// Requests all pages of an array and does not wait for them.
    Prefetch(Cell),
    /// Requests a lock. With `after`, the thread waits first until that section was entered.
    /// Sections are numbered by program, and this one gets the number `section`. A request that
    /// tries leaves the section out if another thread has the lock.
    Lock {
        lock: u64,
        mode: LockMode,
        section: usize,
        after: Option<usize>,
    },
    Unlock(u64),
    /// The threads of the node meet, and the last one calls a barrier for all of them.
    Barrier,
}

/// Bytes of a write guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Word,
    /// All bytes between the word and the next one, which are enough for a message that is read
    /// from memory.
    Fragment,
    Page,
}

/// How a program accesses its arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Writes under guards alone, so that pages are not tracked (COH-10.13).
    Guarded,
    /// Under guards, in arrays whose pages are tracked.
    Mixed,
    /// By plain loads and stores, which fault.
    Plain,
}

/// Bounds of random programs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub nodes: u32,
    pub threads: usize,
    /// Number of phases that end with a barrier.
    pub phases: usize,
    /// Maximum number of cells that are in use in one phase.
    pub cells: usize,
    /// Probability that there are more threads, which take part in no barrier and only change one
    /// cell under its lock (COH-6.5).
    pub rovers: f64,
    /// Probability that homes move (COH-11).
    pub moves: f64,
}

/// Random program, and how the machine runs it.
#[derive(Clone, Debug)]
pub struct Program {
    pub nodes: u32,
    /// Home of each page.
    pub homes: Vec<Rank>,
    /// `true` if the pages are one array, so that a fetch may have both.
    pub joined: bool,
    pub style: Style,
    /// Delivery that each node chooses.
    pub deliveries: Vec<Option<Delivery>>,
    /// `true` if the tracker can tell loads from stores.
    pub reports_access: bool,
    /// `true` if fetch answers arrive in fragments.
    pub fragments: bool,
    /// Node and acts of each thread.
    pub threads: Vec<(Rank, Vec<Act>)>,
    pub sections: usize,
    /// `true` if nodes ask to be the homes of pages that they write.
    pub homes_move: bool,
}

impl Program {
    /// Returns the page of a cell.
    pub fn page(&self, cell: Cell) -> Page {
        let page = cell / WORDS;
        if self.joined { (0, page as u64) } else { (page as u32, 0) }
    }

    /// Returns the number of pages of each array.
    pub fn arrays(&self) -> Vec<Vec<Rank>> {
        if self.joined {
            Vec::from([self.homes.clone()])
        } else {
            self.homes.iter().map(|home| Vec::from([*home])).collect()
        }
    }

    /// Returns `true` if the thread takes part in barriers.
    pub fn meets(&self, thread: usize) -> bool {
        self.threads[thread].1.contains(&Act::Barrier)
    }

    /// Draws a program.
    pub fn random(random: &mut Random, shape: Shape) -> Program {
        let homes = (0..PAGES).map(|_| random.below(shape.nodes as usize) as Rank).collect();
        let mut draft = Draft {
            style: random.pick(&[Style::Guarded, Style::Guarded, Style::Mixed, Style::Plain]),
            pushes: random.chance(0.5),
            nodes: shape.nodes,
            acts: (0..shape.nodes as usize * shape.threads).map(|_| Vec::new()).collect(),
            next_value: 0,
            sections: 0,
            random,
        };
        let locks = 1 + draft.random.below(2) as u64;
        let mut rover = draft.random.chance(shape.rovers).then(|| draft.random.below(CELLS));
        let handover = rover.filter(|_| draft.random.chance(0.5)).map(|cell| {
            let handover = Handover {
                cell,
                node: draft.random.below(shape.nodes as usize) as Rank,
                sections: 1 + draft.random.below(2),
                phase: draft.random.below(shape.phases),
            };
            draft.sections = handover.sections;
            handover
        });
        for phase in 0..shape.phases {
            let now = handover.filter(|handover| handover.phase == phase);
            draft.phase(shape, locks, rover, handover.is_none(), now);
            rover = rover.filter(|_| now.is_none());
        }
        for thread in 0..draft.acts.len() {
            for cell in (0..CELLS).filter(|cell| Some(*cell) != rover) {
                if draft.random.chance(0.5) {
                    draft.access(thread, Act::Read(cell));
                }
            }
        }
        let mut threads: Vec<(Rank, Vec<Act>)> = Vec::new();
        let Draft { random, acts, sections, style, .. } = draft;
        let node = |thread: usize| (thread / shape.threads) as Rank;
        threads.extend(acts.into_iter().enumerate().map(|(t, acts)| (node(t), acts)));
        let mut program = Program {
            nodes: shape.nodes,
            homes,
            joined: random.chance(0.5),
            style,
            reports_access: random.chance(0.7),
            deliveries: Vec::new(),
            fragments: random.chance(0.3),
            threads,
            sections,
            homes_move: false,
        };
        for _ in 0..shape.nodes {
            let chooses = random.chance(0.4);
            let delivery = chooses.then(|| random.pick(&Delivery::ALL));
            program.deliveries.push(delivery);
        }
        if let Some(handover) = handover {
            program.threads.push((handover.node, handover.acts(program.style)));
        } else if let Some(cell) = rover {
            program.add_rovers(random, cell);
        }
        program.homes_move = random.chance(shape.moves);
        program
    }

    /// Adds a thread to each node that only adds to `cell` under the lock of that cell.
    fn add_rovers(&mut self, random: &mut Random, cell: Cell) {
        for node in 0..self.nodes {
            let mut acts = Vec::new();
            for _ in 0..1 + random.below(2) {
                let section = self.sections;
                self.sections += 1;
                let mode = LockMode { tries: random.chance(0.2), reads: false };
                let lock = Act::Lock { lock: ROVER_LOCK, mode, section, after: None };
                acts.extend(rove(lock, cell, self.style));
            }
            self.threads.push((node, acts));
        }
    }
}

/// Returns the acts of one section of a thread without barriers.
fn rove(lock: Act, cell: Cell, style: Style) -> Vec<Act> {
    let guard = Act::WriteGuard(cell, Extent::Fragment, Ownership::Owned);
    let acts = [lock, guard, Act::Add(cell), Act::EndGuard(0), Act::Unlock(ROVER_LOCK)];
    let needed =
        |act: &Act| style != Style::Plain || !matches!(act, Act::WriteGuard(..) | Act::EndGuard(_));
    acts.into_iter().filter(needed).collect()
}

/// Lock of the cell that threads without barriers change.
const ROVER_LOCK: u64 = 2;

/// A thread without barriers changes a cell under its lock. In one phase another thread acquires
/// the lock after it, and after the next barrier all threads may use the cell without the lock. The
/// first thread's node may be in that barrier already while it changes the cell (COH-6.5).
#[derive(Clone, Copy)]
struct Handover {
    cell: Cell,
    node: Rank,
    /// Number of sections of the first thread, which are the first ones of the program.
    sections: usize,
    phase: usize,
}

impl Handover {
    fn acts(self, style: Style) -> Vec<Act> {
        let section = |section| {
            let mode = LockMode::default();
            let lock = Act::Lock { lock: ROVER_LOCK, mode, section, after: None };
            rove(lock, self.cell, style)
        };
        (0..self.sections).flat_map(section).collect()
    }
}

/// Program that is being drawn.
struct Draft<'a> {
    random: &'a mut Random,
    style: Style,
    /// `true` if guards push what they wrote.
    pushes: bool,
    nodes: u32,
    acts: Vec<Vec<Act>>,
    next_value: u64,
    sections: usize,
}

impl Draft<'_> {
    fn thread(&mut self) -> usize {
        self.random.below(self.acts.len())
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    /// Appends an access, under a guard if the program uses guards.
    fn access(&mut self, thread: usize, act: Act) {
        match act {
            Act::Read(cell) if self.is_guarded() => self.acts[thread].push(Act::ReadGuard(cell)),
            Act::Write(cell, _) | Act::Add(cell) if self.is_guarded() => {
                let (extent, ownership) = match self.random.below(6) {
                    0 => (Extent::Page, Ownership::Merged),
                    1 => (Extent::Fragment, Ownership::Merged),
                    2 => (Extent::Word, Ownership::Owned),
                    _ => (Extent::Fragment, Ownership::Owned),
                };
                self.acts[thread].push(Act::WriteGuard(cell, extent, ownership));
                self.acts[thread].push(act);
                return self.end_guard(thread);
            }
            _ => {}
        }
        self.acts[thread].push(act);
    }

    fn is_guarded(&self) -> bool {
        self.style != Style::Plain
    }

    fn end_guard(&mut self, thread: usize) {
        let pushes = self.pushes && self.random.chance(0.7);
        let push = if pushes { self.random.below(1 << self.nodes) as u8 } else { 0 };
        self.acts[thread].push(Act::EndGuard(push));
    }

    /// Appends a write of a whole page.
    fn fill(&mut self, thread: usize, page: usize) {
        let first = page * WORDS;
        self.acts[thread].push(Act::WriteGuard(first, Extent::Page, Ownership::Owned));
        for cell in first..first + WORDS {
            let value = self.value();
            self.acts[thread].push(Act::Write(cell, value));
        }
        self.end_guard(thread);
    }

    fn write(&mut self, thread: usize, cell: Cell) {
        let value = self.value();
        self.access(thread, Act::Write(cell, value));
    }

    /// Appends a section: a lock, what `body` appends, and an unlock. Returns its number.
    fn section(
        &mut self,
        thread: usize,
        (lock, mode): (u64, LockMode),
        after: Option<usize>,
        body: impl FnOnce(&mut Self),
    ) -> usize {
        let section = self.sections;
        self.sections += 1;
        self.acts[thread].push(Act::Lock { lock, mode, section, after });
        body(self);
        self.acts[thread].push(Act::Unlock(lock));
        section
    }

    fn phase(
        &mut self,
        shape: Shape,
        locks: u64,
        rover: Option<Cell>,
        all_may_rove: bool,
        handover: Option<Handover>,
    ) {
        let mut cells: Vec<Cell> = (0..CELLS).filter(|cell| Some(*cell) != rover).collect();
        for i in (1..cells.len()).rev() {
            cells.swap(i, self.random.below(i + 1));
        }
        let page = self.random.below(PAGES);
        let of_page = |cell: &Cell| *cell / WORDS == page;
        if self.is_guarded()
            && cells.iter().filter(|cell| of_page(cell)).count() == WORDS
            && self.random.chance(0.4)
        {
            cells.retain(|cell| !of_page(cell));
            let thread = self.thread();
            self.fill(thread, page);
            if self.random.chance(0.3) {
                self.fill(thread, page);
            }
        }
        for _ in 0..2 {
            if self.random.chance(0.25) {
                let (thread, cell) = (self.thread(), self.random.below(CELLS));
                let wanted = self.random.chance(0.8);
                self.acts[thread].push(Act::Subscribe(cell, wanted));
            }
        }
        if self.style == Style::Guarded && self.random.chance(0.05) {
            let (thread, cell) = (self.thread(), self.random.below(CELLS));
            self.acts[thread].push(Act::TrackPages(cell));
        }
        cells.truncate(shape.cells);
        for cell in cells {
            self.use_cell(cell, locks);
        }
        if let Some(Handover { cell, sections, .. }) = handover {
            let thread = self.thread();
            let lock = (ROVER_LOCK, LockMode::default());
            self.section(thread, lock, Some(sections - 1), |draft| {
                draft.access(thread, Act::Read(cell));
            });
        } else if let Some(cell) = rover
            && all_may_rove
            && self.random.chance(0.4)
        {
            let thread = self.thread();
            let lock = (ROVER_LOCK, LockMode::default());
            self.section(thread, lock, None, |draft| draft.access(thread, Act::Add(cell)));
        }
        if self.random.chance(0.1) {
            let (thread, cell) = (self.thread(), self.random.below(CELLS));
            self.acts[thread].push(Act::Prefetch(cell));
        }
        self.acts.iter_mut().for_each(|acts| acts.push(Act::Barrier));
    }

    /// Appends the accesses of one phase to one cell.
    fn use_cell(&mut self, cell: Cell, locks: u64) {
        let lock = self.random.below(locks as usize) as u64;
        match self.random.below(7) {
            // One thread writes, perhaps several times.
            0..=2 => {
                let writer = self.thread();
                if self.random.chance(0.3) {
                    self.access(writer, Act::Read(cell));
                }
                self.write(writer, cell);
                if self.random.chance(0.3) {
                    self.write(writer, cell);
                    self.access(writer, Act::Read(cell));
                }
            }
            // Any thread reads.
            3 => {
                for thread in 0..self.acts.len() {
                    if self.random.chance(0.6) {
                        self.access(thread, Act::Read(cell));
                    }
                }
            }
            // Threads read and write under a lock, in any order of the threads.
            4 | 5 => {
                for _ in 0..1 + self.random.below(3) {
                    let thread = self.thread();
                    let act = match self.random.below(5) {
                        0 | 1 => Act::Read(cell),
                        2 => Act::Write(cell, self.value()),
                        _ => Act::Add(cell),
                    };
                    let reads = matches!(act, Act::Read(_)) && self.random.chance(0.8);
                    let mode = LockMode { tries: self.random.chance(0.2), reads };
                    self.section(thread, (lock, mode), None, |draft| draft.access(thread, act));
                }
            }
            // One thread hands the cell over to another by a lock.
            _ => {
                let (from, to) = (self.thread(), self.thread());
                if self.random.chance(0.3) {
                    self.access(to, Act::Prefetch(cell));
                }
                self.write(from, cell);
                let lock = (lock, LockMode::default());
                let entered = self.section(from, lock, None, |_| {});
                self.section(to, lock, Some(entered), |_| {});
                if self.random.chance(0.5) {
                    self.access(to, Act::Read(cell));
                }
                if self.random.chance(0.7) {
                    self.write(to, cell);
                }
            }
        }
    }
}
