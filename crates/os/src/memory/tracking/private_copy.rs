//! Private copy of bytes that a guard shows in place of the memory that other nodes change
//! (COH-16.7, COH-16.8).

use std::ops::Range;

use super::error::SharedError;
use super::shared_memory::SharedMemory;
use crate::memory::MemoryError;
use crate::memory::mapping::Mapping;
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
            let mapping = Mapping::anonymous(len + PAGE).map_err(|why| {
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

    /// Returns the runs of bytes that have changed since they were copied, in order.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let mut changed: Vec<Range<u64>> = Vec::new();
        let Some(mut twin) = self.twin.as_deref() else { return changed };
        for row in &self.rows {
            let (old, rest) = twin.split_at_checked(row.len()).unwrap_or((twin, &[]));
            twin = rest;
            let chunks = self.bytes(row).chunks(CHUNK).zip(old.chunks(CHUNK));
            for (number, (new, old)) in chunks.enumerate().filter(|(_, (new, old))| new != old) {
                let first = row.start + number * CHUNK;
                for (at, _) in new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old)
                {
                    let byte = (first + at) as u64;
                    match changed.last_mut() {
                        Some(run) if run.end == byte => run.end += 1,
                        Some(run) if planted(Bug::StoreUnchanged) => run.end = byte + 1,
                        _ => changed.push(byte..byte + 1),
                    }
                }
            }
        }
        changed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

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
            assert_eq!(copy.changed(), []);
            let byte = copy.bytes(&(15..16))[0];
            store(&mut copy, 15, !byte);
            assert_eq!(copy.changed(), std::slice::from_ref(&(15..16)));
        }
    }

    proptest! {
        /// COH-16.7: no byte is stored that has not changed, and each that has.
        #[test]
        fn changed_runs_are_the_bytes_that_have_changed(
            first in 0usize..9000,
            lens in prop::collection::vec((1usize..300, 1usize..300), 1..5),
            stores in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3), 0..60),
        ) {
            let mut rows = Vec::new();
            let mut at = first;
            for (len, gap) in lens {
                rows.push(at..at + len);
                at += len + gap;
            }
            let mut copy = copy_of(&rows, |at| at as u8 % 3);
            let places: Vec<_> = rows.iter().cloned().flatten().collect();
            for (place, byte) in stores {
                store(&mut copy, *place.get(&places), byte);
            }
            let has_changed = |at: &usize| copy.bytes(&(*at..at + 1)) != [*at as u8 % 3];
            let expected: Vec<_> = places.iter().copied().filter(has_changed).collect();
            let changed = copy.changed();
            let bytes = changed.iter().flat_map(|run| run.start as usize..run.end as usize);
            prop_assert_eq!(bytes.collect::<Vec<_>>(), expected);
            let are_apart = changed.windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(are_apart, "runs that touch are one");
        }
    }
}
