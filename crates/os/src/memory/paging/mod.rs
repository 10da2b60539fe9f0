//! Presence of pages that may be absent, as those of files. A caller that must not wait for a disk
//! asks first and leaves the fetch to a thread (MEM-1.10).

pub(crate) mod swap;
use super::region::Region;
use core::ptr::NonNull;
use oikaze_protocol::limits::FETCHED_AT_ONCE;
use oikaze_protocol::rma::Rights;
use rustix::fs::{Access, AtFlags, CWD, accessat, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of pages asked about per call, so that the answer fits on the stack.
const PAGES_A_CALL: usize = 256;

/// Returns `true` if the kernel reports which pages of the file are in memory. Since Linux 5.2 it
/// reports "all" for a file that this process neither owns nor may write (mincore(2)).
pub(super) fn reports_pages(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_uid == geteuid().as_raw())
        || accessat(
            CWD,
            format!("/proc/self/fd/{}", file.as_raw_fd()),
            Access::WRITE_OK,
            AtFlags::EACCESS,
        )
        .is_ok()
}

/// Returns `true` if all pages of these bytes are in memory. For a file for which the kernel
/// [reports pages](reports_pages), the page cache counts, whether or not the pages are mapped. If
/// the kernel does not answer, the pages count as present.
pub(super) fn is_present(at: NonNull<u8>, len: usize) -> bool {
    let page = rustix::param::page_size();
    let begin = at.as_ptr().addr() & !(page - 1);
    let end = at.as_ptr().addr() + len;
    for start in (begin..end).step_by(PAGES_A_CALL * page) {
        let bytes = (end - start).min(PAGES_A_CALL * page);
        let mut answer = [0_u8; PAGES_A_CALL];
        // SAFETY: the answer has a byte for each page asked for; the kernel accesses no other
        // memory.
        let failed = unsafe { libc::mincore(start as *mut _, bytes, answer.as_mut_ptr()) } != 0;
        if !failed && answer.iter().take(bytes.div_ceil(page)).any(|page| page & 1 == 0) {
            return false;
        }
    }
    true
}

