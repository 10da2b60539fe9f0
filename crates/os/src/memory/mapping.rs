//! A mapping that unmaps itself.

use super::MemoryError;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// The longest mapping: the user half of a 48-bit address space.
const LEN_MAX: usize = 1 << 47;

/// `len` bytes at `base`, mapped by us and by nobody else unmapped. Bytes inside are shared with anyone (threads, peers, other
/// mappings of the same file): they are only reached through raw pointers.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that stays valid until it is dropped; it has no thread affinity, and the type itself
// hands out raw pointers only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory, given pages as it is touched.
    pub(crate) fn anonymous(len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        // SAFETY: a new mapping at an address of the kernel's choice (no MAP_FIXED) cannot overlap anything.
        let base = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }
            .map_err(|why| MemoryError::system("map private memory", len, why))?;
        Mapping::adopt(base, len)
    }

    /// The first `len` bytes of a file, shared with its other mappings.
    pub(crate) fn of_file(file: BorrowedFd<'_>, len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        // SAFETY: as in `anonymous`.
        let base = unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }
            .map_err(|why| MemoryError::system("map shared memory", len, why))?;
        Mapping::adopt(base, len)
    }

    /// As [`Mapping::of_file`], but writing through it ends the process: for bytes that are only looked at.
    pub(crate) fn of_file_for_reading(file: &OwnedFd, len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        // SAFETY: as in `anonymous`.
        let base = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }
            .map_err(|why| MemoryError::system("map shared memory", len, why))?;
        Mapping::adopt(base, len)
    }

    fn adopt(base: *mut c_void, len: usize) -> Result<Mapping, MemoryError> {
        let base = NonNull::new(base.cast()).ok_or(MemoryError::Length(len))?;
        Ok(Mapping { base, len })
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `adopt`'s caller and is unmapped only here; whoever holds a pointer into it holds
        // this value too. Unmapping a whole valid mapping cannot fail.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// `len` rounded up to pages.
pub(crate) fn whole_pages(len: usize) -> Result<usize, MemoryError> {
    let page = rustix::param::page_size();
    match len {
        1..=LEN_MAX => Ok(len.div_ceil(page) * page),
        _ => Err(MemoryError::Length(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_pages_and_nonsense_is_refused() {
        let page = rustix::param::page_size();
        assert_eq!(Mapping::anonymous(1).unwrap().len(), page);
        assert_eq!(Mapping::anonymous(page).unwrap().len(), page);
        assert_eq!(Mapping::anonymous(0).unwrap_err(), MemoryError::Length(0));
        assert_eq!(Mapping::anonymous(usize::MAX).unwrap_err(), MemoryError::Length(usize::MAX));
    }

    #[test]
    fn more_than_the_machine_has_is_an_error_that_says_what_to_do() {
        let text = Mapping::anonymous(1 << 46).unwrap_err().to_string();
        assert!(text.contains("could not map private memory") && text.contains("ulimit -v"), "{text}");
    }
}
