//! Sets of pages of several arrays.

use crate::coherence::clock::notices::Runs;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::PageId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Set of pages of several arrays.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct PageSets(BTreeMap<ArrayId, NumberSet>);

impl PageSets {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of_runs(runs: &Runs) -> PageSets {
        PageSets(runs.sets())
    }

    pub fn insert(&mut self, array: ArrayId, pages: Range<u64>) {
        self.0.entry(array).or_default().insert(pages);
    }

    pub fn remove(&mut self, array: ArrayId, pages: Range<u64>) {
        if let Some(set) = self.0.get_mut(&array) {
            set.remove(pages);
        }
    }

    pub fn insert_all(&mut self, runs: &Runs) {
        runs.iter().for_each(|(array, pages)| self.insert(*array, pages.clone()));
    }

    pub fn remove_all(&mut self, runs: &Runs) {
        runs.iter().for_each(|(array, pages)| self.remove(*array, pages.clone()));
    }

    pub fn contains(&self, (array, page): PageId) -> bool {
        self.0.get(&array).is_some_and(|pages| pages.contains(page))
    }

    /// Returns the pages of these runs that are in the set.
    pub fn common(&self, runs: &Runs) -> Runs {
        let parts = runs.iter().filter_map(|(array, pages)| {
            let parts = self.0.get(array)?.overlaps(pages.clone());
            Some(parts.map(|part| (*array, part)))
        });
        Runs::of_ranges(parts.flatten().collect())
    }

    /// Returns the number of runs.
    pub fn ranges(&self) -> usize {
        self.0.values().map(NumberSet::ranges).sum()
    }

    /// Returns the parts of a range that are in the set.
    pub fn overlaps(&self, array: ArrayId, pages: Range<u64>) -> Vec<Range<u64>> {
        self.0.get(&array).map_or_else(Vec::new, |set| set.overlaps(pages).collect())
    }

    pub fn forget(&mut self, array: ArrayId) {
        self.0.remove(&array);
    }

    pub fn runs(&self) -> Runs {
        Runs::of_sets(&self.0)
    }
}

impl From<&Runs> for PageSets {
    fn from(runs: &Runs) -> PageSets {
        let mut sets = PageSets::default();
        sets.insert_all(runs);
        sets
    }
}
