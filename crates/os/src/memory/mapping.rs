//! Memory mappings that unmap themselves.

use super::error::MemoryError;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Returns the size of a page in bytes, the unit in which memory is moved.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Maximum length of a mapping in bytes: the user half of a 48-bit address space.
const LEN_MAX: usize = 1 << 47;

/// A mapping of `len` bytes at `base` that only this value unmaps. Bytes inside are shared with
/// anyone (threads, peers, other mappings of the same file), so they are reached only through raw
/// pointers.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range that stays valid until it is dropped; it has no thread
// affinity, and the type itself hands out raw pointers only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed private memory, whose pages are allocated at the first touch.
    pub(crate) fn anonymous(len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        // SAFETY: a new mapping at an address of the kernel's choice (no MAP_FIXED) cannot overlap
        // anything.
        let base = unsafe {
            mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }
        .map_err(|why| MemoryError::system("map private memory", len, why))?;
        Mapping::adopt(base, len)
    }

    /// As [`Mapping::anonymous`], but for address space that may be needed later: no memory is
    /// committed now.
    pub(crate) fn anonymous_unpromised(len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as in `anonymous`.
        let base =
            unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .map_err(|why| MemoryError::system("reserve address space for memory", len, why))?;
        Mapping::adopt(base, len)
    }

    /// Maps the first `len` bytes of a file, shared with its other mappings.
    pub(crate) fn of_file(file: BorrowedFd<'_>, len: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        // SAFETY: as in `anonymous`.
        let base = unsafe {
            mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        }
        .map_err(|why| MemoryError::system("map shared memory", len, why))?;
        Mapping::adopt(base, len)
    }

    /// As [`Mapping::anonymous`], beginning at a multiple of `align` bytes (a power of two).
    pub(crate) fn anonymous_aligned(len: usize, align: usize) -> Result<Mapping, MemoryError> {
        let place = Mapping::reserved("map private memory", len, align)?;
        let (flags, rights) =
            (MapFlags::PRIVATE | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: replaces nothing but our own reservation, which nobody knows yet.
        unsafe { mmap_anonymous(place.base.as_ptr().cast(), place.len, rights, flags) }
            .map_err(|why| MemoryError::system("map private memory", len, why))?;
        Ok(place)
    }

    /// As [`Mapping::of_file`], beginning at a multiple of `align` bytes (a power of two).
    pub(crate) fn of_file_aligned(
        file: BorrowedFd<'_>,
        len: usize,
        align: usize,
    ) -> Result<Mapping, MemoryError> {
        let place = Mapping::reserved("map shared memory", len, align)?;
        let (flags, rights) =
            (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: as in `anonymous_aligned`.
        unsafe { mmap(place.base.as_ptr().cast(), place.len, rights, flags, file, 0) }
            .map_err(|why| MemoryError::system("map shared memory", len, why))?;
        Ok(place)
    }

    /// Replaces a part of a file mapping by other bytes of a file, atomically: a thread that
    /// touches it meanwhile sees either the old or the new bytes. All in whole pages.
    pub(crate) fn replace(
        &self,
        at: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> std::io::Result<()> {
        let page = rustix::param::page_size();
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside || len == 0 || !at.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let (flags, rights) =
            (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: inside this mapping, which nobody else unmaps. The new pages are readable and
        // writable, as the old ones, and are only reached through raw pointers.
        unsafe { mmap(self.base.as_ptr().add(at).cast(), len, rights, flags, file, offset) }?;
        Ok(())
    }

    /// Makes the kernel keep a part (whole pages) as a mapping of its own, so that
    /// [replacing](Mapping::replace) the part needs no additional mapping. With `apart` false,
    /// undoes that.
    pub(crate) fn keep_apart(&self, at: usize, len: usize, apart: bool) -> std::io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        // Only core dumps use this flag, and the kernel does not merge mappings that differ in it.
        let advice = if apart { Advice::LinuxDontDump } else { Advice::LinuxDoDump };
        // SAFETY: inside this mapping; the advice changes no bytes.
        unsafe { madvise(self.base.as_ptr().add(at).cast(), len, advice) }?;
        Ok(())
    }

    /// Leaves the mapping out of children of fork.
    pub(crate) fn leave_out_of_forks(&self) -> Result<(), MemoryError> {
        // SAFETY: a live mapping of ours; the advice keeps its bytes.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontFork) }
            .map_err(|why| MemoryError::system("advise on shared memory", self.len, why))
    }

    /// Reserves addresses without memory, beginning at a multiple of `align`.
    fn reserved(what: &'static str, len: usize, align: usize) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        let whole = whole_pages(len + align)?;
        // SAFETY: as in `anonymous`.
        let base = unsafe {
            mmap_anonymous(
                null_mut(),
                whole,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|why| MemoryError::system(what, whole, why))?;
        let before = base.addr().next_multiple_of(align) - base.addr();
        let first = base.wrapping_byte_add(before);
        for (at, rest) in [(base, before), (first.wrapping_byte_add(len), whole - len - before)] {
            if rest > 0 {
                // SAFETY: a part of what was just mapped, which nobody knows yet. If unmapping
                // fails, the addresses stay reserved, which is harmless.
                let _ = unsafe { munmap(at, rest) };
            }
        }
        Mapping::adopt(first, len)
    }

    /// Maps bytes of any file from `offset` on, in whole pages, shared with its other mappings.
    pub(crate) fn of_part_of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Mapping, MemoryError> {
        let len = whole_pages(len)?;
        let rights = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: as in `anonymous`.
        let base = unsafe { mmap(null_mut(), len, rights, MapFlags::SHARED, file, offset) }
            .map_err(|why| MemoryError::system("map a file", len, why))?;
        Mapping::adopt(base, len)
    }

    /// As [`Mapping::of_file`], but read-only: writing through it ends the process.
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

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `adopt`'s caller and is unmapped only here. A holder of a
        // pointer into it also holds this value. Unmapping a whole valid mapping cannot fail.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Returns `len` rounded up to whole pages.
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
    fn aligned_mappings_begin_where_they_should_and_leave_nothing_behind() {
        let count = || {
            std::fs::read_to_string("/proc/self/statm")
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse::<usize>()
                .unwrap()
        };
        let align = 2 << 20;
        let before = count();
        for _ in 0..200 {
            let mapping = Mapping::anonymous_aligned(3 * 4096, align).unwrap();
            assert_eq!(mapping.base().addr().get() % align, 0);
            assert_eq!(mapping.len(), whole_pages(3 * 4096).unwrap());
            // SAFETY: inside the mapping, which no other code knows.
            unsafe { mapping.base().add(mapping.len() - 1).write(7) };
        }
        // Other tests map memory as well, but less than 200 times 2 MiB.
        assert!(count() < before + 200 * align / 4096 / 2);
        assert_eq!(Mapping::anonymous_aligned(0, align).unwrap_err(), MemoryError::Length(0));
    }

    #[test]
    fn more_than_the_machine_has_is_an_error_that_says_what_to_do() {
        let text = Mapping::anonymous(1 << 46).unwrap_err().to_string();
        assert!(text.contains("could not map private memory"), "{text}");
        assert!(text.contains("ulimit -v"), "{text}");
    }
}
