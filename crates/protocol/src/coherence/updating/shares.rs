//! Nodes that got everything that was written to pages in the open interval (COH-10.9).

use crate::Rank;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::page::PageId;
use crate::coherence::pages::run_map::RunMap;
use crate::planted::{Bug, planted};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Nodes by runs of pages, because a guard of many pages is one run.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct PageShares(BTreeMap<ArrayId, RunMap<Vec<Rank>>>);

impl PageShares {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.0.remove(&array);
    }

    /// Returns the nodes that got everything that was written to a page, if anything was.
    pub fn of(&self, id: PageId) -> Option<&[Rank]> {
        self.0.get(&id.0)?.get(id.1).map(Vec::as_slice)
    }

    /// Records that these nodes, and no others, got a part of what was written to some pages.
    pub fn add(&mut self, array: ArrayId, pages: Range<u64>, ranks: &[Rank]) {
        self.0.entry(array).or_default().change(pages, |known| match known {
            Some(known) if planted(Bug::ShareParts) => known.clone(),
            Some(known) => known.iter().copied().filter(|rank| ranks.contains(rank)).collect(),
            None => ranks.to_vec(),
        });
    }

    /// Returns the runs, in order, with their nodes.
    pub fn into_runs(self) -> impl Iterator<Item = (ArrayId, Range<u64>, Vec<Rank>)> {
        let of_array = |(array, runs): (ArrayId, RunMap<Vec<Rank>>)| {
            runs.into_runs().map(move |(pages, ranks)| (array, pages, ranks))
        };
        self.0.into_iter().flat_map(of_array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every page has the nodes that all of its parts went to, as in a map by page.
        #[test]
        fn runs_hold_what_a_map_by_page_holds(
            parts in prop::collection::vec(
                (0..2u32, 0..40u64, 1..12u64, prop::collection::vec(0..4u32, 0..4)),
                0..20,
            ),
        ) {
            let mut shares = PageShares::default();
            let mut by_page: BTreeMap<PageId, Vec<Rank>> = BTreeMap::new();
            for (array, start, len, ranks) in parts {
                shares.add(array, start..start + len, &ranks);
                for page in start..start + len {
                    by_page
                        .entry((array, page))
                        .and_modify(|known| known.retain(|rank| ranks.contains(rank)))
                        .or_insert_with(|| ranks.clone());
                }
            }
            for id in (0..2).flat_map(|array| (0..60).map(move |page| (array, page))) {
                prop_assert_eq!(shares.of(id), by_page.get(&id).map(Vec::as_slice));
            }
            let mut runs: BTreeMap<PageId, Vec<Rank>> = BTreeMap::new();
            for (array, pages, ranks) in shares.into_runs() {
                for page in pages {
                    prop_assert!(runs.insert((array, page), ranks.clone()).is_none(), "twice");
                }
            }
            prop_assert_eq!(runs, by_page);
        }
    }
}
