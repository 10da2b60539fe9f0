//! Memory of one array on this node.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oikaze_protocol::coherence::{Access, ArrayId};
use oikaze_protocol::limits::PAGE;
use rustix::io::Errno;
use rustix::mm::Advice;

use super::borrows::{AliasBytes, Borrows, Incoming};
use super::error::SharedError;
use super::live_guards::LiveGuards;
use super::lost_pages::LostPages;
use super::others::{Attempt, GuardBytes, GuardKind, OtherNodes};
use super::trackers::tracker::{Tracker, View};
use crate::memory::mapping::{Mapping, whole_pages};
use crate::memory::{MemoryError, Region, huge, memfd, paging, room};
use crate::processes::origin::Origin;

/// Bytes from which on free memory is checked. The check costs some 50 µs.
const CHECKED: usize = 16 << 20;

/// Memory of one array: a sealed memfd, the application's tracked view of it and the runtime's
/// untracked alias.
///
/// # Soundness of guards
///
/// [`slice`](Self::slice) and [`slice_mut`](Self::slice_mut) are safe functions over memory that
/// other *nodes* change. The [`Borrows`] registry makes them sound, whatever the program does:
///
/// - It refuses a guard that overlaps a writing guard, and a writing guard that overlaps any guard.
/// - Bytes that arrive from other nodes and differ from what a live guard has shown wait in the
///   registry until the guard ends (COH-3.9). Only a program with a data race has such bytes.
/// - Memory that other nodes map ([`SharedMemory::of_segment`]) is lent only where [`OtherNodes`]
///   have no guard in the way, or else as a private copy (COH-16.6 to 16.8).
#[derive(Debug)]
pub struct SharedMemory {
    name: String,
    bytes: usize,
    view: View,
    alias: Arc<Mapping>,
    file: Arc<OwnedFd>,
    /// Other nodes that map the memory. The view is not tracked then (COH-16.2).
    others: Option<Arc<dyn OtherNodes>>,
    tracker: Arc<dyn Tracker>,
    /// One bit per page, set if the memfd has memory there (a hint: the alias can also make memory
    /// appear).
    present: Box<[AtomicU64]>,
    borrows: Borrows,
    origin: Origin,
    pub(super) lost: LostPages,
}

