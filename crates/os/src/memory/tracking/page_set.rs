//! Pages of all arrays on this node, as coherence sees them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Access, ArrayId, Pages};
use oikaze_protocol::limits::PAGE;

use super::error::{END_GUARD, SharedError};
use super::live_guards::LiveGuards;
use super::shared_memory::SharedMemory;

/// Memory of all arrays. Calls from coherence return no error. After the first failure, no view is
/// tracked any more, because the pages' real state may differ from the state known to coherence.
/// [`Pages::failure`] returns that failure (COH-8.5).
#[derive(Debug, Default)]
pub struct PageSet {
    arrays: BTreeMap<ArrayId, Arc<SharedMemory>>,
    failure: OnceLock<String>,
    guards: Arc<LiveGuards>,
}

impl PageSet {
    /// Returns a set without arrays.
    #[must_use]
    pub fn new() -> PageSet {
        PageSet::default()
    }

    /// Returns the count of guards of all arrays that were made with it
    /// ([`SharedMemory::counted`]).
    #[must_use]
    pub fn guards(&self) -> &Arc<LiveGuards> {
        &self.guards
    }

    /// Returns an error that refuses `doing` if a guard is alive, of the calling thread if
    /// `of_this_thread` (COH-6.10, COH-7.7).
    #[must_use]
    pub fn guard_in_the_way(&self, doing: &str, of_this_thread: bool) -> Option<SharedError> {
        self.iter().find_map(|memory| {
            let guard = memory.borrows().describe_one(of_this_thread)?;
            let whose = if of_this_thread { "this thread" } else { "this process" };
            Some(SharedError::invalid(
                doing.to_owned(),
                format!("{guard} of array {:?} is alive in {whose}", memory.name()),
                format!("{END_GUARD}: what a guard shows must not change, and this makes other nodes' writes visible."),
            ))
        })
    }

    /// Adds an array, and returns the array that had its number before, if any.
    pub fn insert(&mut self, memory: Arc<SharedMemory>) -> Option<Arc<SharedMemory>> {
        self.arrays.insert(memory.array(), memory)
    }

    /// Removes an array.
    pub fn remove(&mut self, array: ArrayId) -> Option<Arc<SharedMemory>> {
        self.arrays.remove(&array)
    }

    /// Removes all arrays and stops tracking them. Threads that wait in an array go on, and later
    /// touches see the last bytes on this node.
    pub fn release(&mut self) {
        for memory in std::mem::take(&mut self.arrays).into_values() {
            memory.release();
        }
    }

    /// Returns the array whose view contains any of these addresses.
    #[inline]
    #[must_use]
    pub fn tracks(&self, addresses: &Range<usize>) -> Option<&Arc<SharedMemory>> {
        if self.arrays.is_empty() { None } else { self.find(addresses) }
    }

    fn find(&self, addresses: &Range<usize>) -> Option<&Arc<SharedMemory>> {
        let Range { start, end } = *addresses;
        self.iter().find(|memory| {
            let view = memory.view();
            start < view.base() + view.len() && view.base() < end
        })
    }

    /// Returns one array's memory.
    #[must_use]
    pub fn get(&self, array: ArrayId) -> Option<&Arc<SharedMemory>> {
        self.arrays.get(&array)
    }

    /// Iterates over all arrays.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedMemory>> {
        self.arrays.values()
    }

    /// Records that pages cannot be served any more, for this reason, unless a failure was recorded
    /// before.
    pub fn fail(&self, why: &SharedError) {
        if self.failure.get().is_none() {
            self.iter().for_each(|memory| memory.release());
            // Format the reason only now: at the limit of mappings, no memory for text was
            // available before.
            let _ = self.failure.set(why.to_string());
        }
    }

    /// Changes an array, unless a change has failed before.
    fn change(&self, array: ArrayId, call: impl FnOnce(&SharedMemory) -> Result<(), SharedError>) {
        if self.failure.get().is_none() {
            self.with(array, call);
        }
    }

    fn with(&self, array: ArrayId, call: impl FnOnce(&SharedMemory) -> Result<(), SharedError>) {
        let result = match self.arrays.get(&array) {
            Some(memory) => call(memory),
            None => Err(SharedError::invalid(
                format!("array number {array}"),
                "this node has no such array",
                "This is a bug in the runtime; please report it.",
            )),
        };
        if let Err(e) = result {
            self.fail(&e);
        }
    }
}

