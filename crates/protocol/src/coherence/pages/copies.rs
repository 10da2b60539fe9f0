//! Copies of pages homed elsewhere, as this node tells its parent in the tree of collectives
//! (COH-6.19).

use crate::coherence::pages::number_set::NumberSet;
use crate::planted::{Bug, planted};
use core::ops::Range;

/// Pages of one array of which this node may hold a copy, as far as its parent knows.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Copies {
    /// `false` on a node that tells nobody: rank 0, and both nodes of a pair.
    are_told: bool,
    told: NumberSet,
    /// Pages that became copies or ceased to be since this node last told.
    changed: NumberSet,
}

impl Copies {
    pub fn new(are_told: bool) -> Copies {
        Copies { are_told, ..Copies::default() }
    }

    /// Records that a page became a copy, or ceased to be one.
    pub fn change(&mut self, page: u64) {
        if self.are_told {
            self.changed.insert(page..page + 1);
        }
    }

    /// Returns `true` if a departure without this page says that the page is not named for this
    /// node (COH-6.21).
    pub fn is_told_of(&self, page: u64) -> bool {
        !self.are_told || self.told.contains(page) || planted(Bug::TrustUnconfirmed)
    }

    /// Returns the parts of a range that this node has told.
    pub fn told(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.told.overlaps(range)
    }

    /// Returns the pages that became copies and are not told.
    pub fn untold(&self, is_copy: impl Fn(u64) -> bool) -> NumberSet {
        let mut untold = NumberSet::default();
        for page in self.changed.iter().flatten() {
            if is_copy(page) && !self.told.contains(page) {
                untold.insert(page..page + 1);
            }
        }
        untold
    }

    /// Returns the pages that were told and have ceased to be copies.
    pub fn lost(&self, is_copy: impl Fn(u64) -> bool) -> NumberSet {
        let mut lost = NumberSet::default();
        for page in self.changed.iter().flatten() {
            if !is_copy(page) && self.told.contains(page) {
                lost.insert(page..page + 1);
            }
        }
        lost
    }

    /// Counts these pages as told. All changes are known to the parent then.
    pub fn tell(&mut self, gained: &NumberSet, lost: &NumberSet) {
        gained.iter().for_each(|range| self.told.insert(range));
        if !planted(Bug::ForgetRegained) {
            lost.iter().for_each(|range| self.told.remove(range));
        }
        self.changed = NumberSet::default();
    }
}
