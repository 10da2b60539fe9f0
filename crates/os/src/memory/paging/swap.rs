//! Presence of memory that has no file but may still be absent (MEM-1.10). This is any memory on a
//! machine that swaps, and lent memory, which may be a mapped file.
//!
//! There is much of such memory and it is nearly always present, so pages that were recently found
//! present are not checked again.

use crate::memory::paging;
use core::ptr::NonNull;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, pread};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of entries of `/proc/self/pagemap` read per call.
const ENTRIES: usize = 256;
/// Bits "page is present" and "page is swapped" of such an entry
/// (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Maximum pages of a range that is remembered. The pieces of a longer range are remembered when
/// each is sent or received.
const REMEMBERED: usize = 1024;

/// Returns `true` if this machine swaps and pages can be fetched here (Linux 5.14). The answer is
/// that of the first call.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| rustix::system::sysinfo().totalswap > 0 && can_fetch())
}

/// Returns `true` if absent pages can be fetched without changing their content.
pub(crate) fn can_fetch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| paging::populate(NonNull::from(&CAN).cast(), 1, false) != Err(Errno::INVAL))
}

/// Returns `true` if all pages of these bytes are in memory. Calls `look` unless all of them were
/// recently found present.
pub(crate) fn is_present(
    at: NonNull<u8>,
    len: usize,
    look: impl FnOnce(Range<usize>) -> bool,
) -> bool {
    let whole = whole_pages(at, len);
    let page = rustix::param::page_size();
    let pages = whole.start / page..whole.end / page;
    let few = pages.len() <= REMEMBERED;
    let tick = tick();
    if few && pages.clone().all(|page| SEEN.has(page, tick)) {
        return true;
    }
    let present = look(whole);
    if few && present {
        pages.for_each(|page| SEEN.note(page, tick));
    }
    present
}

/// Returns the address range of the pages that hold these bytes.
fn whole_pages(at: NonNull<u8>, len: usize) -> Range<usize> {
    let page = rustix::param::page_size();
    let (first, last) =
        (at.as_ptr().addr() / page, (at.as_ptr().addr() + len.saturating_sub(1)) / page);
    first * page..(last + 1) * page
}

/// Returns `true` if the file has data in the range, in memory or not. Sparse parts and pages that
/// are only reserved do not count.
pub(crate) fn has_data(file: BorrowedFd<'_>, range: Range<usize>) -> bool {
    seek(file, SeekFrom::Data(range.start as u64)).is_ok_and(|at| at < range.end as u64)
}

/// Returns `true` if one of these private pages is in swap space, and `false` if the kernel does
/// not say.
pub(crate) fn is_swapped(pages: Range<usize>) -> bool {
    any_entry(pages, |entry| entry & SWAPPED != 0).unwrap_or(false)
}

/// Returns `true` if all pages of these bytes are mapped, so that touching them waits for nothing.
/// If the kernel does not say, answers as [`paging::is_present`].
pub(crate) fn is_mapped(at: NonNull<u8>, len: usize) -> bool {
    any_entry(whole_pages(at, len), |entry| entry & PRESENT == 0)
        .map_or_else(|| paging::is_present(at, len), |absent| !absent)
}

/// Returns `true` if `is_so` holds for the page map entry of one of these pages, or `None` if the
/// page map cannot be read.
fn any_entry(pages: Range<usize>, is_so: impl Fn(u64) -> bool) -> Option<bool> {
    static MAP: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let map = MAP
        .get_or_init(|| {
            open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
        })
        .as_ref()?;
    let page = rustix::param::page_size();
    let (first, end) = (pages.start / page, pages.end / page);
    for start in (first..end).step_by(ENTRIES) {
        let mut bytes = [0; ENTRIES * 8];
        let wanted = bytes.get_mut(..(end - start).min(ENTRIES) * 8)?;
        let read =
            pread(map, &mut *wanted, start as u64 * 8).ok().filter(|read| *read == wanted.len())?;
        let (entries, _) = wanted.get(..read)?.as_chunks();
        if entries.iter().any(|entry| is_so(u64::from_ne_bytes(*entry))) {
            return Some(true);
        }
    }
    Some(false)
}

/// Returns the time in quarters of a second.
fn tick() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 4 + now.tv_nsec.cast_unsigned() / 250_000_000
}

