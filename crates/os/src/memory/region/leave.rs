//! Replaces a region's memory while another process may still access the old memory (MEM-18.6).

use super::super::mapping::{Mapping, whole_pages};
use super::super::{MemoryError, huge, memfd, room};
use super::file_pages::{Backed, FilePages, NotTaken};
use super::{Backing, PagesLock, Region};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::Arc;

impl PagesLock {
    /// Puts new memory with the same bytes at the same addresses. Stores into the old memory
    /// through another process's mapping are not seen here afterwards. Local peers no longer
    /// receive the region's file. No thread may store into the region meanwhile, because such a
    /// store may be lost. A thread that grows the region waits.
    ///
    /// # Errors
    /// Not enough memory or mappings. The region is then unchanged (unless [`NotTaken::Torn`]).
    pub fn leave_memory(&self) -> Result<(), MemoryError> {
        let region = self.region();
        let (Backing::Shared { alias, .. }, Some(backed)) =
            (&region.inner.backing, region.backed())
        else {
            return Ok(());
        };
        // Growth must wait, so that it reserves memory in the file that is in use afterwards.
        let _steady = backed.growing();
        if region.has_left_memory() {
            return Ok(());
        }
        region.leave_file();
        let refused = |why: Errno| MemoryError::system("replace shared memory", alias.len(), why);
        let len = region.len();
        let _room = room::reserve(whole_pages(len)?)?;
        let file = memfd::sparse("oikaze-region", alias.len())?;
        let fresh = if let Some(align) = region.huge_pages() {
            let fresh = Mapping::of_file_aligned(file.as_fd(), alias.len(), align)?;
            huge::fill(&file, &fresh, region.page_size())?;
            fresh
        } else {
            let fresh = Mapping::of_file(file.as_fd(), alias.len())?;
            // Reserve only the current length, not the capacity.
            memfd::reserve(&file, 0, whole_pages(len)?)?;
            fresh
        };
        // SAFETY: both mappings have `len` bytes and live until the end of this function. No other
        // thread knows the new one. A concurrent store into the old one only garbles copied bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(alias.base().as_ptr(), fresh.base().as_ptr(), len)
        };
        let file = Arc::new(file);
        let pages = FilePages { file: Arc::clone(&file), offset: 0, len: alias.len() as u64 };
        self.put_behind(0, pages).map_err(|not_taken| {
            let (NotTaken::Refused(why) | NotTaken::Torn(why)) = not_taken;
            refused(Errno::from_io_error(&why).unwrap_or(Errno::NOMEM))
        })?;
        backed.renew(file);
        Ok(())
    }
}

impl Region {
    /// Returns `true` if no other process has mapped its memory, because the region has
    /// [left](PagesLock::leave_memory) the old memory.
    #[must_use]
    pub fn has_left_memory(&self) -> bool {
        self.backed().is_some_and(Backed::is_renewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::sync::Barrier;

    /// MEM-18.6: the bytes stay at their addresses through both mappings. Stores into the old
    /// memory are not among them.
    #[test]
    fn what_is_stored_into_the_memory_that_was_left_is_not_seen() {
        const LEN: usize = (5 << 20) + 100;
        for region in
            [Region::shared(LEN), Region::shared(100), Region::shared_with_capacity(100, LEN)]
                .map(Result::unwrap)
        {
            let other = Mapping::of_file(region.file().unwrap(), 100).unwrap();
            let (at, last) = (region.view_ptr(), region.len() as u64 - 4);
            region.write(0, b"before").unwrap();
            region.write(last, b"last").unwrap();
            region.lock_pages().unwrap().leave_memory().unwrap();
            // SAFETY: inside a mapping of a file that is reached by raw pointers only.
            unsafe { other.base().write(b'X') };
            let read = |offset, len: usize| {
                region.lend(offset, len as u64).unwrap().with_bytes(<[u8]>::to_vec)
            };
            assert_eq!(
                (read(0, 6), read(last, 4), region.view_ptr()),
                (b"before".to_vec(), b"last".to_vec(), at)
            );
            region.write(1, b"E").unwrap();
            assert_eq!(read(0, 6), b"bEfore");
            // The region grows as before, and its file is no longer handed out.
            region.grow(region.capacity()).unwrap();
            region.fill(0, region.len() as u64, 7).unwrap();
            assert!(read(0, region.len()).iter().all(|byte| *byte == 7) && region.file().is_none());
            // A second call changes nothing.
            region.lock_pages().unwrap().leave_memory().unwrap();
            assert!(read(0, region.len()).iter().all(|byte| *byte == 7));
        }
    }

    /// Growth during `leave_memory` is reserved in the new memory. A later access that finds no
    /// memory could only be reported by a signal.
    #[test]
    fn what_is_added_meanwhile_is_reserved_in_the_new_memory() {
        const STEP: usize = 64 << 10;
        for _ in 0..100 {
            let region = Region::shared_with_capacity(16 * STEP, 32 * STEP).unwrap();
            let begin = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    (17..=32).for_each(|steps| region.grow(steps * STEP).unwrap());
                });
                begin.wait();
                region.lock_pages().unwrap().leave_memory().unwrap();
            });
            let reserved = fstat(region.backed().unwrap().own()).unwrap().st_blocks as usize * 512;
            assert!(reserved >= region.len(), "{reserved} of {}", region.len());
        }
    }
}
