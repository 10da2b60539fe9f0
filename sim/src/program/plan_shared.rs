//! Random data-race-free programs on shared arrays, with the value that every load must see.
//!
//! A program is a sequence of phases that end with a collective. In a phase, each byte has one
//! writing thread or none, and others read only bytes without a writer. Threads use the cells that
//! a lock protects in critical sections, or read them in phases in which no thread takes that lock.
//! The program therefore has one outcome, which this module computes sequentially.

use crate::pages::{Reach, Touching};
use crate::random::{Random, bytes_of, mix};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{
    Access, Declaration, Element, Homes, ReduceOp, Reduction, Values,
};
use oikaze_protocol::limits::PAGE;
use std::ops::Range;
use std::time::Duration;

/// Size of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of threads on each node.
    pub threads: usize,
    /// Number of pages of the largest array.
    pub pages: u64,
    /// Maximum number of phases.
    pub phases: u64,
}

/// Action of a thread.
#[derive(Clone, Debug)]
pub enum Act {
    /// Reads bytes, which must be equal to these.
    Load(Reach, Vec<u8>),
    /// Writes bytes to an array.
    Store(Reach),
    /// Takes a lock, reads and changes its cell, and releases the lock.
    Critical(u64),
    /// Makes pages valid ahead of their use.
    Prefetch(u32, Range<u64>, Access),
    /// Subscribes to updates of pages, or ends the subscription.
    Subscribe(u32, Range<u64>, bool),
    /// Does nothing for a while.
    Pause(Duration),
}

/// End of a phase.
#[derive(Clone, Debug)]
pub enum Ending {
    /// A barrier of all nodes.
    Barrier,
    /// A reduction, with each node's contribution and the result.
    Reduce(Vec<Reduction>, Values),
    /// This node calls a barrier and the others a reduction. The collective fails on all nodes, and
    /// they go on.
    Disagreement(Rank),
}

/// A phase of a program.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Actions by node and thread.
    pub acts: Vec<Vec<Vec<Act>>>,
    /// End of the phase.
    pub ending: Ending,
}

/// Bytes that a lock protects.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Array of the bytes.
    pub array: u32,
    /// Range of the bytes.
    pub bytes: Range<u64>,
}

/// Program for all threads of all nodes.
#[derive(Clone, Debug)]
pub struct SharedPlan {
    /// Arrays in the order of declaration.
    pub arrays: Vec<Declaration>,
    /// Arrays that are written under guards alone.
    pub guarded: Vec<bool>,
    /// Cells, one for each lock.
    pub cells: Vec<Cell>,
    /// Phases of the program.
    pub phases: Vec<Phase>,
}

/// Returns the content of a lock's cell after `count` critical sections.
#[must_use]
pub fn cell_bytes(lock: u64, count: u64, len: usize) -> Vec<u8> {
    if count == 0 { vec![0; len] } else { bytes_of(mix(lock) ^ count, len) }
}

/// Cuts a range into accesses that each lie within one page.
pub fn pieces(bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let page = PAGE as u64;
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start / page * page + page).min(bytes.end);
        (start < bytes.end).then_some(start..at)
    })
}

/// Owner of a byte that no thread writes in a phase.
const NOBODY: u16 = 0;
const LOCK: u16 = u16::MAX;

struct Writer<'a> {
    size: Size,
    random: &'a mut Random,
    /// Content of the arrays after all phases so far.
    content: Vec<Vec<u8>>,
    /// Number of times that each lock was taken before this phase.
    taken: Vec<u64>,
    cells: Vec<Cell>,
    /// Ranges that were written lately, and are worth reading.
    recent: Vec<(u32, Range<u64>)>,
}

impl SharedPlan {
    /// Draws any program.
    #[must_use]
    pub fn any(size: Size, random: &mut Random) -> SharedPlan {
        let arrays: Vec<_> =
            (0..random.between(1, 3)).map(|array| declaration(array, size, random)).collect();
        let content: Vec<_> = arrays.iter().map(|array| vec![0; array.bytes as usize]).collect();
        let mut cells: Vec<Cell> = Vec::new();
        for _ in 0..random.below(4) {
            let array = random.index(arrays.len()) as u32;
            let len = random.spread(8, 200).min(arrays[array as usize].bytes);
            let start = random.below(arrays[array as usize].bytes - len + 1);
            let bytes = start..start + len;
            if cells.iter().all(|cell| {
                cell.array != array
                    || cell.bytes.end <= bytes.start
                    || bytes.end <= cell.bytes.start
            }) {
                cells.push(Cell { array, bytes });
            }
        }
        let taken = vec![0; cells.len()];
        let all = random.chance(0.3);
        let guarded = arrays.iter().map(|_| all || random.chance(0.4)).collect();
        let count = random.between(1, size.phases);
        let mut writer = Writer { size, random, content, taken, cells, recent: Vec::new() };
        let phases = (0..count).map(|_| writer.phase()).collect();
        SharedPlan { arrays, guarded, cells: writer.cells, phases }
    }
}

