//! Which parts of an array this process's threads hold: `RefCell`, by ranges.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::SharedError;
use crate::origin::Origin;

/// A registry of the byte ranges that are lent out. Readers may overlap readers; a writer overlaps nobody.
///
/// It answers only for this process. Between nodes the program's own synchronisation does (spec/coherence.md: data-race freedom).
#[derive(Debug, Default)]
pub struct Borrows {
    held: Mutex<Held>,
    origin: Origin,
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
        // Ranges overlap if the later start comes before the earlier end; an empty one overlaps nothing.
        let overlaps = |e: &&Entry| e.bytes.start.max(bytes.start) < e.bytes.end.min(bytes.end);
        let conflict = held.ranges.iter().filter(overlaps).find(|e| writer || e.writer);
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
        // In a child of fork the lock may be held for ever, by a thread that the child does not have (MEM-24.2).
        if !self.origin.is_here() {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refusal_names_both_ranges_and_what_to_do() {
        let borrows = Borrows::default();
        borrows.borrow("p", 0..64, false).unwrap();
        let text = borrows.borrow("p", 32..96, true).unwrap_err().to_string();
        assert!(text.contains("writing bytes 32..96 of array \"p\"") && text.contains("reads bytes 0..64"), "{text}");
        assert!(text.contains("Drop that guard"), "{text}");
    }

    #[test]
    fn a_guard_gives_back_when_it_is_dropped() {
        let borrows = Borrows::default();
        let guard = WriteGuard::<u8>::new(&borrows, borrows.borrow("p", 0..8, true).unwrap(), &mut []);
        assert!(borrows.borrow("p", 7..8, false).is_err());
        assert_eq!(borrows.count(), 1);
        drop(guard);
        assert_eq!(borrows.count(), 0);
        borrows.borrow("p", 7..8, true).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The oracle: a count of readers and writers for each byte.
        #[test]
        fn lends_exactly_what_no_byte_forbids(asks in proptest::collection::vec((0..20_usize, 0..8_usize, any::<bool>(), any::<bool>()), 1..60)) {
            let borrows = Borrows::default();
            let mut held: Vec<(u64, Range<usize>, bool)> = Vec::new();
            for (start, len, writer, give_back) in asks {
                if give_back && let Some((ticket, ..)) = held.pop() {
                    borrows.give_back(ticket);
                }
                let bytes = start..start + len;
                let forbidden = bytes.clone().any(|b| held.iter().any(|(_, r, w)| r.contains(&b) && (writer || *w)));
                let answer = borrows.borrow("p", bytes.clone(), writer);
                prop_assert_eq!(answer.is_err(), forbidden);
                held.extend(answer.ok().map(|ticket| (ticket, bytes, writer)));
                prop_assert_eq!(borrows.count(), held.len());
            }
        }
    }
}
