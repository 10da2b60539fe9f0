//! A notice board: numbers that a process shows to others of the same user, who look without
//! disturbing it.
//!
//! The board is a memory file that its process maps and writes with plain stores; a reader finds it
//! under `/proc/PID/fd` by its name and maps it for reading. So there is no file to be named,
//! guarded or cleaned up: the kernel gives a board only to whoever may look into the process
//! anyway, and it is gone with the process, however that ends. The file is sealed: it keeps its
//! size (no access of either side can fail) and nobody but its maker's own mapping can write to it.
//!
//! It holds records of numbers, each under a sequence lock ([`seqlock`]): the writer never waits, a
//! reader looks again.

mod find;
mod seqlock;
mod sync;

pub use find::{Found, find};

use crate::memory::mapping::Mapping;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use sync::AtomicU64;

/// Says that this is a board.
const MAGIC: u64 = u64::from_le_bytes(*b"oikboard");
/// Numbers of the heading: magic, version, records, words, and four to fill a cache line.
const HEADING: usize = 8;
/// Numbers of a cache line: records begin on their own.
const LINE: usize = 8;
/// Bytes of the largest board: nobody maps more.
pub const BOARD_MAX: usize = 64 << 20;

/// How a board is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What the numbers mean; readers know it or leave the board alone.
    pub version: u64,
    /// Records.
    pub records: usize,
    /// Numbers in each.
    pub words: usize,
}

impl Layout {
    /// Numbers from one record to the next, its sequence number included.
    fn stride(self) -> Option<usize> {
        self.words.checked_add(1)?.checked_next_multiple_of(LINE)
    }

    /// Bytes of the whole board, if that is not too much.
    fn bytes(self) -> Option<usize> {
        let words = self.stride()?.checked_mul(self.records)?.checked_add(HEADING)?;
        words.checked_mul(size_of::<u64>()).filter(|bytes| *bytes <= BOARD_MAX)
    }

    /// Where a record's numbers lie among the board's.
    fn place(self, record: usize) -> Option<std::ops::Range<usize>> {
        let start = (record < self.records)
            .then_some(HEADING)?
            .checked_add(record.checked_mul(self.stride()?)?)?;
        Some(start..start.checked_add(self.words)?.checked_add(1)?)
    }
}

/// A board of this process, to write on. Gone when dropped.
#[derive(Debug)]
pub struct Board {
    mapping: Mapping,
    layout: Layout,
    /// Readers find the board through it.
    _file: OwnedFd,
}

impl Board {
    /// A board with all numbers 0, found by others under `name`.
    ///
    /// # Errors
    /// Too large, no memory for it, no descriptor left, or a kernel before 5.1.
    pub fn new(name: &str, layout: Layout) -> io::Result<Board> {
        let bytes = layout.bytes().ok_or(Errno::FBIG)?;
        // As in `memory::memfd`: past this limit the kernel sends SIGXFSZ.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes as u64) {
            return Err(Errno::FBIG.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // As in `memory::memfd`: Linux before 6.3 does not know the flag.
        let file = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|why| if why == Errno::INVAL { memfd_create(name, flags) } else { Err(why) });
        let file = file.and_then(crate::descriptor::not_standard)?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, bytes as u64)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        let mapping = Mapping::of_file(file.as_fd(), bytes).map_err(io::Error::other)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let board = Board { mapping, layout, _file: file };
        let heading = [MAGIC, layout.version, layout.records as u64, layout.words as u64];
        // The magic last: who finds it finds the rest.
        for (word, value) in words_of(&board.mapping, bytes).iter().zip(heading).rev() {
            word.store(value, sync::Ordering::Release);
        }
        Ok(board)
    }

    /// How it is divided.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Write the first numbers of a record; the others stay. Readers see all of them or none.
    pub fn write(&mut self, record: usize, numbers: &[u64]) {
        let all = words_of(&self.mapping, self.layout.bytes().unwrap_or(0));
        if let Some([sequence, words @ ..]) =
            self.layout.place(record).and_then(|place| all.get(place))
        {
            seqlock::write(sequence, words, numbers);
        }
    }
}

/// The first `bytes` of a mapping of a sealed file, as numbers.
fn words_of(mapping: &Mapping, bytes: usize) -> &[AtomicU64] {
    let bytes = bytes.min(mapping.len());
    // SAFETY: the mapping is readable for `bytes` bytes and stays so as long as it is borrowed (its
    // file is sealed, so no access can fault); it begins at a page, hence aligned; bytes that
    // others write are only reached as atomics, for which every bit pattern is valid. A mapping
    // made for reading is only loaded from: `View` has no method that stores.
    unsafe {
        std::slice::from_raw_parts(
            mapping.base().as_ptr().cast::<AtomicU64>(),
            bytes / size_of::<u64>(),
        )
    }
}

/// Another process's board, to look at. It may show anything: what is read is to be judged.
#[derive(Debug)]
pub struct View {
    mapping: Mapping,
    layout: Layout,
}

impl View {
    /// How the board says it is divided; it has room for that.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// All numbers of a record as they were at one moment. `None`: no such record, or its writer
    /// was stopped in the middle.
    #[must_use]
    pub fn read(&self, record: usize) -> Option<Vec<u64>> {
        let all = words_of(&self.mapping, self.layout.bytes()?);
        let [sequence, words @ ..] = all.get(self.layout.place(record)?)? else { return None };
        seqlock::read(sequence, words)
    }

    /// How often a record was written; tells whether it is worth reading again.
    #[must_use]
    pub fn sequence(&self, record: usize) -> Option<u64> {
        let all = words_of(&self.mapping, self.layout.bytes()?);
        let place = self.layout.place(record)?;
        Some(all.get(place.start)?.load(sync::Ordering::Relaxed) / 2)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
