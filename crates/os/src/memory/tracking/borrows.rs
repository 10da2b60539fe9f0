//! Tracks which byte ranges of an array are lent to guards of this process, like a `RefCell` by
//! ranges. Bytes that arrive from other nodes do not change memory that a guard has shown
//! (COH-3.9).

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oikaze_protocol::limits::PAGE;

use super::error::{END_GUARD, SharedError};
use super::live_guards::{LiveGuards, Taker};
use super::others::GuardKind;
use super::pending::PendingBytes;
use crate::processes::origin::Origin;
use crate::processes::signals::{Locked, locked};

/// Registry of the byte ranges that are lent. Readers may overlap readers; a writer overlaps no
/// other guard.
///
/// The registry covers only this process. Between nodes, the program must synchronise itself
/// (spec/coherence.md: data-race freedom).
#[derive(Debug, Default)]
pub struct Borrows {
    held: Mutex<BorrowTable>,
    origin: Origin,
    live: Arc<LiveGuards>,
}

#[derive(Debug, Default)]
struct BorrowTable {
    next: u64,
    ranges: Vec<LiveGuard>,
    pending: PendingBytes,
    /// Set when a race on this array has been reported.
    is_reported: bool,
}

/// A live guard.
#[derive(Debug)]
struct LiveGuard {
    ticket: u64,
    /// Bytes from the first one to the last one.
    bytes: Range<usize>,
    /// Rows of a guard that is not one range, in order and disjoint. It is empty for one range.
    rows: Vec<Range<usize>>,
    kind: GuardKind,
    taker: Taker,
    /// Line of the program, unless the caller is not written in Rust.
    taken_at: Option<&'static Location<'static>>,
    /// Pages that the guard has shown and that were invalidated since. Its bytes in them stay
    /// unchanged.
    shown: BTreeSet<usize>,
}

/// Origin of arriving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A home's answer to a fetch. A guard has shown the page only if the page was invalidated
    /// while the guard lived.
    Fetched,
    /// Another node's diff to a page whose home is here, which a guard may show at any time.
    Diff,
}

/// Access to an array's memory through the alias.
pub(super) trait AliasBytes {
    /// Returns the byte at `at`.
    fn load(&self, at: usize) -> u8;
    /// Stores bytes from `at` on.
    fn store(&self, at: usize, bytes: &[u8]);
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl LiveGuard {
    /// Returns the parts of `bytes` that the guard covers, in order.
    fn parts(&self, bytes: &Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let rows = match self.rows.is_empty() {
            true => std::slice::from_ref(&self.bytes),
            false => &*self.rows,
        };
        let (first, bytes) = (rows.partition_point(|row| row.end <= bytes.start), bytes.clone());
        let rows = rows.get(first..).unwrap_or_default();
        rows.iter().map(move |row| overlap(row, &bytes)).take_while(|part| !part.is_empty())
    }

    fn covers(&self, byte: usize) -> bool {
        self.parts(&(byte..byte + 1)).next().is_some()
    }

    fn describe(&self) -> String {
        let Range { start, end } = self.bytes;
        let does = if self.kind.writes() { "writes" } else { "reads" };
        let taken_at = self.taken_at.map_or_else(String::new, |at| format!(", taken at {at},"));
        format!("a guard that {does} bytes {start}..{end}{taken_at}")
    }
}

impl BorrowTable {
    /// Returns the parts of `bytes` that must not change, sorted and disjoint.
    fn covered(&self, bytes: &Range<usize>, incoming: Incoming) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for entry in &self.ranges {
            for common in entry.parts(bytes) {
                match incoming {
                    Incoming::Diff => runs.push(common),
                    Incoming::Fetched => {
                        let pages = common.start / PAGE..common.end.div_ceil(PAGE);
                        let shown = entry.shown.range(pages);
                        runs.extend(
                            shown.map(|page| overlap(&common, &(page * PAGE..(page + 1) * PAGE))),
                        );
                    }
                }
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|run, last| {
            let joins = run.start <= last.end;
            if joins {
                last.end = last.end.max(run.end);
            }
            joins
        });
        runs
    }