fn declaration(number: u64, size: Size, random: &mut Random) -> Declaration {
    let pages = random.spread(1, size.pages);
    let element = *random.pick(&[(1, 1), (5, 4), (7, 8), (10, 8)]);
    let bytes = (pages * PAGE as u64 - random.below(PAGE as u64 / 8) * 8).max(8);
    let homes = match random.below(3) {
        0 => Homes::Block,
        1 => Homes::Cyclic { pages: random.between(1, 3) },
        _ => Homes::Explicit(
            (0..pages).map(|_| random.below(u64::from(size.nodes)) as u32).collect(),
        ),
    };
    Declaration {
        name: format!("array {number}"),
        bytes,
        element: Element { kind: element.0, size: element.1 },
        homes,
        ..Declaration::default()
    }
}

impl Writer<'_> {
    fn phase(&mut self) -> Phase {
        let threads = self.size.nodes as usize * self.size.threads;
        let mut groups: Vec<Vec<Vec<Act>>> = vec![Vec::new(); threads];
        let mut owners: Vec<Vec<u16>> =
            self.content.iter().map(|bytes| vec![NOBODY; bytes.len()]).collect();
        for cell in &self.cells {
            owners[cell.array as usize][cell.bytes.start as usize..cell.bytes.end as usize]
                .fill(LOCK);
        }
        let mut written = Vec::new();
        let mut after = self.content.clone();
        for array in 0..self.content.len() {
            self.stores(array as u32, &mut owners, &mut after, &mut groups, &mut written);
        }
        for group in &mut groups {
            self.loads(&owners, group);
        }
        self.criticals(&mut groups);
        self.content = after;
        self.recent.extend(written);
        let keep = self.recent.len().saturating_sub(60);
        self.recent.drain(..keep);
        let mut acts = groups.into_iter().map(|mut groups| {
            self.random.shuffle(&mut groups);
            groups.into_iter().flatten().collect::<Vec<_>>()
        });
        let acts: Vec<Vec<Vec<Act>>> =
            (0..self.size.nodes).map(|_| acts.by_ref().take(self.size.threads).collect()).collect();
        let ending = self.ending();
        Phase { acts, ending }
    }

    /// Draws ranges of one array, each with one writing thread: adjacent ranges of a few bytes,
    /// scattered ones, or whole pages.
    fn stores(
        &mut self,
        array: u32,
        owners: &mut [Vec<u16>],
        after: &mut [Vec<u8>],
        groups: &mut [Vec<Vec<Act>>],
        written: &mut Vec<(u32, Range<u64>)>,
    ) {
        let end = self.content[array as usize].len() as u64;
        let (style, mut at) = (self.random.below(4), self.random.below(end));
        for _ in 0..self.random.spread(1, 40) {
            let len = match style {
                0 => self.random.between(1, 9),
                1 => self.random.spread(1, 300),
                2 => self.random.spread(1, 3 * PAGE as u64),
                _ => 8,
            };
            if style == 1 || style == 2 || self.random.chance(0.05) || at >= end {
                at = self.random.below(end);
            }
            let range = at..(at + len).min(end);
            at = range.end + if self.random.chance(0.3) { self.random.below(16) } else { 0 };
            let taken = &mut owners[array as usize][range.start as usize..range.end as usize];
            if taken.iter().any(|owner| *owner != NOBODY) {
                continue;
            }
            let thread = self.random.index(groups.len());
            taken.fill(thread as u16 + 1);
            let mut group = Vec::new();
            for _ in 0..if self.random.chance(0.2) { 2 } else { 1 } {
                let bytes = bytes_of(self.random.word(), len as usize);
                for piece in pieces(range.clone()) {
                    let part = bytes
                        [(piece.start - range.start) as usize..(piece.end - range.start) as usize]
                        .to_vec();
                    after[array as usize][piece.start as usize..piece.end as usize]
                        .copy_from_slice(&part);
                    let reach = |what| Reach { array, offset: piece.start, what };
                    group.push(Act::Store(reach(Touching::Store(part.clone()))));
                    if self.random.chance(0.2) {
                        group.push(Act::Load(reach(Touching::Load(part.len())), part));
                    }
                }
            }
            groups[thread].push(group);
            written.push((array, range));
        }
    }

    /// Plans a thread's reads of bytes that no thread writes, which are mostly bytes written
    /// lately.
    fn loads(&mut self, owners: &[Vec<u16>], group: &mut Vec<Vec<Act>>) {
        for _ in 0..self.random.spread(1, 24) {
            let (array, range) = if !self.recent.is_empty() && self.random.chance(0.8) {
                self.random.pick(&self.recent).clone()
            } else {
                let array = self.random.index(self.content.len());
                let end = self.content[array].len() as u64;
                let start = self.random.below(end);
                (array as u32, start..(start + self.random.spread(1, 500)).min(end))
            };
            let mut acts = Vec::new();
            for piece in pieces(range) {
                let bytes = piece.start as usize..piece.end as usize;
                if owners[array as usize][bytes.clone()].iter().any(|owner| *owner != NOBODY) {
                    continue;
                }
                let expected = self.content[array as usize][bytes].to_vec();
                acts.push(Act::Load(
                    Reach { array, offset: piece.start, what: Touching::Load(expected.len()) },
                    expected,
                ));
            }
            group.push(acts);
        }
        if self.random.chance(0.2) {
            group
                .push(vec![Act::Pause(Duration::from_nanos(self.random.spread(1_000, 5_000_000)))]);
        }
        if self.random.chance(0.2) {
            let array = self.random.index(self.content.len());
            let end = self.content[array].len() as u64;
            let start = self.random.below(end);
            let range = start..self.random.between(start, end);
            group.push(vec![Act::Subscribe(array as u32, range, self.random.chance(0.8))]);
        }
        if self.random.chance(0.3) {
            let array = self.random.index(self.content.len());
            let pages = self.content[array].len().div_ceil(PAGE) as u64;
            let start = self.random.below(pages);
            let range = start..self.random.between(start, pages);
            let access = *self.random.pick(&[Access::Read, Access::Read, Access::Write]);
            group.push(vec![Act::Prefetch(array as u32, range, access)]);
        }
    }

    /// Plans critical sections. All threads may read cells of locks that no thread takes in this
    /// phase.
    fn criticals(&mut self, groups: &mut [Vec<Vec<Act>>]) {
        for lock in 0..self.cells.len() {
            let rounds = if self.random.chance(0.7) {
                self.random.spread(1, 2 * groups.len() as u64)
            } else {
                0
            };
            for _ in 0..rounds {
                let thread = self.random.index(groups.len());
                groups[thread].push(vec![Act::Critical(lock as u64)]);
            }
            let Cell { array, bytes } = self.cells[lock].clone();
            let now = cell_bytes(lock as u64, self.taken[lock], (bytes.end - bytes.start) as usize);
            for group in groups.iter_mut().filter(|_| rounds == 0) {
                if self.random.chance(0.5) {
                    let loads = pieces(bytes.clone()).map(|piece| {
                        let part = now[(piece.start - bytes.start) as usize
                            ..(piece.end - bytes.start) as usize]
                            .to_vec();
                        Act::Load(
                            Reach { array, offset: piece.start, what: Touching::Load(part.len()) },
                            part,
                        )
                    });
                    group.push(loads.collect());
                }
            }
            self.taken[lock] += rounds;
        }
    }

    fn ending(&mut self) -> Ending {
        match self.random.below(20) {
            0..=11 => return Ending::Barrier,
            12 => return Ending::Disagreement(self.random.below(u64::from(self.size.nodes)) as u32),
            _ => {}
        }
        let op = *self.random.pick(&[ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max]);
        let (kind, len) = (self.random.below(3), self.random.spread(1, 40));
        let mut contributions = Vec::new();
        for _ in 0..self.size.nodes {
            let words: Vec<u64> = (0..len).map(|_| self.random.word()).collect();
            let values = match kind {
                0 => Values::U64(words),
                1 => Values::I64(words.into_iter().map(u64::cast_signed).collect()),
                // Numbers whose sum depends on the order of addition.
                _ => Values::F64(
                    words.into_iter().map(|word| (word as f64 - 9.2e18) * 1.1e-7).collect(),
                ),
            };
            contributions.push(Reduction { op, values });
        }
        let result = combined(op, contributions.iter().map(|reduction| &reduction.values));
        Ending::Reduce(contributions, result)
    }
}

/// Returns all contributions combined in rank order.
fn combined<'a>(op: ReduceOp, mut all: impl Iterator<Item = &'a Values>) -> Values {
    fn fold<T: Copy>(into: &mut [T], from: &[T], combine: impl Fn(T, T) -> T) {
        into.iter_mut().zip(from).for_each(|(into, from)| *into = combine(*into, *from));
    }
    let mut result = all.next().cloned().unwrap_or(Values::U64(Vec::new()));
    for values in all {
        match (&mut result, values) {
            (Values::U64(into), Values::U64(from)) => fold(into, from, |a, b| match op {
                ReduceOp::Sum => a.wrapping_add(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
            }),
            (Values::I64(into), Values::I64(from)) => fold(into, from, |a, b| match op {
                ReduceOp::Sum => a.wrapping_add(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
            }),
            (Values::F64(into), Values::F64(from)) => fold(into, from, |a, b| match op {
                ReduceOp::Sum => a + b,
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
            }),
            _ => {}
        }
    }
    result
}
