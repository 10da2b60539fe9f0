//! Model of one node's memory: real bytes in the alias, and the access that the view permits to
//! each page.

use core::ops::Range;
use oikaze_protocol::coherence::{Access, ArrayId, Pages};
use oikaze_protocol::limits::PAGE;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Machine {
    alias: BTreeMap<ArrayId, Vec<u8>>,
    view: BTreeMap<(ArrayId, u64), Access>,
    /// Number of times that threads which sleep on a page were woken.
    wakes: BTreeMap<(ArrayId, u64), u64>,
    /// Number of changes of mappings: calls that a real machine makes by system calls.
    pub mapping_changes: u64,
    /// Is `true` if the next change of pages fails. No change succeeds afterwards.
    pub fail_next: bool,
    failure: Option<String>,
}

impl Machine {
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns `true` if pages can be changed. The first failure maps all pages with their present
    /// bytes and wakes all sleeping threads.
    fn remaps(&mut self) -> bool {
        self.mapping_changes += 1;
        self.works()
    }

    fn works(&mut self) -> bool {
        if core::mem::take(&mut self.fail_next) {
            self.failure = Some("mprotect of 4096 bytes: out of mappings".into());
            let all = |(array, bytes): (&ArrayId, &Vec<u8>)| {
                (0..bytes.len() / PAGE).map(|page| (*array, page as u64)).collect::<Vec<_>>()
            };
            for (array, page) in self.alias.iter().flat_map(all).collect::<Vec<_>>() {
                self.view.insert((array, page), Access::Write);
                self.wake(array, page);
            }
        }
        self.failure.is_none()
    }

    pub fn add(&mut self, array: ArrayId, pages: u64) {
        self.alias.insert(array, vec![0; pages as usize * PAGE]);
    }

    pub fn alias(&self, array: ArrayId) -> &[u8] {
        &self.alias[&array]
    }

    pub fn has(&self, array: ArrayId) -> bool {
        self.alias.contains_key(&array)
    }

    pub fn mapped(&self, array: ArrayId, page: u64) -> Option<Access> {
        self.view.get(&(array, page)).copied()
    }

    pub fn wakes(&self, array: ArrayId, page: u64) -> u64 {
        self.wakes.get(&(array, page)).copied().unwrap_or(0)
    }

    fn wake(&mut self, array: ArrayId, page: u64) {
        *self.wakes.entry((array, page)).or_default() += 1;
    }

    /// Loads bytes for a thread. Returns `None` if the page is not mapped.
    pub fn load(&self, array: ArrayId, at: usize, len: usize) -> Option<u64> {
        self.mapped(array, (at / PAGE) as u64)?;
        let mut value = [0; 8];
        value[..len].copy_from_slice(&self.alias[&array][at..at + len]);
        Some(u64::from_le_bytes(value))
    }

    /// Stores bytes for a thread. Returns `false` if the page is not mapped for stores.
    pub fn store(&mut self, array: ArrayId, at: usize, len: usize, value: u64) -> bool {
        let writable = self.mapped(array, (at / PAGE) as u64) == Some(Access::Write);
        if writable {
            self.alias.get_mut(&array).unwrap()[at..at + len]
                .copy_from_slice(&value.to_le_bytes()[..len]);
        }
        writable
    }
}

impl Pages for Machine {
    fn may_receive(&mut self, _array: ArrayId, _pages: Range<u64>) -> bool {
        true
    }

    fn free(&mut self, array: ArrayId) {
        assert!(self.alias.remove(&array).is_some(), "array {array} is freed twice");
        self.view.retain(|(other, _), _| *other != array);
    }

    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        assert!(pages.end as usize * PAGE <= self.alias[&array].len());
        if !self.remaps() {
            return;
        }
        for page in pages {
            self.view.insert((array, page), access);
            self.wake(array, page);
        }
    }

    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access) {
        if !self.remaps() {
            return;
        }
        for page in pages {
            let old = self.view.insert((array, page), access);
            assert!(old.is_some(), "page {page} of array {array} is not mapped");
            if access == Access::Write {
                self.wake(array, page);
            }
        }
    }

    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>) {
        if !self.remaps() {
            return;
        }
        for page in pages {
            assert!(
                self.view.remove(&(array, page)).is_some(),
                "page {page} of array {array} is not mapped"
            );
            self.wake(array, page);
        }
    }

    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.alias[&array][page as usize * PAGE..][..PAGE]);
    }

    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        if self.works() {
            self.alias.get_mut(&array).unwrap()[offset as usize..][..bytes.len()]
                .copy_from_slice(bytes);
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}