    /// Reports, once for each array, that the program has a race.
    fn report(&mut self, array: &str, at: usize) {
        let guard = self.ranges.iter().find(|entry| entry.covers(at));
        if let Some(guard) = guard.filter(|_| !self.is_reported) {
            crate::processes::signals::print_line(&format!(
                "oikaze: data race on array {array:?}: another node has changed byte {at} while {} is alive in this process. The \
                 guard keeps the old bytes until it ends; end it before other nodes write there",
                guard.describe()
            ));
            self.is_reported = true;
        }
    }
}

impl Borrows {
    /// Makes a registry that also counts its guards in `live`.
    pub(super) fn counted(live: Arc<LiveGuards>) -> Borrows {
        Borrows { held: Mutex::default(), origin: Origin::default(), live }
    }

    fn lock(&self) -> Locked<MutexGuard<'_, BorrowTable>> {
        // Nothing inside can panic half-way, so a poisoned lock still guards a consistent list.
        locked(|| self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of live guards.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().ranges.len()
    }

    /// Describes one live guard, taken by the calling thread if `of_this_thread`.
    #[must_use]
    pub fn describe_one(&self, of_this_thread: bool) -> Option<String> {
        let taker = of_this_thread.then(Taker::current);
        let held = self.lock();
        let is_meant = |entry: &&LiveGuard| {
            !entry.kind.is_operation() && taker.as_ref().is_none_or(|taker| *taker == entry.taker)
        };
        held.ranges.iter().find(is_meant).map(LiveGuard::describe)
    }

    /// Lends `bytes`, or reports a conflicting guard.
    #[cfg(test)]
    #[track_caller]
    pub(super) fn borrow(
        &self,
        array: &str,
        bytes: Range<usize>,
        writer: bool,
    ) -> Result<u64, SharedError> {
        let kind = if writer { GuardKind::Write } else { GuardKind::Read };
        self.borrow_rows(array, bytes, Vec::new(), kind, Some(Location::caller()))
    }

    /// Lends the rows, which are in order, disjoint and in `bytes`, or reports a conflicting guard.
    /// Without rows, it lends all of `bytes`. Errors name the line `taken_at`.
    pub(super) fn borrow_rows(
        &self,
        array: &str,
        bytes: Range<usize>,
        rows: Vec<Range<usize>>,
        kind: GuardKind,
        taken_at: Option<&'static Location<'static>>,
    ) -> Result<u64, SharedError> {
        let mut held = self.lock();
        let parts = if rows.is_empty() { std::slice::from_ref(&bytes) } else { &*rows };
        let overlaps = |e: &&LiveGuard| {
            !overlap(&e.bytes, &bytes).is_empty()
                && parts.iter().any(|part| e.parts(part).next().is_some())
        };
        let conflict = held.ranges.iter().filter(overlaps).find(|e| kind.excludes(e.kind));
        if let Some(e) = conflict {
            return Err(SharedError::invalid(
                format!(
                    "{} bytes {}..{} of array {array:?}",
                    if kind.writes() { "writing" } else { "reading" },
                    bytes.start,
                    bytes.end
                ),
                format!("{} is alive in this process", e.describe()),
                format!("{END_GUARD}, or cut the range so that threads hold disjoint parts."),
            ));
        }
        let ticket = held.next;
        held.next += 1;
        let taker = Taker::current();
        if !kind.is_operation() {
            self.live.taken(&taker);
        }
        held.ranges.push(LiveGuard {
            ticket,
            bytes,
            rows,
            kind,
            taker,
            taken_at,
            shown: BTreeSet::new(),
        });
        Ok(ticket)
    }