impl Pages for PageSet {
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        self.change(array, |m| m.install(pages, access));
    }

    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        self.change(array, |m| m.set_access(pages, access));
    }

    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>) {
        self.change(array, |m| m.invalidate(pages));
    }

    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        self.with(array, |m| {
            let offset =
                usize::try_from(page).ok().and_then(|p| p.checked_mul(PAGE)).unwrap_or(usize::MAX);
            m.read(offset, into)
        });
    }

    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        self.change(array, |m| m.write(usize::try_from(offset).unwrap_or(usize::MAX), bytes));
    }

    fn expect_writes(&mut self, array: ArrayId, pages: Range<u64>) {
        if let Some(memory) = self.arrays.get(&array) {
            memory.expect_writes(pages);
        }
    }

    fn merge(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        self.change(array, |m| m.merge(usize::try_from(offset).unwrap_or(usize::MAX), bytes));
    }

    fn may_receive(&mut self, array: ArrayId, pages: Range<u64>) -> bool {
        let is_sound = self.failure.get().is_none();
        is_sound && self.arrays.get(&array).is_some_and(|memory| memory.may_receive(pages))
    }

    fn has_pending(&self, array: ArrayId, pages: Range<u64>) -> bool {
        self.arrays.get(&array).is_some_and(|memory| memory.has_pending(pages))
    }

    fn read_newest(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        self.with(array, |m| {
            let offset =
                usize::try_from(page).ok().and_then(|p| p.checked_mul(PAGE)).unwrap_or(usize::MAX);
            m.read_newest(offset, into)
        });
    }

    fn lost(&mut self, array: ArrayId, page: u64, home: Rank) {
        if let Some(memory) = self.arrays.get(&array) {
            memory.lost.add(page, home);
        }
    }

    fn free(&mut self, array: ArrayId) {
        let Some(memory) = self.arrays.remove(&array) else { return };
        // A program in C or Python may still have its address. A touch must not wait for ever.
        if Arc::strong_count(&memory) > 1 {
            memory.release();
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::others::GuardKind;
    use super::*;
    use crate::features::DisabledFeatures;
    use crate::memory::tracking::choose;

    fn set_of(pages: usize) -> PageSet {
        let tracker = choose(&DisabledFeatures::default()).unwrap().tracker;
        let mut set = PageSet::new();
        assert!(
            set.insert(Arc::new(SharedMemory::new(5, "p", pages * PAGE, tracker).unwrap()))
                .is_none()
        );
        set
    }

    #[test]
    fn coherences_calls_reach_the_array() {
        let mut set = set_of(3);
        set.write(5, PAGE as u64 + 8, &[1, 2, 3]);
        set.install(5, 0..3, Access::Write);
        let memory = Arc::clone(set.get(5).unwrap());
        assert_eq!(memory.slice::<u8>(PAGE + 8..PAGE + 11).unwrap()[..], [1, 2, 3]);
        memory.slice_mut::<u8>(PAGE..PAGE + 1, GuardKind::Write).unwrap()[0] = 7;
        set.set_access(5, 0..3, Access::Read);
        let mut page = [0; PAGE];
        set.read(5, 1, &mut page);
        assert_eq!((page[0], page[8], page[11]), (7, 1, 0));
        set.invalidate(5, 0..3);
        assert_eq!(set.failure(), None);
        assert!(set.remove(5).is_some() && set.get(5).is_none());
    }

    #[test]
    fn with_the_first_failure_nothing_is_tracked_or_changed_any_more() {
        let mut set = set_of(2);
        set.read(5, u64::MAX, &mut [0]);
        assert!(set.failure().unwrap().contains("reading 1 bytes"));
        set.install(6, 0..1, Access::Read);
        set.invalidate(5, 0..2);
        set.write(5, 0, &[1]);
        assert!(set.failure().unwrap().contains("reading 1 bytes"), "the first is told");
        // No thread serves faults here, so a touch that trapped would wait for ever.
        let memory = Arc::clone(set.get(5).unwrap());
        memory.slice_mut::<u8>(PAGE..PAGE + 1, GuardKind::Write).unwrap()[0] = 7;
        assert_eq!(memory.slice::<u8>(0..1).unwrap()[0], 0);
    }
}
