//! Entries of this node's own area: which are in use.

use super::area::{ENTRIES, GUARDS_MAX};
use crate::memory::tracking::GuardKind;
use crate::shm::planted::{Bug, planted};

/// Entries of this node's own area. The first free one is taken first, so that other nodes look at
/// few.
#[derive(Debug, Default)]
pub(super) struct OwnEntries {
    in_use: Vec<bool>,
    /// No entry before this one is free.
    first_free: usize,
    sequence: u64,
}

impl OwnEntries {
    /// Takes the first free entry, and a sequence for it. Returns `None` if all are in use that
    /// this kind of guard may take.
    #[inline]
    pub fn take(&mut self, kind: GuardKind) -> Option<(usize, u64)> {
        let takes_all = kind == GuardKind::Merge || planted(Bug::KeepNoRoom);
        let limit = if takes_all { ENTRIES } else { GUARDS_MAX };
        let rest = self.in_use.get(self.first_free..).unwrap_or_default();
        let index = self.first_free + rest.iter().position(|used| !used).unwrap_or(rest.len());
        if index >= limit {
            return None;
        }
        if index == self.in_use.len() {
            self.in_use.push(true);
        } else if let Some(used) = self.in_use.get_mut(index) {
            *used = true;
        }
        self.first_free = index + 1;
        self.sequence += 1;
        Some((index, self.sequence))
    }

    /// Gives an entry back.
    #[inline]
    pub fn give_back(&mut self, index: usize) {
        if let Some(used) = self.in_use.get_mut(index) {
            *used = false;
        }
        self.first_free = self.first_free.min(index);
        while self.in_use.last() == Some(&false) {
            self.in_use.pop();
        }
    }

    /// Returns the number of entries that may be in use.
    #[inline]
    pub fn used(&self) -> usize {
        if planted(Bug::CountGuards) {
            return self.in_use.iter().filter(|used| **used).count();
        }
        self.in_use.len()
    }
}
