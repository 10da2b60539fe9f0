//! Private copy of bytes that a guard shows in place of the memory that other nodes change
//! (COH-16.7, COH-16.8).

use std::ops::Range;

use super::error::SharedError;
use super::shared_memory::SharedMemory;
use crate::memory::mapping::Mapping;
use crate::memory::{MemoryError, PageSize, ask_for_huge_pages, huge};
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::limits::PAGE;

/// Length in bytes from which a copy has pages of its own, of which it touches only those that have
/// rows.
const MAPPED: usize = 64 << 10;
/// Bytes that are compared at a time.
const CHUNK: usize = 64;

/// Copy of rows of bytes. The rows lie as they do in the array: from the place of the first row on,
/// and with the same distances.
#[derive(Debug)]
pub(super) struct PrivateCopy {
    buffer: Buffer,
    /// Place in the buffer of the first byte.
    start: usize,
    hull: Range<usize>,
    /// In order and disjoint.
    rows: Vec<Range<usize>>,
    /// Bytes of all rows, one after another, as they were when they were copied. `None` if the
    /// guard only reads.
    twin: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Buffer {
    Mapped(Mapping),
    /// Reached only by the address taken here, as long as the value lives.
    Allocated {
        _bytes: Vec<u8>,
        address: usize,
    },
}

impl PrivateCopy {
    /// Copies these rows of an array. With `writes`, what changes in the copy can be found.
    pub fn of(
        memory: &SharedMemory,
        hull: Range<usize>,
        rows: Vec<Range<usize>>,
        writes: bool,
    ) -> Result<PrivateCopy, SharedError> {
        Self::read_by(memory.name(), hull, rows, writes, |at, into| memory.read(at, into))
    }

    /// Copies rows of the array of this name. `read` copies bytes from a place of the array.
    fn read_by(
        array: &str,
        hull: Range<usize>,
        rows: Vec<Range<usize>>,
        writes: bool,
        read: impl Fn(usize, &mut [u8]) -> Result<(), SharedError>,
    ) -> Result<PrivateCopy, SharedError> {
        // The copy begins at the same place in a page as the array's bytes, so it is aligned alike.
        let (offset, len) = (hull.start % PAGE, hull.len());
        let (buffer, start) = if len >= MAPPED {
            // Each small page would cost a fault, at each guard.
            let mapping = huge::anonymous(len + PAGE, PageSize::Huge).map_err(|why| {
                let tried = format!("copying {len} bytes of array {array:?} for a guard");
                SharedError::memory(tried, why)
            })?;
            (Buffer::Mapped(mapping), offset)
        } else {
            let mut bytes = vec![0u8; len + 2 * PAGE];
            let address = bytes.as_mut_ptr() as usize;
            let start = (offset + PAGE - address % PAGE) % PAGE;
            (Buffer::Allocated { _bytes: bytes, address }, start)
        };
        let mut copy = PrivateCopy { buffer, start, hull, rows, twin: None };
        for row in &copy.rows {
            // SAFETY: inside the buffer, which is this value's own; the row is inside the array.
            let into = unsafe {
                std::slice::from_raw_parts_mut(copy.address(row.start) as *mut u8, row.len())
            };
            read(row.start, into)?;
        }
        if writes {
            let mut twin = Vec::new();
            let len = copy.rows.iter().map(Range::len).sum();
            twin.try_reserve_exact(len).map_err(|_| {
                SharedError::memory(
                    format!("copying {len} bytes of array {array:?} for a guard"),
                    MemoryError::Length(len),
                )
            })?;
            ask_for_huge_pages(&mut twin);
            for row in &copy.rows {
                let first = twin.len();
                twin.extend_from_slice(copy.bytes(row));
                if planted(Bug::ReadCopyTwice) {
                    read(row.start, twin.get_mut(first..).unwrap_or_default())?;
                }
            }
            copy.twin = Some(twin);
        }
        Ok(copy)
    }

    /// Returns the address of the copy of this byte of the array, which is in a row.
    pub fn address(&self, at: usize) -> usize {
        let base = match &self.buffer {
            Buffer::Mapped(mapping) => mapping.base().as_ptr() as usize,
            Buffer::Allocated { address, .. } => *address,
        };
        base + self.start + (at - self.hull.start)
    }

    /// Returns the bytes of a range in a row. The guard that shows the copy has ended, or has not
    /// begun.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        // SAFETY: inside the buffer, which lives as long as `self`; nobody stores there (above).
        unsafe { std::slice::from_raw_parts(self.address(range.start) as *const u8, range.len()) }
    }

    /// Returns the elements of this many bytes that have changed since they were copied, in order.
    /// Elements that follow one another are one range.
    pub fn changed(&self, element: usize) -> Vec<Range<u64>> {
        let (mut changed, element) = (Vec::<Range<u64>>::new(), element.max(1) as u64);
        self.compare(0..usize::MAX, |at, mut bits| {
            while bits != 0 {
                let first = at as u64 + u64::from(bits.trailing_zeros() / 8);
                let end = (first / element + 1) * element;
                match changed.last_mut() {
                    Some(last) if last.end >= first / element * element => last.end = end,
                    _ => changed.push(first / element * element..end),
                }
                // The rest of this element counts already.
                bits = match end - at as u64 {
                    past @ ..8 => bits & (u64::MAX << (8 * past)),
                    _ => 0,
                };
            }
        });
        changed
    }

