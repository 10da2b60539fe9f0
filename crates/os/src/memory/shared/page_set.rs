//! The pages of all arrays on this node, as coherence sees them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use oikaze_protocol::coherence::{Access, ArrayId, Pages};
use oikaze_protocol::limits::PAGE;

use super::error::SharedError;
use super::shared_memory::SharedMemory;

/// All arrays' memory. Coherence's calls cannot fail by themselves; the first system call that does is kept, and
/// [`take_error`](Self::take_error) gives it to the engine, which fails the job with its text.
#[derive(Debug, Default)]
pub struct PageSet {
    arrays: BTreeMap<ArrayId, Arc<SharedMemory>>,
    error: Mutex<Option<SharedError>>,
}

impl PageSet {
    /// No arrays yet.
    #[must_use]
    pub fn new() -> PageSet {
        PageSet::default()
    }

    /// Add an array; the one that had its number, if any.
    pub fn insert(&mut self, memory: Arc<SharedMemory>) -> Option<Arc<SharedMemory>> {
        self.arrays.insert(memory.array(), memory)
    }

    /// Forget an array.
    pub fn remove(&mut self, array: ArrayId) -> Option<Arc<SharedMemory>> {
        self.arrays.remove(&array)
    }

    /// Forget all arrays and track them no more: who waits in one goes on, and who touches one later meets its last bytes here.
    pub fn release(&mut self) {
        for memory in std::mem::take(&mut self.arrays).into_values() {
            memory.release();
        }
    }

    /// Which array has any of these bytes in its view, by address?
    #[must_use]
    pub fn tracks(&self, bytes: &[u8]) -> Option<&Arc<SharedMemory>> {
        let (start, end) = (bytes.as_ptr() as usize, bytes.as_ptr() as usize + bytes.len());
        self.iter().find(|memory| {
            let view = memory.view();
            start < view.base() + view.len() && view.base() < end
        })
    }

    /// One array's memory.
    #[must_use]
    pub fn get(&self, array: ArrayId) -> Option<&Arc<SharedMemory>> {
        self.arrays.get(&array)
    }

    /// All arrays.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedMemory>> {
        self.arrays.values()
    }

    /// The first failure since the last call.
    pub fn take_error(&mut self) -> Option<SharedError> {
        self.error.get_mut().unwrap_or_else(PoisonError::into_inner).take()
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
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    }
}

impl Pages for PageSet {
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        self.with(array, |m| m.install(pages, access));
    }

    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        self.with(array, |m| m.set_access(pages, access));
    }

    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>) {
        self.with(array, |m| m.invalidate(pages));
    }

    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        self.with(array, |m| {
            let offset = usize::try_from(page).ok().and_then(|p| p.checked_mul(PAGE)).unwrap_or(usize::MAX);
            m.read(offset, into)
        });
    }

    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        self.with(array, |m| m.write(usize::try_from(offset).unwrap_or(usize::MAX), bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::shared::choose;
    use crate::without::Without;

    fn set_of(pages: usize) -> PageSet {
        let tracker = choose(&Without::default()).unwrap().tracker;
        let mut set = PageSet::new();
        assert!(set.insert(Arc::new(SharedMemory::new(5, "p", pages * PAGE, tracker).unwrap())).is_none());
        set
    }

    #[test]
    fn coherences_calls_reach_the_array() {
        let mut set = set_of(3);
        set.write(5, PAGE as u64 + 8, &[1, 2, 3]);
        set.install(5, 0..3, Access::Write);
        let memory = Arc::clone(set.get(5).unwrap());
        assert_eq!(memory.slice::<u8>(PAGE + 8..PAGE + 11).unwrap()[..], [1, 2, 3]);
        memory.slice_mut::<u8>(PAGE..PAGE + 1).unwrap()[0] = 7;
        set.set_access(5, 0..3, Access::Read);
        let mut page = [0; PAGE];
        set.read(5, 1, &mut page);
        assert_eq!((page[0], page[8], page[11]), (7, 1, 0));
        set.invalidate(5, 0..3);
        assert!(set.take_error().is_none());
        assert!(set.remove(5).is_some() && set.get(5).is_none());
    }

    #[test]
    fn the_first_failure_is_kept_until_it_is_taken() {
        let mut set = set_of(2);
        set.install(6, 0..1, Access::Read);
        set.install(5, 0..3, Access::Read);
        set.write(5, u64::MAX, &[0]);
        let text = set.take_error().unwrap().to_string();
        assert!(text.contains("array number 6"), "{text}");
        assert!(set.take_error().is_none());
        set.read(5, u64::MAX, &mut [0]);
        assert!(set.take_error().unwrap().to_string().contains("reading 1 bytes"));
    }
}
