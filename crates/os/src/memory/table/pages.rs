//! Rights that differ from page to page (MEM-1.6).

use core::ops::Range;
use oikaze_protocol::rma::Rights;
use std::collections::BTreeMap;

/// Runs of pages with equal rights. Their number grows with the changes made, not with the region.
#[derive(Clone, Debug)]
pub(super) struct PageRights {
    /// Rights from this page up to the next key. Page 0 always has an entry, and no two consecutive
    /// entries are equal.
    runs: BTreeMap<u64, Rights>,
}

impl PageRights {
    /// Grants the same rights on every page, also on pages that the region may grow by.
    pub fn uniform(rights: Rights) -> PageRights {
        PageRights { runs: BTreeMap::from([(0, rights)]) }
    }

    pub fn is_uniform(&self) -> bool {
        self.runs.len() == 1
    }

    fn of(&self, page: u64) -> Rights {
        self.runs.range(..=page).next_back().map_or(Rights::NONE, |(_, rights)| *rights)
    }

    pub fn set(&mut self, pages: Range<u64>, rights: Rights) {
        if pages.is_empty() {
            return;
        }
        let after = self.of(pages.end);
        let within: Vec<u64> =
            self.runs.range(pages.start..=pages.end).map(|(page, _)| *page).collect();
        for page in within {
            self.runs.remove(&page);
        }
        self.begin_run(pages.start, rights);
        self.begin_run(pages.end, after);
    }

    /// Begins a run at this page, unless the page before has the same rights.
    fn begin_run(&mut self, page: u64, rights: Rights) {
        let before = page.checked_sub(1).map(|before| self.of(before));
        if before != Some(rights) {
            self.runs.insert(page, rights);
        }
    }

    /// Returns `true` if all of these pages grant `right`.
    pub fn grant(&self, pages: Range<u64>, right: Rights) -> bool {
        for (first, rights) in self.runs.range(..pages.end).rev() {
            if !rights.contains(right) {
                return false;
            }
            if *first <= pages.start {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// MEM-1.6, checked against a list of pages.
        #[test]
        fn runs_do_what_a_list_of_pages_does(
            first in 0..8u8,
            changes in proptest::collection::vec((0..40u64, 0..20u64, 0..8u8), 0..40),
            asked in proptest::collection::vec((0..50u64, 1..20u64, 0..8u8), 1..40),
        ) {
            let mut list = [Rights(first); 80];
            let mut runs = PageRights::uniform(Rights(first));
            for (start, len, rights) in changes {
                runs.set(start..start + len, Rights(rights));
                list[start as usize..(start + len) as usize].fill(Rights(rights));
                let boundaries = 1 + list.windows(2).filter(|pair| pair[0] != pair[1]).count();
                prop_assert_eq!(runs.runs.len(), boundaries, "equal adjacent pages are one run");
                prop_assert_eq!(runs.is_uniform(), boundaries == 1);
            }
            for (start, len, right) in asked {
                let all = list[start as usize..(start + len) as usize].iter().all(|rights| rights.contains(Rights(right)));
                prop_assert_eq!(runs.grant(start..start + len, Rights(right)), all);
            }
        }
    }
}