    /// Passes each run of bytes in this range that has changed to `store`, with its place. A run
    /// that does not fill its eight bytes ends with them.
    pub fn changes_in(&self, range: &Range<u64>, mut store: impl FnMut(usize, &[u8])) {
        let mut store = |run: &Range<usize>| {
            if !run.is_empty() {
                store(run.start, self.bytes(run));
            }
        };
        // Words that have changed in each byte are stored together.
        let mut run = 0..0;
        self.compare(range.start as usize..range.end as usize, |at, bits| {
            let mut changed = changed_bytes(bits);
            if changed == HIGH_BITS && run.end == at {
                run.end += 8;
                return;
            }
            if planted(Bug::StoreUnchanged) && !run.is_empty() {
                run.end = at;
            }
            store(&run);
            run = at..at;
            while changed != 0 {
                let first = changed.trailing_zeros() / 8;
                let rest = changed >> (8 * first);
                let count = (!rest & HIGH_BITS).trailing_zeros() / 8;
                store(&run);
                run.start = at + first as usize;
                run.end = run.start + count as usize;
                let past = u64::MAX.checked_shl(8 * (first + count)).unwrap_or(0);
                changed &= past;
            }
        });
        store(&run);
    }

    /// Passes each eight bytes of this range in which any has changed to `found`: the place of the
    /// first, and the bits that differ, as a word of which the first byte is the lowest.
    fn compare(&self, range: Range<usize>, mut found: impl FnMut(usize, u64)) {
        let Some(mut twin) = self.twin.as_deref() else { return };
        for row in &self.rows {
            let (old, rest) = twin.split_at_checked(row.len()).unwrap_or((twin, &[]));
            twin = rest;
            let part = row.start.max(range.start)..row.end.min(range.end);
            if part.is_empty() {
                continue;
            }
            let old = old.get(part.start - row.start..part.end - row.start).unwrap_or_default();
            let chunks = self.bytes(&part).chunks(CHUNK).zip(old.chunks(CHUNK));
            for (number, (new, old)) in chunks.enumerate().filter(|(_, (new, old))| new != old) {
                let first = part.start + number * CHUNK;
                let words =
                    new.chunks(8).zip(old.chunks(8)).map(|(new, old)| word(new) ^ word(old));
                let differing = words.enumerate().filter(|(_, bits)| *bits != 0);
                differing.for_each(|(at, bits)| found(first + 8 * at, bits));
            }
        }
    }
}

/// Highest bit of each byte of a word.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns a word whose bytes have their highest bit, and no other, where a byte of `bits` is not
/// zero.
const fn changed_bytes(bits: u64) -> u64 {
    // The sum has the highest bit if any lower one is there, and never carries into the next byte.
    (((bits & !HIGH_BITS) + !HIGH_BITS) | bits) & HIGH_BITS
}

/// Returns up to eight bytes as a word, of which the first byte is the lowest.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    /// Returns a copy of rows of an array, whose bytes are `read`.
    fn copy_of(rows: &[Range<usize>], read: impl Fn(usize) -> u8) -> PrivateCopy {
        let hull = rows[0].start..rows[rows.len() - 1].end;
        let read = |at: usize, into: &mut [u8]| {
            into.iter_mut().zip(at..).for_each(|(byte, at)| *byte = read(at));
            Ok(())
        };
        PrivateCopy::read_by("tests", hull, rows.to_vec(), true, read).unwrap()
    }

    /// Stores a byte, as the owner of the guard does.
    fn store(copy: &mut PrivateCopy, at: usize, byte: u8) {
        // SAFETY: a byte of a row is in the buffer, and nobody else reaches the copy.
        unsafe { *(copy.address(at) as *mut u8) = byte };
    }

    /// COH-16.7: the others store to the memory while it is copied.
    #[test]
    fn changes_of_the_memory_are_no_changes_of_the_copy() {
        let number = Cell::new(0_u8);
        for len in [100, MAPPED + 100] {
            let rows = [10..20, 5000..5000 + len];
            let mut copy = copy_of(&rows, |_| {
                number.set(number.get().wrapping_add(1));
                number.get()
            });
            assert_eq!(copy.changed(1), []);
            let byte = copy.bytes(&(15..16))[0];
            store(&mut copy, 15, !byte);
            assert_eq!(copy.changed(1), std::slice::from_ref(&(15..16)));
        }
    }

    proptest! {
        /// COH-16.7: no byte is stored that has not changed, and each that has.
        #[test]
        fn changes_are_the_elements_and_bytes_that_have_changed(
            first in 0usize..900,
            lens in prop::collection::vec((1usize..40, 0usize..40), 1..5),
            element in 1usize..30,
            stores in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3), 0..60),
        ) {
            let mut rows = Vec::new();
            let mut at = first;
            for (len, gap) in lens {
                rows.push(at * element..(at + len) * element);
                at += len + gap;
            }
            let mut copy = copy_of(&rows, |at| at as u8 % 3);
            let places: Vec<_> = rows.iter().cloned().flatten().collect();
            for (place, byte) in stores {
                store(&mut copy, *place.get(&places), byte);
            }
            let has_changed = |at: &usize| copy.bytes(&(*at..at + 1)) != [*at as u8 % 3];
            let expected: Vec<_> = places.iter().copied().filter(has_changed).collect();
            let changed = copy.changed(element);
            let are_apart = changed.windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(are_apart, "elements that follow one another are one range");
            let elements = changed.iter().flat_map(|range| range.start as usize..range.end as usize);
            let elements: BTreeSet<_> = elements.map(|byte| byte / element).collect();
            let of_bytes: BTreeSet<_> = expected.iter().map(|byte| byte / element).collect();
            prop_assert_eq!(elements, of_bytes);
            let mut stored = Vec::new();
            for range in &changed {
                copy.changes_in(range, |at, bytes| {
                    assert_eq!(bytes, copy.bytes(&(at..at + bytes.len())));
                    stored.extend(at..at + bytes.len());
                });
            }
            prop_assert_eq!(stored, expected);
        }
    }
}