/// Operation on bytes of elements.
pub enum ElementOp<'a> {
    /// Reads the bytes.
    Read,
    /// Replaces the bytes by these.
    Write(&'a [u8]),
    /// Replaces the bytes by what this function makes of them.
    Change(&'a dyn Fn(&[u8]) -> Vec<u8>),
}

impl SharedMemory {
    /// Makes the memory of array number `array`, of `bytes` bytes rounded up to whole pages. All
    /// pages are unmapped and zero.
    ///
    /// # Errors
    /// No descriptor, address space or permission left; each with what to do.
    pub fn new(
        array: ArrayId,
        name: &str,
        bytes: usize,
        tracker: Arc<dyn Tracker>,
    ) -> Result<SharedMemory, SharedError> {
        let failed =
            |e| SharedError::memory(format!("making shared array {name:?} of {bytes} bytes"), e);
        let len = whole_pages(bytes.max(1)).map_err(failed)?;
        let file = sparse_file(name, len).map_err(failed)?;
        let map = || Mapping::of_file(file.as_fd(), len).map_err(failed);
        let (alias, view) = (Arc::new(map()?), map()?);
        // Pages are tracked one by one (4 KiB), and a huge page would hide touches. A kernel
        // without huge pages returns EINVAL.
        match advise(&view, Advice::LinuxNoHugepage) {
            Ok(()) | Err(MemoryError::System { why: Errno::INVAL, .. }) => {}
            Err(e) => return Err(failed(e)),
        }
        // A child of fork would read unmapped pages as zeros, without a trap, so it gets no view.
        view.leave_out_of_forks().map_err(failed)?;
        let view = View::new(array, view);
        tracker.attach(&view)?;
        Ok(SharedMemory::over(name, bytes, view, alias, Arc::new(file), tracker))
    }

    /// Makes the memory of an array that other nodes map, too, of the first `bytes` bytes of a
    /// file. The view is not tracked. `tracker` is for an array that replaces this one.
    ///
    /// # Errors
    /// As [`SharedMemory::new`].
    pub fn of_segment(
        array: ArrayId,
        name: &str,
        bytes: usize,
        file: &Arc<OwnedFd>,
        others: Arc<dyn OtherNodes>,
        tracker: Arc<dyn Tracker>,
    ) -> Result<SharedMemory, SharedError> {
        let failed =
            |e| SharedError::memory(format!("mapping shared array {name:?} of {bytes} bytes"), e);
        let len = whole_pages(bytes.max(1)).map_err(failed)?;
        let map = || {
            let mapping = match huge::huge_page().filter(|size| len >= *size) {
                Some(size) => Mapping::of_file_aligned(file.as_fd(), len, size),
                None => Mapping::of_file(file.as_fd(), len),
            };
            let mapping = mapping.map_err(failed)?;
            mapping.leave_out_of_forks().map_err(failed)?;
            Ok(mapping)
        };
        let (alias, view) = (Arc::new(map()?), View::new(array, map()?));
        let file = Arc::clone(file);
        let mut memory = SharedMemory::over(name, bytes, view, alias, file, tracker);
        memory.others = Some(others);
        Ok(memory)
    }

    fn over(
        name: &str,
        bytes: usize,
        view: View,
        alias: Arc<Mapping>,
        file: Arc<OwnedFd>,
        tracker: Arc<dyn Tracker>,
    ) -> SharedMemory {
        let words = (view.len() / PAGE).div_ceil(64);
        SharedMemory {
            name: name.to_owned(),
            bytes,
            view,
            alias,
            file,
            others: None,
            tracker,
            present: (0..words).map(|_| AtomicU64::new(0)).collect(),
            borrows: Borrows::default(),
            origin: Origin::here(),
            lost: LostPages::default(),
        }
    }

    /// Makes the array count its guards in `live` too.
    #[must_use]
    pub fn counted(mut self, live: Arc<LiveGuards>) -> SharedMemory {
        self.borrows = Borrows::counted(live);
        self
    }

    /// Returns the array's number in its job.
    #[must_use]
    pub fn array(&self) -> ArrayId {
        self.view.array()
    }

    /// Returns the array's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.view.pages()
    }

    /// Returns the other nodes that map the memory, if any may. Such memory has no page states.
    #[inline]
    #[must_use]
    pub fn others(&self) -> Option<&Arc<dyn OtherNodes>> {
        self.others.as_ref()
    }

    /// Returns `true` in the process that made the memory, and not in a child of fork.
    pub(super) fn is_own_process(&self) -> bool {
        self.origin.is_here()
    }

    /// Returns the tracker that watches the view, or that would.
    #[must_use]
    pub fn tracker(&self) -> &Arc<dyn Tracker> {
        &self.tracker
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Returns the registry of live guards.
    #[must_use]
    pub fn borrows(&self) -> &Borrows {
        &self.borrows
    }

    /// Returns the address of the view.
    #[cfg(test)]
    pub fn view_address(&self) -> *mut u8 {
        self.view.base() as *mut u8
    }

    /// Returns the address of the view, for C and NumPy, where only the documentation states the
    /// rule of data-race freedom. Touches of its pages are detected from then on.
    ///
    /// # Errors
    /// See [`Tracker::expect_touches`].
    pub fn plain_address(&self) -> Result<*mut u8, SharedError> {
        self.expect_touches(&(0..self.bytes), Access::Write)?;
        self.mark()?;
        Ok(self.view.base() as *mut u8)
    }

    /// Tells other nodes that map the memory that this node stores through plain pointers from now
    /// on (COH-16.8).
    ///
    /// # Errors
    /// A guard of another node that lends a reference into the memory is alive.
    pub fn mark(&self) -> Result<(), SharedError> {
        self.others.as_ref().map_or(Ok(()), |others| {
            others.mark().map_err(|other| self.refusal(GuardKind::Write, &(0..self.bytes), other))
        })
    }

    /// Performs an operation on bytes of memory that other nodes map, as one step with respect to
    /// all other operations (COH-16.9), unless one of them is in the way for a while. Returns the
    /// bytes from before, and none after [`ElementOp::Write`].
    ///
    /// # Errors
    /// Outside the array; a guard is in the way; the memory is of this node alone.
    #[track_caller]
    pub fn operate(
        &self,
        bytes: &Range<usize>,
        op: &ElementOp<'_>,
    ) -> Result<Attempt<Vec<u8>>, SharedError> {
        let kind = match op {
            ElementOp::Read => GuardKind::ReadOperation,
            ElementOp::Write(_) | ElementOp::Change(_) => GuardKind::Operation,
        };
        let taken_at = Some(Location::caller());
        self.check("operating on", bytes.start, bytes.len())?;
        let Some(others) = &self.others else {
            return Err(self.refusal(kind, bytes, "the memory is of this node alone".to_owned()));
        };
        let ticket =
            self.borrows.borrow_rows(&self.name, bytes.clone(), Vec::new(), kind, taken_at)?;
        let (mut old, mut outcome) = (Vec::new(), Ok(()));
        let mut operation = || {
            if let ElementOp::Write(new) = op {
                self.store_beside_guards(bytes.start, new.get(..bytes.len()).unwrap_or(new));
                return;
            }
            old.resize(bytes.len(), 0);
            outcome = self.read(bytes.start, &mut old);
            if let ElementOp::Change(change) = op {
                let new = change(&old);
                self.store_beside_guards(bytes.start, new.get(..bytes.len()).unwrap_or(&new));
            }
        };
        let range = bytes.start as u64..bytes.end as u64;
        let guard = GuardBytes { kind, bytes: range, is_block: false, lends: false, taken_at };
        let done = others.operate(&guard, &mut operation);
        self.end_loan(ticket);
        let done = done.map_err(|other| self.refusal(kind, bytes, other))?;
        outcome.map(|()| match done {
            Attempt::Done(()) => Attempt::Done(old),
            Attempt::Waits(holder) => Attempt::Waits(holder),
        })
    }

    /// Stores bytes through the alias, where no guard of any node is in the way.
    pub(super) fn store_beside_guards(&self, at: usize, bytes: &[u8]) {
        AliasBytes::store(self, at, bytes);
    }

    /// Returns the alias as a region. Messages of pages are gathered from it and received into it.
    /// [`populate`](Self::populate) a range before receiving into it.
    #[must_use]
    pub fn alias_region(&self) -> Region {
        // SAFETY: the region keeps the alias mapped, readable and writable; the alias has no
        // references into it, only copies.
        unsafe { Region::from_alias(self.alias.clone(), self.alias.base(), self.alias.len()) }
    }

    /// Allocates memory for these pages now, so that running out is an error here and not a signal
    /// at a later store.
    ///
    /// # Errors
    /// Not enough memory, or outside the array.
    pub fn populate(&self, pages: Range<u64>) -> Result<(), SharedError> {
        self.view.span(&pages)?;
        let mut at = pages.start;
        while at < pages.end {
            // Allocate each run of pages without memory by one call.
            if self.is_present(at) {
                at += 1;
                continue;
            }
            let mut end = at + 1;
            while end < pages.end && !self.is_present(end) {
                end += 1;
            }
            let (offset, len) = (at as usize * PAGE, (end - at) as usize * PAGE);
            self.allocate(offset, len).map_err(|e| {
                SharedError::memory(
                    format!("finding memory for {len} bytes of shared array {:?}", self.name),
                    e,
                )
            })?;
            (at..end).for_each(|page| self.note_present(page));
            at = end;
        }
        Ok(())
    }

    /// As [`populate`](Self::populate), for pages whose bytes come through the alias. It also maps
    /// new pages there, by one call: a fault for each page takes longer than copying its bytes.
    fn populate_alias(&self, pages: Range<u64>) -> Result<(), SharedError> {
        self.view.span(&pages)?;
        if pages.clone().all(|page| self.is_present(page)) {
            return Ok(());
        }
        let (offset, len) =
            (pages.start as usize * PAGE, (pages.end - pages.start) as usize * PAGE);
        // SAFETY: the pages are inside the view, which is as long as the alias.
        let at = unsafe { self.alias.base().add(offset) };
        if len < CHECKED && paging::populate(at, len, true).is_ok() {
            pages.for_each(|page| self.note_present(page));
            return Ok(());
        }
        // No memory, or a kernel without the call. The faults then map the pages.
        self.populate(pages)
    }

    /// Allocates memory for a hole of the memfd. Memory that other nodes map, too, has huge pages
    /// where they fit, because nobody tracks it (COH-16.5).
    fn allocate(&self, offset: usize, len: usize) -> Result<(), MemoryError> {
        let _room = if len >= CHECKED { Some(room::reserve(len)?) } else { None };
        if self.others.is_some() {
            huge::fill_huge(&self.file, &self.alias, offset..offset + len)?;
        }
        memfd::reserve(&self.file, offset, len)
    }

    fn present_word(&self, page: u64) -> &AtomicU64 {
        &self.present[(page / 64) as usize]
    }

    fn note_present(&self, page: u64) {
        self.present_word(page).fetch_or(1 << (page % 64), Ordering::Relaxed);
    }

    fn is_present(&self, page: u64) -> bool {
        self.present_word(page).load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    /// Maps pages whose bytes are in place into the view, and wakes the threads that wait for them.
    ///
    /// # Errors
    /// See [`Tracker::install`].
    pub fn install(&self, pages: Range<u64>, access: Access) -> Result<(), SharedError> {
        self.populate(pages.clone())?;
        if self.others.is_some() {
            return Ok(());
        }
        self.tracker.install(&self.view, pages, access)
    }

    /// Changes the access of those pages that are mapped.
    ///
    /// # Errors
    /// See [`Tracker::set_access`].
    pub fn set_access(&self, pages: Range<u64>, access: Access) -> Result<(), SharedError> {
        self.tracker.set_access(&self.view, pages, access)
    }

    /// Unmaps pages. Their bytes stay.
    ///
    /// # Errors
    /// See [`Tracker::invalidate`].
    pub fn invalidate(&self, pages: Range<u64>) -> Result<(), SharedError> {
        self.borrows.invalidate(pages.clone(), || self.tracker.invalidate(&self.view, pages))
    }

    /// Stops tracking the view. All its pages show what this node has, and threads that wait in it
    /// go on.
    pub(super) fn release(&self) {
        if self.others.is_none() {
            self.tracker.detach(&self.view);
        }
    }

    fn check(&self, what: &str, offset: usize, len: usize) -> Result<(), SharedError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.alias.len() => Ok(()),
            _ => Err(SharedError::invalid(
                format!("{what} {len} bytes at {offset} of array {:?}", self.name),
                format!("it has {} bytes", self.alias.len()),
                "Stay inside the array.",
            )),
        }
    }

    /// Copies bytes out through the alias, which never traps.
    ///
    /// # Errors
    /// Outside the array, or no memory.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), SharedError> {
        self.check("reading", offset, into.len())?;
        // SAFETY: inside the alias, which lives as long as `self`; `into` is our caller's own
        // memory, so the two do not overlap.
        unsafe {
            ptr::copy_nonoverlapping(
                self.alias.base().as_ptr().add(offset),
                into.as_mut_ptr(),
                into.len(),
            )
        };
        Ok(())
    }

    /// As [`read`](Self::read), including bytes that have arrived since and wait for guards to end.
    pub(super) fn read_newest(&self, offset: usize, into: &mut [u8]) -> Result<(), SharedError> {
        self.read(offset, into)?;
        self.borrows.overlay(offset, into);
        Ok(())
    }

    /// Returns `true` if bytes that arrived for these pages wait for guards to end.
    pub(super) fn has_pending(&self, pages: Range<u64>) -> bool {
        self.borrows.has_pending(pages)
    }

    /// Copies bytes in through the alias, which never traps. They are visible at once where the
    /// view is mapped. Bytes that a live guard has shown wait until it ends.
    ///
    /// # Errors
    /// Outside the array, or no memory.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), SharedError> {
        self.place(offset, bytes, Incoming::Fetched)
    }

    /// Allocates memory for pages that are about to be written. A failure shows when they are.
    pub(super) fn expect_writes(&self, pages: Range<u64>) {
        let _ = self.populate_alias(pages);
    }

    /// Returns `true` if bytes of unmapped pages may be received directly into the alias, because
    /// none of them would have to wait for guards to end.
    pub(super) fn may_receive(&self, pages: Range<u64>) -> bool {
        self.borrows.hold_nothing_of(&pages) && self.populate_alias(pages).is_ok()
    }

    /// As [`write`](Self::write), for a diff to pages whose home is here: all bytes under live
    /// guards wait.
    pub(super) fn merge(&self, offset: usize, bytes: &[u8]) -> Result<(), SharedError> {
        self.place(offset, bytes, Incoming::Diff)
    }

    fn place(&self, offset: usize, bytes: &[u8], incoming: Incoming) -> Result<(), SharedError> {
        self.check("writing", offset, bytes.len())?;
        if !bytes.is_empty() {
            let end = (offset + bytes.len()).div_ceil(PAGE);
            self.populate_alias((offset / PAGE) as u64..end as u64)?;
            self.borrows.place(&self.name, offset, bytes, incoming, self);
        }
        Ok(())
    }

    pub(super) fn end_loan(&self, ticket: u64) {
        self.borrows.give_back(ticket, self);
    }
}

