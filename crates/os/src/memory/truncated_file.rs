//! Files for tests: one without a name, and a mapped one that is shorter than its mapping, for lent
//! pages that cannot be had (MEM-1.12).

use super::error::MemoryError;
use super::mapping::Mapping;
use rustix::fd::AsFd;
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a new, empty file at `path` for reading and writing, and removes its name at once. The
/// file ends with its last descriptor.
///
/// # Errors
/// The file exists, or cannot be made.
pub fn nameless_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// A mapping of a file that was shortened afterwards. Bytes behind the file's end can be lent, but
/// touching them ends the process (SIGBUS).
#[derive(Debug)]
pub struct TruncatedFile {
    memory: Mapping,
    len: usize,
}

impl TruncatedFile {
    /// Maps `len` zeroed bytes of a new file at `path`, then truncates the file to `kept` bytes.
    /// Its name is removed at once.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub fn new(path: &Path, len: usize, kept: u64) -> io::Result<TruncatedFile> {
        let file = nameless_file(path)?;
        file.set_len(len as u64)?;
        let memory = Mapping::of_part_of_file(file.as_fd(), 0, len, false)
            .map_err(|why: MemoryError| io::Error::other(why))?;
        file.set_len(kept)?;
        Ok(TruncatedFile { memory, len })
    }

    /// Returns all bytes, to be lent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped for as long as `self` lives. No process can write them:
        // the mapping is for reading, and the file has neither a name nor a descriptor any more.
        // Touching bytes past the file's end raises a signal, which is not undefined behaviour.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr(), self.len) }
    }
}
