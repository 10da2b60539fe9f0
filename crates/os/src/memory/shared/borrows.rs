//! Which parts of an array this process's threads hold: `RefCell`, by ranges.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::SharedError;

/// A registry of the byte ranges that are lent out. Readers may overlap readers; a writer overlaps nobody.
///
/// It answers only for this process. Between nodes the program's own synchronisation does (spec/coherence.md: data-race freedom).
#[derive(Debug, Default)]
pub struct Borrows {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    ranges: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    bytes: Range<usize>,
    writer: bool,
}

impl Borrows {
    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing inside can panic half-way, so a poisoned lock still guards a consistent list.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many guards are alive.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().ranges.len()
    }

    /// Lend out `bytes`, or say which guard is in the way.
    pub(super) fn borrow(&self, array: &str, bytes: Range<usize>, writer: bool) -> Result<u64, SharedError> {
        let mut held = self.lock();
        let conflict =
            held.ranges.iter().find(|e| (writer || e.writer) && e.bytes.start < bytes.end && bytes.start < e.bytes.end);
        if let Some(e) = conflict {
            return Err(SharedError::invalid(
                format!("{} bytes {}..{} of array {array:?}", if writer { "writing" } else { "reading" }, bytes.start, bytes.end),
                format!(
                    "a guard that {} bytes {}..{} is alive in this process",
                    if e.writer { "writes" } else { "reads" },
                    e.bytes.start,
                    e.bytes.end
                ),
                "Drop that guard first, or cut the range so that threads hold disjoint parts.",
            ));
        }
        let ticket = held.next;
        held.next += 1;
        held.ranges.push(Entry { ticket, bytes, writer });
        Ok(ticket)
    }

    fn give_back(&self, ticket: u64) {
        let mut held = self.lock();
        if let Some(at) = held.ranges.iter().rposition(|e| e.ticket == ticket) {
            held.ranges.swap_remove(at);
        }
    }
}

/// Ends a borrow when dropped.
#[derive(Debug)]
struct Loan<'a> {
    borrows: &'a Borrows,
    ticket: u64,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.borrows.give_back(self.ticket);
    }
}

/// Elements of a shared array, for reading.
pub struct ReadGuard<'a, T> {
    elements: &'a [T],
    _loan: Loan<'a>,
}

/// Elements of a shared array, for reading and writing.
pub struct WriteGuard<'a, T> {
    elements: &'a mut [T],
    _loan: Loan<'a>,
}

impl<'a, T> ReadGuard<'a, T> {
    pub(super) fn new(borrows: &'a Borrows, ticket: u64, elements: &'a [T]) -> Self {
        ReadGuard { elements, _loan: Loan { borrows, ticket } }
    }
}

impl<'a, T> WriteGuard<'a, T> {
    pub(super) fn new(borrows: &'a Borrows, ticket: u64, elements: &'a mut [T]) -> Self {
        WriteGuard { elements, _loan: Loan { borrows, ticket } }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

// Printing the elements would touch pages, and a touch may wait for another node: only the length is shown.
impl<T> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").field("len", &self.elements.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("len", &self.elements.len()).finish_non_exhaustive()
    }
}