impl SharedMemory {
    pub(super) fn expect_touches(
        &self,
        bytes: &Range<usize>,
        access: Access,
    ) -> Result<(), SharedError> {
        if self.others.is_some() {
            return Ok(());
        }
        let pages = (bytes.start / PAGE) as u64..bytes.end.div_ceil(PAGE) as u64;
        self.tracker.expect_touches(&self.view, pages, access)
    }
}

impl AliasBytes for SharedMemory {
    fn load(&self, at: usize) -> u8 {
        if at >= self.alias.len() {
            return 0;
        }
        // SAFETY: inside the alias, which lives as long as `self`. Volatile: a write guard's thread
        // may store there meanwhile.
        unsafe { self.alias.base().as_ptr().add(at).read_volatile() }
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        if at.checked_add(bytes.len()).is_some_and(|end| end <= self.alias.len()) {
            // SAFETY: inside the alias; `place` has allocated its memory, so no SIGBUS. The
            // registry calls this only for bytes that no live guard has shown. The source may be
            // in the alias, too.
            unsafe {
                let place = self.alias.base().as_ptr().add(at);
                // The bytes may have been received directly into place.
                if !ptr::eq(bytes.as_ptr(), place) {
                    ptr::copy(bytes.as_ptr(), place, bytes.len());
                }
            };
        }
    }
}

