//! A board of numbers that a process publishes, and that other processes of the same user read
//! without disturbing it.
//!
//! The board is a memory file that its process maps and writes with plain stores. A reader finds
//! the file under `/proc/PID/fd` by its name, and maps it for reading. So there is no path to name,
//! guard or clean up. The kernel gives a board only to processes that may look into its process
//! anyway, and the board ends with its process. The file is sealed: it keeps its size, so no access
//! of either side can fail, and only its maker's own mapping can write to it.
//!
//! The board holds records of numbers, each under a sequence lock ([`seqlock`]). The writer never
//! waits, and a disturbed reader reads again.

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

/// First word of every board.
const MAGIC: u64 = u64::from_le_bytes(*b"oikboard");
/// Number of words of the heading: magic, version, records, words, and four to fill a cache line.
const HEADING: usize = 8;
/// Number of words of a cache line. Each record begins on a cache line of its own.
const LINE: usize = 8;
/// Maximum size of a board in bytes. Readers map no larger one.
pub const BOARD_MAX: usize = 64 << 20;

/// Division of a board into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Version of the numbers' meaning. Readers ignore boards of versions that they do not know.
    pub version: u64,
    /// Number of records.
    pub records: usize,
    /// Number of words in each record.
    pub words: usize,
}

impl RecordLayout {
    /// Returns the number of words from one record to the next, the sequence number included.
    fn stride(self) -> Option<usize> {
        self.words.checked_add(1)?.checked_next_multiple_of(LINE)
    }

    /// Returns the size of the whole board in bytes, if that is at most [`BOARD_MAX`].
    fn bytes(self) -> Option<usize> {
        let words = self.stride()?.checked_mul(self.records)?.checked_add(HEADING)?;
        words.checked_mul(size_of::<u64>()).filter(|bytes| *bytes <= BOARD_MAX)
    }

    /// Returns the range of a record's words in the board.
    fn place(self, record: usize) -> Option<std::ops::Range<usize>> {
        let start = (record < self.records)
            .then_some(HEADING)?
            .checked_add(record.checked_mul(self.stride()?)?)?;
        Some(start..start.checked_add(self.words)?.checked_add(1)?)
    }
}

/// A board that this process writes. Dropping it removes it.
#[derive(Debug)]
pub struct Board {
    mapping: Mapping,
    layout: RecordLayout,
    /// Readers find the board through this file.
    _file: OwnedFd,
}

impl Board {
    /// Creates a board with all numbers 0, which others find under `name`.
    ///
    /// # Errors
    /// Too large, no memory for it, no descriptor left, or a kernel before 5.1.
    pub fn new(name: &str, layout: RecordLayout) -> io::Result<Board> {
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
        // The magic is stored last, so that a reader that finds it finds the rest.
        for (word, value) in words_of(&board.mapping, bytes).iter().zip(heading).rev() {
            word.store(value, sync::Ordering::Release);
        }
        Ok(board)
    }

    /// Returns the layout of the board.
    #[must_use]
    pub fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Writes the first numbers of a record, and keeps the others. Readers see all of the new
    /// numbers or none.
    pub fn write(&mut self, record: usize, numbers: &[u64]) {
        let all = words_of(&self.mapping, self.layout.bytes().unwrap_or(0));
        if let Some([sequence, words @ ..]) =
            self.layout.place(record).and_then(|place| all.get(place))
        {
            seqlock::write(sequence, words, numbers);
        }
    }
}

/// Returns the first `bytes` bytes of a mapping of a sealed file, as words.
fn words_of(mapping: &Mapping, bytes: usize) -> &[AtomicU64] {
    let bytes = bytes.min(mapping.len());
    // SAFETY: the mapping is readable for `bytes` bytes and stays so as long as it is borrowed (its
    // file is sealed, so no access can fault); it begins at a page, hence aligned; bytes that
    // others write are only reached as atomics, for which every bit pattern is valid. A mapping
    // made for reading is only loaded from: `StatsView` has no method that stores.
    unsafe {
        std::slice::from_raw_parts(
            mapping.base().as_ptr().cast::<AtomicU64>(),
            bytes / size_of::<u64>(),
        )
    }
}

/// A view of another process's board. It may hold anything, so the reader must check what it reads.
#[derive(Debug)]
pub struct StatsView {
    mapping: Mapping,
    layout: RecordLayout,
}

impl StatsView {
    /// Returns the layout that the board declares, which fits its size.
    #[must_use]
    pub fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Returns all numbers of a record as they were at one moment. Returns `None` if there is no
    /// such record, or if its writer was stopped in the middle.
    #[must_use]
    pub fn read(&self, record: usize) -> Option<Vec<u64>> {
        let all = words_of(&self.mapping, self.layout.bytes()?);
        let [sequence, words @ ..] = all.get(self.layout.place(record)?)? else { return None };
        seqlock::read(sequence, words)
    }

    /// Returns how often a record was written, which tells whether reading it again is worthwhile.
    #[must_use]
    pub fn sequence(&self, record: usize) -> Option<u64> {
        let all = words_of(&self.mapping, self.layout.bytes()?);
        let place = self.layout.place(record)?;
        Some(all.get(place.start)?.load(sync::Ordering::Relaxed) / 2)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
