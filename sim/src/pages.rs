//! Model of the tracked view of shared arrays. It does what `oikaze-os` does with userfaultfd or
//! mprotect, without page faults.
//!
//! The alias of an array is real memory, registered in the engine's region table, so that datagrams
//! are gathered from it. The view is one access right per page. A program's loads and stores ask
//! the view first, as a processor would.
//!
//! Real threads run *while* the engine is in a turn. The model therefore also tries pending
//! accesses at the beginning of each call of coherence. A store may come between the write
//! protection of a page and its diff, or a load between two fragments.

use crate::random::Random;
use oikaze_os::memory::{MemoryError, Region};
use oikaze_protocol::coherence::{Access, ArrayId, Pages};
use oikaze_protocol::limits::PAGE;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Access of a thread to bytes of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touching {
    /// Reads this many bytes.
    Load(usize),
    /// Writes these bytes.
    Store(Vec<u8>),
}

impl Touching {
    /// Returns the access that the page must permit.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Touching::Load(_) => Access::Read,
            Touching::Store(_) => Access::Write,
        }
    }
}

/// Access of a thread within one page, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Array that contains the bytes.
    pub array: ArrayId,
    /// Offset of the bytes in the array.
    pub offset: u64,
    /// Access to the bytes.
    pub what: Touching,
}

impl Reach {
    /// Returns the page.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.offset / PAGE as u64
    }
}

#[derive(Debug)]
struct Array {
    memory: Region,
    /// Access that the view permits to each page: none, loads, or loads and stores.
    view: Vec<Option<Access>>,
    /// Number of wakeups of threads that wait at each page.
    wakeups: Vec<u64>,
}

/// Pages of all arrays of one node.
#[derive(Debug)]
pub struct SimPages(RefCell<Inner>);

#[derive(Debug)]
struct Inner {
    arrays: BTreeMap<ArrayId, Array>,
    pending: VecDeque<(u64, Reach)>,
    finished: BTreeMap<u64, Vec<u8>>,
    next: u64,
    random: Random,
    misuse: Option<String>,
}

impl SimPages {
    /// Makes the pages of a node without arrays.
    #[must_use]
    pub fn new(random: Random) -> SimPages {
        let (arrays, pending, finished) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        SimPages(RefCell::new(Inner { arrays, pending, finished, next: 0, random, misuse: None }))
    }

    /// Takes memory for an array. Returns its alias.
    ///
    /// # Errors
    /// The machine has no memory left.
    pub fn add(&mut self, array: ArrayId, bytes: u64) -> Result<Region, MemoryError> {
        let pages = (bytes as usize).div_ceil(PAGE);
        let memory = Region::zeroed(pages * PAGE)?;
        let alias = memory.clone();
        self.0
            .get_mut()
            .arrays
            .insert(array, Array { memory, view: vec![None; pages], wakeups: vec![0; pages] });
        Ok(alias)
    }

    /// Runs an access now, if the view permits it. Returns the bytes that it read (none for a
    /// store).
    pub fn reach(&mut self, reach: &Reach) -> Option<Vec<u8>> {
        self.0.get_mut().reach(reach)
    }

    /// Leaves an access to be done at any time from now on. Returns its number.
    pub fn leave(&mut self, reach: Reach) -> u64 {
        let inner = self.0.get_mut();
        inner.next += 1;
        inner.pending.push_back((inner.next, reach));
        inner.next
    }

    /// Takes back an access that was left. Returns the bytes that it read if it was done meanwhile.
    pub fn take_back(&mut self, number: u64) -> Option<Vec<u8>> {
        let inner = self.0.get_mut();
        inner.pending.retain(|(pending, _)| *pending != number);
        inner.finished.remove(&number)
    }

    /// Returns the number of wakeups of threads that wait at this page.
    #[must_use]
    pub fn wakeups(&self, array: ArrayId, page: u64) -> u64 {
        self.0
            .borrow()
            .arrays
            .get(&array)
            .and_then(|array| array.wakeups.get(page as usize))
            .copied()
            .unwrap_or(0)
    }

    /// Returns bytes of an array, through the alias.
    #[must_use]
    pub fn bytes(&self, array: ArrayId, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if let Some(array) = self.0.borrow().arrays.get(&array) {
            let _ = array.memory.read(range.start, &mut bytes);
        }
        bytes
    }

    /// Returns the access that the view permits, page by page.
    #[must_use]
    pub fn view(&self, array: ArrayId) -> Vec<Option<Access>> {
        self.0.borrow().arrays.get(&array).map(|array| array.view.clone()).unwrap_or_default()
    }

    /// Returns the view of every array.
    #[must_use]
    pub fn views(&self) -> Vec<(ArrayId, Vec<Option<Access>>)> {
        self.0.borrow().arrays.iter().map(|(id, array)| (*id, array.view.clone())).collect()
    }

    /// Returns the first call of coherence that made no sense.
    #[must_use]
    pub fn misuse(&self) -> Option<String> {
        self.0.borrow().misuse.clone()
    }
}

