//! Private copy of bytes that a guard shows in place of the memory that other nodes change
//! (COH-16.7, COH-16.8).

use std::ops::Range;

use super::error::SharedError;
use super::shared_memory::SharedMemory;
use crate::memory::MemoryError;
use crate::memory::mapping::Mapping;
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
        // The copy begins at the same place in a page as the array's bytes, so it is aligned alike.
        let (offset, len) = (hull.start % PAGE, hull.len());
        let (buffer, start) = if len >= MAPPED {
            let mapping = Mapping::anonymous(len + PAGE).map_err(|why| {
                let tried = format!("copying {len} bytes of array {:?} for a guard", memory.name());
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
            memory.read(row.start, into)?;
        }
        if writes {
            let mut twin = Vec::new();
            let len = copy.rows.iter().map(Range::len).sum();
            twin.try_reserve_exact(len).map_err(|_| {
                SharedError::memory(
                    format!("copying {len} bytes of array {:?} for a guard", memory.name()),
                    MemoryError::Length(len),
                )
            })?;
            copy.rows.iter().for_each(|row| twin.extend_from_slice(copy.bytes(row)));
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
                        _ => changed.push(byte..byte + 1),
                    }
                }
            }
        }
        changed
    }
}
