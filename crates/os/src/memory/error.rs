//! Errors of memory allocation and access, each with a remedy.

use oikaze_protocol::limits::PAGE;
use rustix::io::Errno;

/// Memory could not be allocated, mapped or registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// A system call failed.
    #[error("could not {what} ({bytes} bytes): {why}; {remedy}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Size of the memory in bytes.
        bytes: usize,
        /// Error that the system call returned.
        why: Errno,
        /// Remedy that is suggested.
        remedy: &'static str,
    },
    /// Less memory is available than was asked for. Taking it page by page would invoke the
    /// out-of-memory killer.
    #[error(
        "could not reserve {bytes} bytes: only {available} bytes are available ({limit}); use less, or raise the limit"
    )]
    NotAvailable {
        /// Number of bytes asked for.
        bytes: usize,
        /// Number of bytes available.
        available: usize,
        /// Name of the limit that was reached.
        limit: &'static str,
    },
    /// The length is zero or larger than any machine's memory.
    #[error("a region of {0} bytes makes no sense; ask for 1 byte to 2^47 bytes")]
    Length(usize),
    /// The memory itself cannot grant these rights.
    #[error(
        "this memory was lent for reading; write and atomic rights cannot be granted, borrow it mutably instead"
    )]
    ReadOnly,
    /// The region's two mappings show different bytes.
    #[error(
        "pages of this region were lost when they were to change place with others, for want of mappings: peers would not see what the program does; make another region, and raise vm.max_map_count"
    )]
    Torn,
    /// The offset is inside a page, but files are mapped in whole pages.
    #[error(
        "a file cannot be mapped from byte {0} on, which is inside a page; begin at a multiple of the page size"
    )]
    FileOffset(u64),
    /// The length is not permitted: a region grows into address space reserved for it, and never
    /// shrinks.
    #[error(
        "a region of {len} bytes cannot have {asked}: it may grow to {capacity}; make it with a larger capacity"
    )]
    Capacity {
        /// Length in bytes that was asked for.
        asked: usize,
        /// Current length in bytes.
        len: usize,
        /// Maximum length in bytes.
        capacity: usize,
    },
    /// No region is registered under this number any more.
    #[error("this region is not registered any more; register its memory again")]
    NotRegistered,
    /// The range is not in whole pages, to which rights are granted.
    #[error(
        "bytes {start}..{end} of a region of {size} bytes are not whole pages of {PAGE} bytes; rights are granted to whole pages, the last one to the region's end"
    )]
    NotPages {
        /// Offset of the first byte.
        start: u64,
        /// Offset just past the last byte.
        end: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The table has no slot left.
    #[error("{0} regions are registered, which is all there may be; remove some")]
    TableFull(usize),
    /// No random key could be drawn.
    #[error("could not draw a random key: {0}; is /dev/urandom there and getrandom(2) permitted?")]
    Random(&'static str),
}

impl MemoryError {
    pub(crate) fn system(what: &'static str, bytes: usize, why: Errno) -> MemoryError {
        let remedy = match why {
            Errno::NOMEM => {
                "use less memory, or look at ulimit -v, the container's memory limit, vm.overcommit_memory and vm.max_map_count"
            }
            Errno::NOSPC => {
                "memory for shared files (tmpfs) is full: use less, or free some in /dev/shm and the container's limit"
            }
            Errno::MFILE | Errno::NFILE => "too many open files: raise ulimit -n",
            Errno::FBIG => "the file size limit is lower: raise ulimit -f",
            Errno::AGAIN => "locked memory is limited: raise ulimit -l",
            Errno::PERM | Errno::ACCESS => {
                "the sandbox forbids it: permit memfd_create and mmap in the seccomp profile"
            }
            Errno::NOSYS => {
                "the kernel is too old or the sandbox hides the call: Linux 5.15 or newer is needed"
            }
            _ => "see the system's message",
        };
        MemoryError::System { what, bytes, why, remedy }
    }
}

/// An access to a region failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The range ends past the region's end.
    #[error("{len} bytes at offset {offset} lie outside a region of {size} bytes")]
    OutOfBounds {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The word of an atomic access is not aligned.
    #[error(
        "the word at offset {offset} is not at a multiple of {width} bytes in memory; atomics of {width} bytes need that"
    )]
    Misaligned {
        /// Offset of the word.
        offset: u64,
        /// Width of the word in bytes.
        width: u64,
    },
    /// Pages of the range cannot be brought into memory.
    #[error(
        "{len} bytes at offset {offset} cannot be had: the file they belong to was truncated, or its disk failed"
    )]
    Lost {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The memory was lent for reading.
    #[error("this memory was lent for reading only; borrow it mutably to write")]
    ReadOnly,
    /// The scope that lent the memory has ended.
    #[error("the scope that lent this memory has ended; use the region only inside it")]
    Closed,
}