    /// Ends a loan. Bytes that waited only for this loan go to memory before another thread can
    /// borrow them.
    pub(super) fn give_back(&self, ticket: u64, alias: &impl AliasBytes) {
        // In a child of fork, the lock may be held for ever by a thread that the child does not
        // have (MEM-24.2).
        if !self.origin.is_here() {
            return;
        }
        let mut held = self.lock();
        let Some(at) = held.ranges.iter().rposition(|e| e.ticket == ticket) else { return };
        let ended = held.ranges.swap_remove(at);
        if !ended.kind.is_operation() {
            self.live.ended(&ended.taker);
        }
        let BorrowTable { ranges, pending, .. } = &mut *held;
        if !pending.is_empty() {
            let is_free = |byte| !ranges.iter().any(|entry| entry.covers(byte));
            // If the guard itself has written there since, its own byte is the newer one.
            pending.take(is_free, |at, arrived, kept| {
                if alias.load(at) == kept {
                    alias.store(at, &[arrived]);
                }
            });
        }
    }

    /// Writes arriving bytes to memory, except those that live guards have shown, which wait
    /// (COH-3.9).
    pub(super) fn place(
        &self,
        array: &str,
        at: usize,
        bytes: &[u8],
        incoming: Incoming,
        alias: &impl AliasBytes,
    ) {
        // Hold the lock to the end, so that no guard begins during the copy.
        let mut held = self.lock();
        let covered = held.covered(&(at..at + bytes.len()), incoming);
        let mut done = 0;
        for run in covered {
            let run = run.start - at..run.end - at;
            held.store(at + done, bytes.get(done..run.start).unwrap_or_default(), alias);
            done = run.end;
            for (offset, &arrived) in run.clone().zip(bytes.get(run).unwrap_or_default()) {
                let (byte, kept) = (at + offset, alias.load(at + offset));
                if arrived == kept {
                    // Always the case in a race-free program: no other node writes what a guard
                    // covers.
                    held.forget(byte);
                } else {
                    held.pending.set(byte, arrived, kept);
                    held.report(array, byte);
                }
            }
        }
        held.store(at + done, bytes.get(done..).unwrap_or_default(), alias);
    }

    /// Invalidates pages by `unmap`. Guards over them keep the bytes that they have shown.
    pub(super) fn invalidate<R>(&self, pages: Range<u64>, unmap: impl FnOnce() -> R) -> R {
        let pages = pages.start as usize..pages.end as usize;
        let bytes = pages.start.saturating_mul(PAGE)..pages.end.saturating_mul(PAGE);
        // Hold the lock until the pages are unmapped: a guard that begins before has shown them.
        let mut held = self.lock();
        for entry in &mut held.ranges {
            let shown =
                entry.parts(&bytes).flat_map(|part| part.start / PAGE..part.end.div_ceil(PAGE));
            let shown: Vec<usize> = shown.collect();
            entry.shown.extend(shown);
        }
        unmap()
    }

    /// Returns `true` if bytes of a fetch of these pages would all go to memory at once.
    pub(super) fn hold_nothing_of(&self, pages: &Range<u64>) -> bool {
        let pages = pages.start as usize..pages.end as usize;
        let bytes = pages.start.saturating_mul(PAGE)..pages.end.saturating_mul(PAGE);
        let held = self.lock();
        held.covered(&bytes, Incoming::Fetched).is_empty() && !held.pending.touches(pages)
    }

    /// Returns `true` if any byte of these pages waits for a guard to end.
    pub(super) fn has_pending(&self, pages: Range<u64>) -> bool {
        self.lock().pending.touches(pages.start as usize..pages.end as usize)
    }

    /// Copies the waiting bytes into `copy`, a copy of memory from `start` on.
    pub(super) fn overlay(&self, start: usize, copy: &mut [u8]) {
        self.lock().pending.overlay(start, copy);
    }
}

impl BorrowTable {
    fn forget(&mut self, byte: usize) {
        if !self.pending.is_empty() {
            self.pending.clear(byte);
        }
    }

    fn store(&mut self, at: usize, bytes: &[u8], alias: &impl AliasBytes) {
        if !self.pending.is_empty() {
            (at..at + bytes.len()).for_each(|byte| self.pending.clear(byte));
        }
        if !bytes.is_empty() {
            alias.store(at, bytes);
        }
    }
}

#[cfg(test)]
mod tests;
