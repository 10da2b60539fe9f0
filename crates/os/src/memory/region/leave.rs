//! A region that leaves its memory to somebody who is still in the middle of reaching it
//! (MEM-18.6).

use super::super::mapping::{Mapping, whole_pages};
use super::super::{MemoryError, huge, memfd, room};
use super::file_pages::{Backed, FilePages, NotTaken};
use super::{Backing, PagesLock, Region};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::Arc;

impl PagesLock {
    /// Have other memory at the same addresses, with the same bytes: what is stored into the old
    /// one from then on, through another process's mapping, is not seen here. Local peers are not
    /// handed it any more. Nobody may store here meanwhile: it may be lost. Who makes it grow
    /// waits.
    ///
    /// # Errors
    /// Not enough memory or mappings; it is as it was (unless [`NotTaken::Torn`]).
    pub fn leave_memory(&self) -> Result<(), MemoryError> {
        let region = self.region();
        let (Backing::Shared { alias, .. }, Some(backed)) =
            (&region.inner.backing, region.backed())
        else {
            return Ok(());
        };
        // What is added meanwhile is to be reserved in the file that counts then.
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
            // As much as it has grown to.
            memfd::reserve(&file, 0, whole_pages(len)?)?;
            fresh
        };
        // SAFETY: both mappings have `len` bytes and live until the end of this; the new one is
        // nobody else's yet. Who stores into the old one meanwhile spoils a copy of bytes.
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
    /// Has nobody else mapped its memory, because it [left](PagesLock::leave_memory) what others
    /// had?
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

    /// MEM-18.6: the bytes stay, at their addresses, through both mappings; what somebody stores
    /// into the old memory is not among them.
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
            // SAFETY: in a mapping of a file that is reached by raw pointers only.
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
            // It grows as before, and is nobody's to map.
            region.grow(region.capacity()).unwrap();
            region.fill(0, region.len() as u64, 7).unwrap();
            assert!(read(0, region.len()).iter().all(|byte| *byte == 7) && region.file().is_none());
            // Once more is as good.
            region.lock_pages().unwrap().leave_memory().unwrap();
            assert!(read(0, region.len()).iter().all(|byte| *byte == 7));
        }
    }

    /// What it grows by while it leaves its memory is reserved: an access that finds none later
    /// could not be told of it but by a signal.
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
