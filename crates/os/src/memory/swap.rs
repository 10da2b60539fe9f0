//! Memory of no file whose pages may be absent all the same (MEM-1.10): any, on a machine that
//! swaps, and what a program lends, which may be a mapped file.
//!
//! There is much of it, nearly always present: what was looked at a moment ago is not looked at
//! again.

use super::residence;
use core::ptr::NonNull;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, pread};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of `/proc/self/pagemap` that are read at a time.
const ENTRIES: usize = 256;
/// "Page is present" and "page is swapped", in such an entry
/// (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Pages of one range. Of a longer one each piece is remembered when it is sent or received.
const REMEMBERED: usize = 1024;

/// Does this machine swap, and can pages be fetched here (Linux 5.14)? As of the first time
/// somebody asked.
pub(super) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| rustix::system::sysinfo().totalswap > 0 && can_fetch())
}

/// Can absent pages be fetched at all, without a change to what they hold?
pub(super) fn can_fetch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        residence::populate(NonNull::from(&CAN).cast(), 1, false) != Err(Errno::INVAL)
    })
}

/// Are all pages of these bytes in memory, by what `look` says of those that were not seen a moment
/// ago?
pub(super) fn is_present(
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

/// The addresses of the pages that hold these bytes.
fn whole_pages(at: NonNull<u8>, len: usize) -> Range<usize> {
    let page = rustix::param::page_size();
    let (first, last) =
        (at.as_ptr().addr() / page, (at.as_ptr().addr() + len.saturating_sub(1)) / page);
    first * page..(last + 1) * page
}

/// Has the file something there, in memory or not? Not where it is sparse, nor in pages that were
/// only set aside for it.
pub(super) fn has_data(file: BorrowedFd<'_>, range: Range<usize>) -> bool {
    seek(file, SeekFrom::Data(range.start as u64)).is_ok_and(|at| at < range.end as u64)
}

/// Is one of these pages of this process alone in swap space? If the kernel does not say: no.
pub(super) fn is_swapped(pages: Range<usize>) -> bool {
    any_entry(pages, |entry| entry & SWAPPED != 0).unwrap_or(false)
}

/// Are all pages of these bytes mapped, so that to touch them waits for nothing? If the kernel does
/// not say: as [`residence::is_present`].
pub(super) fn is_mapped(at: NonNull<u8>, len: usize) -> bool {
    any_entry(whole_pages(at, len), |entry| entry & PRESENT == 0)
        .map_or_else(|| residence::is_present(at, len), |absent| !absent)
}

/// Is one of these pages' entries in the process's page map like that? `None`: it cannot be read.
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

/// Quarters of a second.
fn tick() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 4 + now.tv_nsec.cast_unsigned() / 250_000_000
}

/// Pages that were present a moment ago. One that is forgotten, for another at the same place, is
/// looked at again.
struct Seen([AtomicU64; 4096]);

static SEEN: Seen = Seen([const { AtomicU64::new(0) }; 4096]);

impl Seen {
    fn has(&self, page: usize, tick: u64) -> bool {
        let seen = self.at(page).load(Ordering::Relaxed);
        seen == Self::entry(page, tick) || seen == Self::entry(page, tick.wrapping_sub(1))
    }

    fn note(&self, page: usize, tick: u64) {
        self.at(page).store(Self::entry(page, tick), Ordering::Relaxed);
    }

    fn at(&self, page: usize) -> &AtomicU64 {
        // The remainder is below the length.
        &self.0[page % self.0.len()]
    }

    /// Of an address of 57 bits, in pages of 4 KiB, 45 are left.
    fn entry(page: usize, tick: u64) -> u64 {
        ((page as u64) << 16) | (tick & 0xFFFF)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PageSize, Region};
    use super::*;
    use oikaze_protocol::rma::Rights;
    use rustix::mm::{Advice, madvise};

    #[test]
    fn what_was_seen_is_remembered_for_a_moment() {
        let page = 0x7_FFF1_2345;
        assert!(!SEEN.has(page, 40));
        SEEN.note(page, 40);
        assert!(
            SEEN.has(page, 40) && SEEN.has(page, 41) && !SEEN.has(page, 42) && !SEEN.has(page, 39)
        );
        assert!(!SEEN.has(page + 4096, 40), "another at the same place");
        SEEN.note(page + 4096, 40);
        assert!(!SEEN.has(page, 40));
    }

    /// What is there then may be a file's, of which nothing is known.
    #[test]
    fn nothing_is_remembered_of_what_follows_where_a_loan_was() {
        let bytes = vec![7; 3 << 12];
        let region = super::super::scope(|scope| scope.borrow(&bytes));
        assert!(region.is_present(0, 3 << 12));
        let page = bytes.as_ptr().addr() / rustix::param::page_size() + 1;
        assert!(!SEEN.has(page, tick()));
        super::super::with_borrowed(&bytes, |region| assert!(region.is_present(0, 3 << 12)));
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

    /// MEM-1.10, by the kernel's own doing.
    #[test]
    #[ignore = "needs a machine that swaps, and a control group with a limit of 32 MiB"]
    fn swapped_pages_are_absent_until_they_are_fetched() {
        assert!(is_on(), "this machine does not swap");
        const LEN: usize = 64 << 12;
        let of = |make: fn(usize, PageSize) -> Result<Region, super::super::MemoryError>| {
            make(LEN, PageSize::Small).unwrap()
        };
        for region in [of(Region::private_of), of(Region::shared_of)] {
            region.fill(0, LEN as u64, 7).unwrap();
            // The kernel puts out of memory what it is told to, or what was touched least lately.
            for at in
                [region.view_ptr(), region.at(super::super::region::Side::Runtime, 0).as_ptr()]
            {
                // SAFETY: paging out changes no byte of what the region has mapped.
                unsafe { madvise(at.cast(), LEN, Advice::LinuxPageOut) }.unwrap();
            }
            Region::private(48 << 20).unwrap().fill(0, 48 << 20, 1).unwrap();
            assert!(
                region.may_be_absent() && !region.is_present(0, LEN as u64),
                "the kernel keeps these pages"
            );
            region.make_present(0, LEN as u64, Rights::READ).unwrap();
            assert!(region.is_present(0, LEN as u64));
            let mut bytes = vec![0; LEN];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