/// Brings the pages of these bytes into memory, mapped for reading or for writing. Waits for the
/// disk.
///
/// # Errors
/// The pages cannot be had: `EFAULT` past the end of a file.
pub(super) fn populate(at: NonNull<u8>, len: usize, writing: bool) -> Result<(), Errno> {
    let page = rustix::param::page_size();
    let before = at.as_ptr().addr() & (page - 1);
    let begin = at.as_ptr().wrapping_sub(before);
    let advice = if writing { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    loop {
        // SAFETY: populating changes no byte, whatever is mapped there; callers hold the region,
        // unless it was lent and the loan is over.
        match unsafe { madvise(begin.cast(), len + before, advice) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            outcome => return outcome,
        }
    }
}

/// Number of bytes fetched before the next request gets its turn.
const PIECE: u64 = 16 << 20;

/// A range whose pages are to be fetched.
#[derive(Debug)]
struct Wanted {
    region: Region,
    range: Range<u64>,
    /// Offset at which the rest of the range begins.
    at: u64,
    /// Access that the pages are fetched for.
    right: Rights,
    lost: Arc<Lost>,
}

impl Wanted {
    /// Fetches a piece and returns the rest.
    fn fetch(mut self) -> Option<Wanted> {
        if Arc::strong_count(&self.lost) == 1 {
            // The registration has ended: nobody wants the pages or the result.
            return None;
        }
        let end = self.range.end.min(self.at.saturating_add(PIECE));
        let fetched = self.region.make_present(self.at, end - self.at, self.right).is_ok();
        self.at = end;
        if fetched && end < self.range.end {
            return Some(self);
        }
        self.lost.end(self.range, fetched);
        None
    }
}

/// Ranges of one registration that are being fetched, and ranges whose fetch failed, until a
/// request has been told. At most [`FETCHED_AT_ONCE`] of each.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<Ranges>);

#[derive(Debug, Default)]
struct Ranges {
    fetching: Vec<Range<u64>>,
    lost: Vec<Range<u64>>,
}

impl Lost {
    /// Returns `true` if part of the range could not be fetched, and forgets that failure. The
    /// caller reports the failure, and the next request tries again.
    pub fn take(&self, range: &Range<u64>) -> bool {
        let lost = &mut self.ranges().lost;
        let before = lost.len();
        lost.retain(|one| one.end <= range.start || range.end <= one.start);
        lost.len() < before
    }

    /// Returns `true` if the range is not being fetched yet and there is room for another one.
    /// (Otherwise the requester asks again.)
    fn begin(&self, range: &Range<u64>) -> bool {
        let fetching = &mut self.ranges().fetching;
        let new = fetching.len() < FETCHED_AT_ONCE && !fetching.contains(range);
        if new {
            fetching.push(range.clone());
        }
        new
    }

    fn end(&self, range: Range<u64>, fetched: bool) {
        let mut ranges = self.ranges();
        ranges.fetching.retain(|one| *one != range);
        if !fetched && !ranges.lost.contains(&range) {
            if ranges.lost.len() >= FETCHED_AT_ONCE {
                // Drop the oldest: its requester has given up, or will find the range lost again.
                ranges.lost.remove(0);
            }
            ranges.lost.push(range);
        }
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Thread that fetches pages. It starts when first needed and ends with its owner.
#[derive(Debug, Default)]
pub(super) struct Fetcher {
    wanted: Mutex<Option<Sender<Wanted>>>,
}

impl Fetcher {
    /// Fetches these pages soon. If no thread can be started, nothing is fetched, and requesters
    /// are told so in the end.
    pub fn fetch(&self, region: &Region, range: Range<u64>, right: Rights, lost: &Arc<Lost>) {
        if let Some(disk) = region.disk() {
            return disk.want(&range);
        }
        if !lost.begin(&range) {
            return;
        }
        let mut sender = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (send, receive) = channel();
            if crate::processes::signals::spawn("oikaze-pages", move || work(&receive)).is_ok() {
                *sender = Some(send);
            }
        }
        match &*sender {
            Some(sender) => {
                // Sending cannot fail: the thread ends only when the sender is dropped.
                let _ = sender.send(Wanted {
                    region: region.clone(),
                    at: range.start,
                    range,
                    right,
                    lost: Arc::clone(lost),
                });
            }
            // The next request tries again.
            None => lost.end(range, true),
        }
    }
}

/// Fetches one piece of each request in turn, so that a short request does not wait for a long one.
fn work(wanted: &Receiver<Wanted>) {
    let mut waiting = VecDeque::new();
    while let Some(next) = waiting.pop_front().or_else(|| wanted.recv().ok()) {
        let rest = next.fetch();
        waiting.extend(wanted.try_iter());
        waiting.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryError;
    use super::super::region::Side;
    use super::super::table::RegionTable;
    use super::*;
    use crate::memory::nameless_file;
    use crate::memory::paging::swap;
    use oikaze_protocol::rma::Memory;
    use oikaze_protocol::wind::{Refusal, Segment};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    const LEN: usize = 40 * 4096;

    /// Returns a file of sevens whose pages are only on disk.
    fn evicted() -> (File, Region) {
        let path = std::env::temp_dir().join(format!(
            "oikaze-residence-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = nameless_file(&path).unwrap();
        file.write_all(&vec![7; LEN]).unwrap();
        let region = Region::of_file(file.as_fd(), 0, LEN, true).unwrap();
        evict(&file);
        (file, region)
    }

    fn evict(file: &File) {
        file.sync_all().unwrap();
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// MEM-1.10.
    #[test]
    fn absent_pages_are_refused_fetched_and_then_there() {
        let (_file, region) = evicted();
        let mut table = RegionTable::new();
        let registered = table.insert(region.clone(), Rights::ALL).unwrap();
        let at = (3 * 4096, 10 * 4096);
        assert!(
            !region.is_present(at.0, at.1),
            "is the file of this test on a disk, whose pages can be dropped?"
        );
        let ask = || table.locate(registered.key, at.0, at.1, Rights::WRITE);
        assert_eq!(ask(), Err(Refusal::NotPresent));
        assert!(
            table.gather(&Segment { region: registered.slot, offset: at.0, len: at.1 }).is_none()
        );
        assert!(table.is_inside(registered.slot, at.0, at.1));
        while !region.is_present(at.0, at.1) {
            std::thread::yield_now();
        }
        assert_eq!(ask(), Ok(registered.slot));
        assert!(
            table.gather(&Segment { region: registered.slot, offset: at.0, len: at.1 }).is_some()
        );
    }

    #[test]
    fn pages_past_the_end_of_a_file_are_lost() {
        let (file, region) = evicted();
        let mut table = RegionTable::new();
        let registered = table.insert(region.clone(), Rights::ALL).unwrap();
        file.set_len(4096).unwrap();
        let ask = || table.locate(registered.key, 8192, 100, Rights::READ);
        assert_eq!(ask(), Err(Refusal::NotPresent));
        while ask() == Err(Refusal::NotPresent) {
            std::thread::yield_now();
        }
        // The first request consumes the failure, so the next one makes the thread try again.
        assert_eq!(ask(), Err(Refusal::NotPresent));
        assert!(region.make_present(8192, 1, Rights::READ).is_err());
        file.set_len(LEN as u64).unwrap();
        region.make_present(8192, 100, Rights::READ).unwrap();
        assert_eq!(table.locate(registered.key, 8192, 100, Rights::READ), Ok(registered.slot));
    }

    /// MEM-1.13: a peer's long request does not delay others for long.
    #[test]
    fn a_long_range_is_fetched_in_pieces() {
        let (file, _) = evicted();
        let len = 2 * PIECE + 4096;
        file.set_len(len).unwrap();
        let region = Region::of_file(file.as_fd(), 0, len as usize, false).unwrap();
        let lost = Arc::new(Lost::default());
        assert!(lost.begin(&(0..len)));
        let first = Wanted {
            region: region.clone(),
            range: 0..len,
            at: 0,
            right: Rights::READ,
            lost: Arc::clone(&lost),
        };
        let rest = first.fetch().unwrap();
        assert!(region.is_present(0, PIECE) && !region.is_present(len - 1, 1));
        assert!(rest.fetch().and_then(Wanted::fetch).is_none());
        assert!(region.is_present(0, len) && lost.ranges().fetching.is_empty());
        assert!(!lost.take(&(0..len)));
    }

    /// For another user's file that is read-only here, the kernel reports all pages as present.
    #[test]
    fn files_of_others_are_not_taken_to_be_present() {
        if !rustix::process::geteuid().is_root() {
            return crate::testing::skip("it needs root, to become somebody else");
        }
        let (file, _) = evicted();
        let readable = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        // Open the page map now: a process that changes its user can no longer open it.
        assert!(swap::is_mapped(NonNull::from(&readable).cast(), 1));
        let other = std::thread::spawn(move || {
            // The user "nobody", for this thread alone.
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let region = Region::of_file(readable.as_fd(), 0, LEN, false).unwrap();
            assert!(
                is_present(region.at(Side::Runtime, 0), LEN),
                "this kernel tells: then nothing is tried here"
            );
            assert!(!region.is_present(0, LEN as u64));
            region.make_present(0, LEN as u64, Rights::READ).unwrap();
            assert!(region.is_present(0, LEN as u64));
        });
        let outcome = other.join();
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
            .unwrap();
        outcome.unwrap();
    }

    /// MEM-1.8: nothing is fetched for a registration that has ended.
    #[test]
    fn what_nobody_wants_any_more_is_not_fetched() {
        let (_file, region) = evicted();
        let lost = Arc::new(Lost::default());
        assert!(lost.begin(&(0..LEN as u64)));
        assert!(
            Wanted {
                region: region.clone(),
                range: 0..LEN as u64,
                at: 0,
                right: Rights::READ,
                lost
            }
            .fetch()
            .is_none()
        );
        assert!(!region.is_present(0, LEN as u64));
    }

    /// Reading does not write: holes of a file stay holes until they are written.
    #[test]
    fn to_read_a_file_does_not_change_it() {
        let (file, _) = evicted();
        file.set_len(0).unwrap();
        file.set_len(LEN as u64).unwrap();
        let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
        let region = Region::of_file(file.as_fd(), 0, LEN, true).unwrap();
        let mut table = RegionTable::new();
        let registered = table.insert(region, Rights::ALL).unwrap();
        let fetch = |right| {
            while table.locate(registered.key, 0, LEN as u64, right) == Err(Refusal::NotPresent) {
                std::thread::yield_now();
            }
        };
        fetch(Rights::READ);
        assert!(
            table
                .gather(&Segment { region: registered.slot, offset: 0, len: LEN as u64 })
                .is_some()
        );
        assert_eq!(blocks(), 0);
        table.write(registered.slot, 4096, &[1]);
        assert!(blocks() > 0);
    }

    /// MEM-9.1: a requester of many ranges does not fill this node's memory.
    #[test]
    fn what_is_fetched_or_lost_at_a_time_is_bounded() {
        let lost = Lost::default();
        let ranges = || (0..100_000).map(|at| 8 * at..8 * at + 8);
        let begun: Vec<_> = ranges().filter(|range| lost.begin(range)).collect();
        assert!(begun.len() <= FETCHED_AT_ONCE && lost.ranges().fetching.len() == begun.len());
        ranges().for_each(|range| lost.end(range, false));
        assert!(lost.ranges().fetching.is_empty() && lost.ranges().lost.len() <= FETCHED_AT_ONCE);
        assert!(lost.take(&(0..u64::MAX)) && begun.iter().all(|range| lost.begin(range)));
    }

    #[test]
    fn only_files_are_asked_for() {
        let mut table = RegionTable::new();
        for region in
            [Region::private(LEN).unwrap(), Region::shared_with_capacity(LEN, LEN).unwrap()]
        {
            assert_eq!(region.may_be_absent(), crate::memory::paging::swap::is_on());
            let registered = table.insert(region, Rights::ALL).unwrap();
            assert!(
                table.locate(registered.key, 0, LEN as u64, Rights::WRITE).is_ok(),
                "fresh memory needs no disk"
            );
        }
        let file = File::open("/proc/self/exe").unwrap();
        assert!(matches!(
            Region::of_file(file.as_fd(), 5, 4096, false),
            Err(MemoryError::FileOffset(5))
        ));
        let region = Region::of_file(file.as_fd(), 4096, 4096, false).unwrap();
        assert_eq!(region.rights(), Rights::READ);
        let mut bytes = [0; 8];
        region.read(0, &mut bytes).unwrap();
    }
}
