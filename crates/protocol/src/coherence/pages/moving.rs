//! Homes that move (COH-11), as one node keeps them of one array: where pages are at home now,
//! which pages this node asks for, and what the second round of a collective is about.

use crate::Rank;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::run_map::RunMap;
use crate::planted::{Bug, planted};
use alloc::vec::Vec;
use core::ops::Range;

/// Number of collectives for which no node asks for a page that was proposed once (COH-11.8). The
/// number doubles with each proposal, because a page whose writers take turns gains nothing by
/// moving, nor does one that is written in each second round.
const PAUSE: u64 = 64;

/// MovePause of a page that was proposed.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct MovePause {
    /// Number of collectives before which no node asks for the page again.
    until: u64,
    /// Number of times that the page was proposed.
    times: u32,
}

/// Homes of an array's pages that have moved, and those that may move.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct MovingHomes {
    /// `true` if this node may ask to be the home of pages.
    pub may_ask: bool,
    /// `true` once a barrier has ended since all nodes have declared the array, with its second
    /// round.
    pub was_touched: bool,
    /// Present homes of pages that have moved.
    moved: RunMap<Rank>,
    pauses: RunMap<MovePause>,
    /// Pages homed elsewhere of which this node has written the last change that it knows of.
    written: NumberSet,
    /// Those of them of which it has written the last two changes.
    written_twice: NumberSet,
    /// Pages whose homes may move in the second round that is under way.
    pub proposed: NumberSet,
    /// Those of them for which this node serves as the home, because it has arrived there.
    offered: NumberSet,
}

impl MovingHomes {
    /// Returns the home of a page that has moved.
    #[inline]
    pub fn home(&self, page: u64) -> Option<Rank> {
        if self.moved.is_empty() {
            return None;
        }
        self.moved.get(page).copied()
    }

    /// Records that this node has written pages homed elsewhere in an interval that ends.
    pub fn note_written(&mut self, pages: Range<u64>) {
        if self.may_ask {
            let again: Vec<Range<u64>> = self.written.overlaps(pages.clone()).collect();
            again.into_iter().for_each(|part| self.written_twice.insert(part));
            self.written.insert(pages);
        }
    }

    /// Records that another node has written pages.
    pub fn note_other_writer(&mut self, pages: &Range<u64>) {
        if !self.written.is_empty() {
            self.written.remove(pages.clone());
            self.written_twice.remove(pages.clone());
        }
    }

    /// Returns the pages for which this node would ask after `epoch` collectives (COH-11.1).
    pub fn wanted(&self, epoch: u64) -> impl Iterator<Item = u64> + '_ {
        let pages = if self.was_touched { &self.written_twice } else { &self.written };
        let may_move =
            move |page: &u64| self.pauses.get(*page).is_none_or(|pause| pause.until <= epoch);
        pages.iter().flatten().filter(may_move)
    }

    /// Returns `true` if this node serves as the home of a page in the second round (COH-11.4).
    #[inline]
    pub fn offers(&self, page: u64) -> bool {
        let is_any = !self.offered.is_empty() && !planted(Bug::ServeMovedPagesLate);
        is_any && self.offered.contains(page)
    }

    /// Records that this node serves as the home of a page in the second round.
    pub fn offer(&mut self, page: u64) {
        self.offered.insert(page..page + 1);
    }

    /// Returns `true` if the home of a page may move in the second round that is under way.
    #[inline]
    pub fn is_proposed(&self, page: u64) -> bool {
        !self.proposed.is_empty() && self.proposed.contains(page)
    }

    /// Records the new home of pages.
    pub fn note_moved(&mut self, pages: Range<u64>, home: Rank) {
        self.note_other_writer(&pages);
        self.moved.change(pages, |_| home);
    }

    /// Ends the second round, after `epoch` collectives. The pages of the first barrier do not
    /// pause, because the node that fills an array is often not the one that works on it.
    pub fn end_round(&mut self, epoch: u64) {
        let proposed = core::mem::take(&mut self.proposed);
        self.offered = NumberSet::default();
        for pages in proposed.iter().filter(|_| self.was_touched) {
            self.pauses.change(pages, |before| {
                let times = before.map_or(0, |pause| pause.times);
                let until = epoch.saturating_add(PAUSE.saturating_mul(1 << times.min(32)));
                MovePause { until, times: times.saturating_add(1) }
            });
        }
    }
}
