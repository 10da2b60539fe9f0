//! Reading end of a ring that a BPF program in the kernel writes to (`BPF_MAP_TYPE_RINGBUF`).

use crate::memory::MemoryError;
use crate::memory::mapping::Mapping;
use crate::net::bypass::bpf::Map;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// Flags in a record's first word, beside its length: the record is being written, or has to be
/// skipped.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes before a record: its length, and a word for the kernel only.
const HEAD: usize = 8;

/// A ring and the position up to which it is read.
#[derive(Debug)]
pub(super) struct BpfRing {
    map: Map,
    /// A page with the reading position, for the writer.
    read: Mapping,
    /// A page with the writing position, followed by all bytes of the ring, mapped twice so that no
    /// record is in two pieces.
    written: Mapping,
    bytes: usize,
    position: u64,
    /// Reading position that the writer was given last.
    reported: u64,
}

impl BpfRing {
    /// Makes a ring of `bytes`, a power of two and whole pages.
    pub(super) fn new(bytes: u32) -> Result<BpfRing, Errno> {
        let map = Map::ring(bytes)?;
        let (page, bytes) = (rustix::param::page_size(), bytes as usize);
        let no_memory = |_: MemoryError| Errno::NOMEM;
        let read = Mapping::of_part_of_file(map.as_fd(), 0, page, true).map_err(no_memory)?;
        let written = Mapping::of_part_of_file(map.as_fd(), page as u64, page + 2 * bytes, false)
            .map_err(no_memory)?;
        Ok(BpfRing { map, read, written, bytes, position: 0, reported: 0 })
    }

    /// Descriptor of the map, for the program. It is readable if there is a record that was not
    /// taken.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Returns `true` if there is no record.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // SAFETY: the first word of a mapped page, aligned, which the kernel writes as one.
        let written = unsafe { self.written.base().cast::<AtomicU64>().as_ref() };
        written.load(Ordering::Acquire) == self.position
    }

    /// Takes records until they hold `most` datagrams, and returns how many they held. `each`
    /// counts those of a record. A record without any counts as one.
    pub(super) fn take(&mut self, most: usize, each: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let mut taken = 0;
        while taken < most && !self.is_empty() {
            let page = rustix::param::page_size();
            let at = page + (self.position as usize & (self.bytes - 1));
            // SAFETY: `at` is the beginning of a record below `page + bytes`, a multiple of eight:
            // the kernel has written up to beyond it. It changes this word once more, as one.
            let head = unsafe { self.written.base().add(at).cast::<AtomicU32>().as_ref() }
                .load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let len = (head & !DISCARDED) as usize;
            if len + HEAD > self.bytes {
                // The kernel never writes such a length, and without a valid length the next record
                // cannot be found.
                break;
            }
            if head & DISCARDED == 0 {
                // SAFETY: `len` bytes from here on are mapped, the second time if need be; the
                // record is complete, and the kernel writes there again only after it was told that
                // it is read, which is below.
                let held = each(unsafe {
                    core::slice::from_raw_parts(self.written.base().add(at + HEAD).as_ptr(), len)
                });
                taken += held.max(1);
            }
            self.position += (len + HEAD).next_multiple_of(8) as u64;
            // The writer reads the position's cache line at every record, so the position is only
            // published now and then.
            if self.position - self.reported >= self.bytes as u64 / 8 {
                self.report();
            }
        }
        taken
    }

    /// Publishes the reading position to the writer, so that the descriptor is readable only for
    /// records that were not taken.
    pub(super) fn report(&mut self) {
        self.reported = self.position;
        // SAFETY: the first word of a mapped page, aligned; the kernel only reads it.
        unsafe { self.read.base().cast::<AtomicU64>().as_ref() }
            .store(self.position, Ordering::Release);
    }
}