/// Table of pages that were recently found present. A page that another one displaces from its slot
/// is checked again.
struct SeenPages([AtomicU64; 4096]);

static SEEN: SeenPages = SeenPages([const { AtomicU64::new(0) }; 4096]);

impl SeenPages {
    fn has(&self, page: usize, tick: u64) -> bool {
        let seen = self.at(page).load(Ordering::Relaxed);
        seen == Self::entry(page, tick) || seen == Self::entry(page, tick.wrapping_sub(1))
    }

    fn note(&self, page: usize, tick: u64) {
        self.at(page).store(Self::entry(page, tick), Ordering::Relaxed);
    }

    fn at(&self, page: usize) -> &AtomicU64 {
        // The remainder is less than the length.
        &self.0[page % self.0.len()]
    }

    /// An address of 57 bits has 45 bits of page number with pages of 4 KiB.
    fn entry(page: usize, tick: u64) -> u64 {
        ((page as u64) << 16) | (tick & 0xFFFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PageSize, Region};
    use oikaze_protocol::rma::Rights;
    use rustix::mm::{Advice, madvise};

    #[test]
    fn what_was_seen_is_remembered_for_a_moment() {
        let page = 0x7_FFF1_2345;
        assert!(!SEEN.has(page, 40));
        SEEN.note(page, 40);
        assert!(SEEN.has(page, 40) && SEEN.has(page, 41) && !SEEN.has(page, 42));
        assert!(!SEEN.has(page, 39));
        assert!(!SEEN.has(page + 4096, 40), "another at the same place");
        SEEN.note(page + 4096, 40);
        assert!(!SEEN.has(page, 40));
    }

    /// Memory mapped there later may be a file's, of which nothing is known.
    #[test]
    fn nothing_is_remembered_of_what_follows_where_a_loan_was() {
        let bytes = vec![7; 3 << 12];
        let region = crate::memory::scope(|scope| scope.borrow(&bytes));
        assert!(region.is_present(0, 3 << 12));
        let page = bytes.as_ptr().addr() / rustix::param::page_size() + 1;
        assert!(!SEEN.has(page, tick()));
        crate::memory::with_borrowed(&bytes, |region| assert!(region.is_present(0, 3 << 12)));
        assert!(SEEN.has(page, tick()));
    }

    #[test]
    fn untouched_memory_is_as_good_as_present_if_it_may_be() {
        let region = Region::private_of(8 << 12, PageSize::Small).unwrap();
        let at = NonNull::new(region.view_ptr()).unwrap();
        assert!(!is_present(at, 3 << 12, |_| false), "nothing was ever there");
        assert!(is_present(at, 8 << 12, |pages| !is_swapped(pages)));
        region.write(5 << 12, &[1]).unwrap();
        assert!(is_present(at.map_addr(|at| at.saturating_add(5 << 12)), 4096, |_| false));
        assert!(can_fetch(), "tests run on Linux 5.14 or later");
    }

    /// MEM-1.10, with real swapping by the kernel.
    #[test]
    #[ignore = "needs a machine that swaps, and a control group with a limit of 32 MiB"]
    fn swapped_pages_are_absent_until_they_are_fetched() {
        assert!(is_on(), "this machine does not swap");
        const LEN: usize = 64 << 12;
        let of = |make: fn(usize, PageSize) -> Result<Region, crate::memory::MemoryError>| {
            make(LEN, PageSize::Small).unwrap()
        };
        for region in [of(Region::private_of), of(Region::shared_of)] {
            region.fill(0, LEN as u64, 7).unwrap();
            // The kernel pages out what it is told to, or the least recently used pages.
            for at in
                [region.view_ptr(), region.at(crate::memory::region::Side::Runtime, 0).as_ptr()]
            {
                // SAFETY: paging out changes no byte of what the region has mapped.
                unsafe { madvise(at.cast(), LEN, Advice::LinuxPageOut) }.unwrap();
            }
            Region::private(48 << 20).unwrap().fill(0, 48 << 20, 1).unwrap();
            assert!(region.may_be_absent(), "the kernel keeps these pages");
            assert!(!region.is_present(0, LEN as u64), "the kernel keeps these pages");
            region.make_present(0, LEN as u64, Rights::READ).unwrap();
            assert!(region.is_present(0, LEN as u64));
            let mut bytes = vec![0; LEN];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