/// Creates a file without memory, of at least `len` bytes, for an array of this name.
///
/// # Errors
/// [`MemoryError`].
pub fn sparse_file(name: &str, len: usize) -> Result<OwnedFd, MemoryError> {
    // The name shows only in /proc/PID/maps. The kernel allows 249 bytes and no NUL.
    let label: String =
        format!("oikaze:{name}").chars().filter(|c| !c.is_control()).take(60).collect();
    memfd::sparse(&label, len)
}

/// Gives the kernel advice about a whole mapping that changes none of its bytes.
fn advise(mapping: &Mapping, advice: Advice) -> Result<(), MemoryError> {
    // SAFETY: a live mapping of ours; NOHUGEPAGE and DONTFORK, the only advice used, keep its
    // bytes.
    unsafe { rustix::mm::madvise(mapping.base().as_ptr().cast(), mapping.len(), advice) }
        .map_err(|why| MemoryError::system("advise on shared memory", mapping.len(), why))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // The descriptor of userfaultfd that a child of fork inherits acts on the parent's memory
        // (MEM-24.2).
        if self.origin.is_here() {
            self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::DisabledFeatures;
    use crate::memory::tracking::choose;

    fn array(bytes: usize) -> Result<SharedMemory, SharedError> {
        SharedMemory::new(0, "p", bytes, choose(&DisabledFeatures::default()).unwrap().tracker)
    }

    fn blocks(memory: &SharedMemory) -> usize {
        rustix::fs::fstat(&memory.file).unwrap().st_blocks as usize * 512
    }

    #[test]
    fn only_populated_pages_take_memory() {
        let memory = array(1 << 30).unwrap();
        assert_eq!(blocks(&memory), 0);
        memory.populate(3..5).unwrap();
        memory.populate(4..8).unwrap();
        memory.write(100 * PAGE - 1, &[1, 2]).unwrap();
        assert_eq!(blocks(&memory), 7 * PAGE);
    }

    #[test]
    fn pages_that_expect_writes_take_memory_once() {
        let memory = array(1 << 30).unwrap();
        memory.write(5 * PAGE, &[1]).unwrap();
        memory.expect_writes(4..8);
        assert_eq!(blocks(&memory), 4 * PAGE);
        memory.write(4 * PAGE, &vec![7; 4 * PAGE]).unwrap();
        memory.expect_writes(6..memory.pages() + 1); // not in the array
        assert_eq!(blocks(&memory), 4 * PAGE);
        let mut byte = [0];
        memory.read(5 * PAGE, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_that_says_so() {
        let text = array(1 << 46).and_then(|m| m.populate(0..m.pages())).unwrap_err().to_string();
        assert!(text.contains("array \"p\""), "{text}");
        assert!(text.contains("available") || text.contains("memory"), "{text}");
        assert!(array(usize::MAX).is_err());
    }

    #[test]
    fn elements_outside_the_array_are_refused() {
        let memory = array(100).unwrap();
        assert_eq!((memory.bytes(), memory.pages()), (100, 1));
        memory.install(0..1, Access::Write).unwrap();
        assert_eq!(memory.slice::<u64>(0..12).unwrap().len(), 12);
        assert!(
            memory
                .slice::<u64>(0..13)
                .unwrap_err()
                .to_string()
                .contains("the array has 12 of them")
        );
        assert!(memory.slice_mut::<u64>(usize::MAX / 8..usize::MAX / 4, GuardKind::Write).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = 3..2;
        assert!(memory.slice::<u8>(backwards).is_err());
        assert!(memory.slice::<()>(0..1).is_err());
    }

    #[test]
    fn overlapping_guards_are_refused_and_disjoint_ones_are_not() {
        let memory = array(4 * PAGE).unwrap();
        memory.install(0..4, Access::Write).unwrap();
        let mut low = memory.slice_mut::<f32>(0..10, GuardKind::Write).unwrap();
        let mut high = memory.slice_mut::<f32>(10..20, GuardKind::Write).unwrap();
        low[9] = 1.0;
        high[0] = 2.0;
        assert!(memory.slice::<f32>(9..11).is_err());
        drop((low, high));
        let (a, b) = (memory.slice::<f32>(9..11).unwrap(), memory.slice::<f32>(0..20).unwrap());
        assert_eq!((a[0], a[1], b[10]), (1.0, 2.0, 2.0));
        assert_eq!(memory.borrows().count(), 2);
    }

    /// COH-3.9: bytes of a fetch wait for a guard that has shown the page.
    #[test]
    fn pages_that_a_guard_has_shown_receive_nothing_directly() {
        let memory = array(8 * PAGE).unwrap();
        memory.install(0..3, Access::Read).unwrap();
        let guard = memory.slice::<u8>(PAGE..PAGE + 10).unwrap();
        assert!(memory.may_receive(0..3), "no page was invalidated while the guard lived");
        memory.invalidate(0..3).unwrap();
        assert!(memory.may_receive(0..1) && memory.may_receive(2..6));
        assert!(!memory.may_receive(0..2) && !memory.may_receive(1..3));
        memory.write(PAGE, &[9]).unwrap();
        drop(guard);
        assert!(memory.may_receive(0..3));
        assert_eq!(blocks(&memory), 6 * PAGE, "there is memory for what is received");
    }

    #[test]
    fn the_alias_region_is_the_same_memory_and_outlives_the_array() {
        let memory = array(2 * PAGE).unwrap();
        let region = memory.alias_region();
        assert_eq!(region.len(), 2 * PAGE);
        region.write(PAGE as u64, b"wind").unwrap();
        memory.install(1..2, Access::Read).unwrap();
        assert_eq!(memory.slice::<u8>(PAGE..PAGE + 4).unwrap()[..], *b"wind");
        drop(memory);
        let mut back = [0; 4];
        region.read(PAGE as u64, &mut back).unwrap();
        assert_eq!(&back, b"wind");
    }
}