impl Inner {
    fn reach(&mut self, reach: &Reach) -> Option<Vec<u8>> {
        let array = self.arrays.get(&reach.array)?;
        let permitted = (*array.view.get(reach.page() as usize)?)?;
        match &reach.what {
            Touching::Load(len) => {
                let mut bytes = vec![0; *len];
                array.memory.read(reach.offset, &mut bytes).ok()?;
                Some(bytes)
            }
            Touching::Store(bytes) => {
                if permitted != Access::Write {
                    return None;
                }
                array.memory.write(reach.offset, bytes).ok()?;
                Some(Vec::new())
            }
        }
    }

    /// Tries some pending accesses, because threads run while the engine does.
    fn breathe(&mut self) {
        for _ in 0..self.pending.len() {
            if !self.random.chance(0.5) {
                return;
            }
            let Some((number, reach)) = self.pending.pop_front() else { return };
            match self.reach(&reach) {
                Some(read) => {
                    self.finished.insert(number, read);
                }
                None => self.pending.push_back((number, reach)),
            }
        }
    }

    fn check(&mut self, call: &str, array: ArrayId, pages: &Range<u64>) -> bool {
        let right = self.arrays.get(&array).is_some_and(|known| {
            pages.start <= pages.end && pages.end as usize <= known.view.len()
        });
        if !right && self.misuse.is_none() {
            self.misuse = Some(format!(
                "{call} of pages {}..{} of array {array}, which has none such",
                pages.start, pages.end
            ));
        }
        right
    }

    fn change(
        &mut self,
        call: &str,
        array: ArrayId,
        pages: Range<u64>,
        change: impl Fn(&mut Option<Access>) -> bool,
    ) {
        self.breathe();
        if !self.check(call, array, &pages) {
            return;
        }
        if let Some(array) = self.arrays.get_mut(&array) {
            for page in pages {
                if change(&mut array.view[page as usize]) {
                    array.wakeups[page as usize] += 1;
                }
            }
        }
    }
}

impl Pages for SimPages {
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        self.0.get_mut().change("install", array, pages, |view| {
            *view = Some(access);
            true
        });
    }

    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        // As in the trackers, pages that are not mapped stay so. Only the removal of a protection
        // wakes threads.
        self.0.get_mut().change("set_access", array, pages, |view| {
            if view.is_some() {
                *view = Some(access);
            }
            view.is_some() && access == Access::Write
        });
    }

    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>) {
        self.0.get_mut().change("invalidate", array, pages, |view| {
            *view = None;
            false
        });
    }

    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        let mut inner = self.0.borrow_mut();
        inner.breathe();
        let right = inner.check("read", array, &(page..page + 1));
        if let Some(array) = inner.arrays.get(&array).filter(|_| right) {
            let _ = array.memory.read(page * PAGE as u64, into);
        }
    }

    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        let inner = self.0.get_mut();
        inner.breathe();
        let pages = offset / PAGE as u64..(offset + bytes.len() as u64).div_ceil(PAGE as u64);
        let right = inner.check("write", array, &pages);
        if let Some(array) = inner.arrays.get(&array).filter(|_| right) {
            let _ = array.memory.write(offset, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> SimPages {
        let mut pages = SimPages::new(Random::stream(1, 1));
        pages.add(0, 2 * PAGE as u64).unwrap();
        pages
    }

    fn store(offset: u64, byte: u8) -> Reach {
        Reach { array: 0, offset, what: Touching::Store(vec![byte]) }
    }

    #[test]
    fn the_view_permits_what_was_installed() {
        let mut pages = pages();
        let load = Reach { array: 0, offset: 5, what: Touching::Load(1) };
        assert_eq!(pages.reach(&load), None);
        pages.install(0, 0..1, Access::Read);
        assert_eq!(pages.reach(&load), Some(vec![0]));
        assert_eq!(pages.reach(&store(5, 7)), None);
        pages.set_access(0, 0..2, Access::Write);
        assert_eq!(pages.reach(&store(5, 7)), Some(vec![]));
        assert_eq!(pages.reach(&load), Some(vec![7]));
        assert_eq!(pages.reach(&store(PAGE as u64, 7)), None, "set_access maps nothing");
        pages.invalidate(0, 0..1);
        assert_eq!(pages.reach(&load), None);
        assert_eq!(pages.bytes(0, 5..6), [7]);
    }

    #[test]
    fn what_waits_is_woken_by_what_wakes() {
        let mut pages = pages();
        let before = pages.wakeups(0, 0);
        pages.set_access(0, 0..1, Access::Write);
        pages.invalidate(0, 0..1);
        assert_eq!(pages.wakeups(0, 0), before);
        pages.install(0, 0..1, Access::Read);
        assert!(pages.wakeups(0, 0) > before);
    }

    #[test]
    fn accesses_left_behind_happen_during_calls() {
        let mut pages = pages();
        pages.install(0, 0..1, Access::Write);
        let number = pages.leave(store(3, 9));
        let mut page = [0; PAGE];
        (0..64).for_each(|_| pages.read(0, 0, &mut page));
        assert_eq!(page[3], 9);
        assert_eq!(pages.take_back(number), Some(vec![]));
        assert_eq!(pages.take_back(number), None);
    }

    #[test]
    fn nonsense_is_noticed() {
        let mut pages = pages();
        pages.install(0, 1..3, Access::Read);
        assert!(pages.misuse().is_some_and(|what| what.contains("install")));
    }
}
