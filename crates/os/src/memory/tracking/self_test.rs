//! Checks that a tracker works on this machine, with two pages and one thread that touches them.
//! Takes well under a millisecond.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::SharedError;
use super::others::GuardKind;
use super::shared_memory::SharedMemory;
use super::trackers::tracker::{FaultAt, Tracker};
use crate::processes::signals::SignalsBlocked;

/// Array number that no job uses.
const ARRAY: ArrayId = ArrayId::MAX;
/// Maximum wait for a fault. Only a broken tracker makes the test wait this long.
const PATIENCE: Duration = Duration::from_secs(2);
const WORDS: usize = PAGE / 8;

/// Tests the tracker and returns the first error.
pub(super) fn run(tracker: &Arc<dyn Tracker>) -> Result<(), SharedError> {
    let memory = SharedMemory::new(ARRAY, "self-test", 2 * PAGE, tracker.clone())?;
    memory.write(0, &7_u64.to_ne_bytes())?;
    let result = std::thread::scope(|threads| {
        let _inherited = SignalsBlocked::begin();
        let toucher = std::thread::Builder::new()
            .name("oikaze-tracker".into())
            .spawn_scoped(threads, || touch(&memory))
            .map_err(|e| {
                SharedError::new(
                    "starting a thread",
                    e,
                    "Raise the limit on processes (ulimit -u).",
                )
            })?;
        let answered = answer(&memory);
        if answered.is_err() {
            // The fault that the thread waits for will not be served: let it go on.
            tracker.detach(memory.view());
        }
        let touched = toucher.join().unwrap_or_else(|_| Err(wrong("the touching thread panicked")));
        answered.and(touched)
    });
    result?;
    let mut second = [0; 8];
    memory.read(PAGE, &mut second)?;
    if u64::from_ne_bytes(second) == 9 { Ok(()) } else { Err(wrong("a store did not arrive")) }
}

fn wrong(what: &str) -> SharedError {
    SharedError::new(
        "trying it on two pages",
        io::Error::new(io::ErrorKind::Unsupported, what.to_owned()),
        "This kernel or sandbox does not do it as needed (docs/KERNELS.md).",
    )
}

/// Loads from page 0, then stores to it, then stores to page 1.
fn touch(memory: &SharedMemory) -> Result<(), SharedError> {
    let loaded = std::hint::black_box(&memory.slice::<u64>(0..1)?[..]).first().copied();
    if let Some(word) =
        std::hint::black_box(&mut memory.slice_mut::<u64>(0..1, GuardKind::Write)?[..]).first_mut()
    {
        *word = 8;
    }
    if let Some(word) =
        std::hint::black_box(&mut memory.slice_mut::<u64>(WORDS..WORDS + 1, GuardKind::Write)?[..])
            .first_mut()
    {
        *word = 9;
    }
    if loaded == Some(7) {
        Ok(())
    } else {
        Err(wrong("a load gave other bytes than are in the page"))
    }
}

/// Expects these faults, in this order, and maps just what each asks for.
fn answer(memory: &SharedMemory) -> Result<(), SharedError> {
    let first = next_fault(memory, 0, Access::Read)?;
    memory.install(0..1, Access::Read)?;
    if first != Some(Access::Write) {
        next_fault(memory, 0, Access::Write)?;
    }
    memory.set_access(0..1, Access::Write)?;
    next_fault(memory, 1, Access::Write)?;
    memory.install(1..2, Access::Write)
}

/// Returns the next fault, which must be on this page. A store may be reported as unknown, and a
/// load must not be reported as a store.
fn next_fault(
    memory: &SharedMemory,
    page: u64,
    access: Access,
) -> Result<Option<Access>, SharedError> {
    let tracker = memory.tracker();
    let deadline = Instant::now() + PATIENCE;
    let mut faults = Vec::new();
    loop {
        tracker
            .faults(&mut faults)
            .map_err(|e| SharedError::new("reading page faults", e, "See docs/KERNELS.md."))?;
        match faults.first() {
            Some(&FaultAt { array: ARRAY, page: at, access: tried })
                if at == page && tried.is_none_or(|t| t == access) =>
            {
                return Ok(tried);
            }
            Some(other) => {
                return Err(wrong(&format!(
                    "expected a fault ({access:?}) on page {page}, got {other:?}"
                )));
            }
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wrong(&format!("no fault ({access:?}) was reported for page {page}")));
        }
        let mut wait = [PollFd::from_borrowed_fd(tracker.fd(), PollFlags::IN)];
        let limit =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut wait, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(SharedError::new(
                    "waiting for page faults",
                    e.into(),
                    "See docs/KERNELS.md.",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tracking::{Mprotect, TrackerKind, View};
    use std::ops::Range;
    use std::os::fd::BorrowedFd;

    /// A tracker that cannot map a page write-protected, as userfaultfd before Linux 6.4.
    #[derive(Debug)]
    struct Old(Mprotect);

    impl Tracker for Old {
        fn kind(&self) -> TrackerKind {
            self.0.kind()
        }
        fn attach(&self, view: &View) -> Result<(), SharedError> {
            self.0.attach(view)
        }
        fn detach(&self, view: &View) {
            self.0.detach(view);
        }
        fn install(
            &self,
            view: &View,
            pages: Range<u64>,
            access: Access,
        ) -> Result<(), SharedError> {
            match access {
                Access::Read => Err(SharedError::new(
                    "mapping",
                    io::Error::from_raw_os_error(libc::EINVAL),
                    "Upgrade.",
                )),
                Access::Write => self.0.install(view, pages, access),
            }
        }
        fn set_access(
            &self,
            view: &View,
            pages: Range<u64>,
            access: Access,
        ) -> Result<(), SharedError> {
            self.0.set_access(view, pages, access)
        }
        fn invalidate(&self, view: &View, pages: Range<u64>) -> Result<(), SharedError> {
            self.0.invalidate(view, pages)
        }
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.fd()
        }
        fn faults(&self, into: &mut Vec<FaultAt>) -> io::Result<usize> {
            self.0.faults(into)
        }
    }

    #[test]
    fn a_tracker_that_fails_is_found_out_and_leaves_no_thread_asleep() {
        let tracker: Arc<dyn Tracker> = Arc::new(Old(Mprotect::new().unwrap()));
        assert_eq!(run(&tracker).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(Arc::strong_count(&tracker), 1);
    }
}
