//! State of the fetches of this node: touches, and runs of pages that are on their way.

use crate::Rank;
use crate::coherence::codec::PageRun;
use crate::coherence::fetching::limits::FETCH_PAGES_MAX;
use crate::coherence::pages::machine::{Access, ArrayId};
use crate::coherence::pages::page::PageId;
use crate::limits::PAGE;
use crate::wind::Token;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Ranges that are made valid page by page.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Touch {
    pub array: ArrayId,
    /// Ranges of the pages that have not been valid since the call, in order and disjoint.
    pub left: VecDeque<Range<u64>>,
    /// Ranges of the pages among them that have not been requested.
    pub unrequested: VecDeque<Range<u64>>,
    /// Number of the pages among them that have been requested.
    pub ahead: u64,
    pub access: Access,
    pub token: Token,
}

/// One page of a run.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct RunPage {
    /// Number of bytes that have arrived.
    pub filled: usize,
    /// `true` once the page is mapped or given up.
    pub decided: bool,
    /// Access for which threads wait for the page, if any do.
    pub wanted: Option<Wanted>,
}

/// Access for which threads of this node wait for a page that is on its way.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Wanted {
    pub access: Access,
    /// `true` if the page is mapped as soon as it has come. Otherwise it is mapped with its run,
    /// because the threads wait for the other pages, too.
    pub at_once: bool,
}

/// Reason of a fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FetchCause {
    /// A thread waits for the first page for this access. The other pages are read ahead.
    Fault(Access),
    /// A thread waits for all pages for this access.
    Touch(Access),
    /// The program will need all pages, and no thread waits for them.
    Prefetch,
}

impl FetchCause {
    /// Returns the interest in the page at this index of its run.
    pub fn wanted(self, index: u32) -> Option<Wanted> {
        match self {
            FetchCause::Fault(access) => (index == 0).then_some(Wanted { access, at_once: true }),
            FetchCause::Touch(access) => Some(Wanted { access, at_once: false }),
            FetchCause::Prefetch => None,
        }
    }

    pub fn demanded(self, count: u32) -> u32 {
        if matches!(self, FetchCause::Fault(_)) { 1 } else { count }
    }
}

/// One request and the part of its answer that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub pages: PageRun,
    pub home: Rank,
    /// Message number of the answer, once it has begun.
    pub answer: Option<u64>,
    pub slots: Vec<RunPage>,
    /// Number of slots that are not decided.
    pub undecided: u32,
}

/// All fetches under way to this node.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Fetches {
    pub next: u64,
    pub runs: BTreeMap<u64, Run>,
    /// Array, first page and number of each run. The pages of two runs overlap if one of them has
    /// a stale page that the other one fetches again.
    pub by_first: BTreeSet<(ArrayId, u64, u64)>,
    /// Number of pages that are [`PageState::Fetching`].
    pub pages: u64,
    /// Number of the run that a fragmented answer belongs to.
    pub answers: BTreeMap<(Rank, u64), u64>,
    /// Ranges that are fetched when fewer pages are on their way.
    pub prefetches: VecDeque<(ArrayId, Range<u64>)>,
    pub touches: Vec<Touch>,
    /// Numbers of runs that were refused because homes have moved (COH-11.5).
    pub moved: Vec<Range<u64>>,
    /// `true` if touches and prefetches may go on.
    pub is_due: bool,
}

impl Fetches {
    /// Returns the arrays of which pages are on their way.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayId> + '_ {
        self.runs.values().map(|run| run.pages.array)
    }

    /// Called when nobody waits for this touch any longer.
    pub fn cancel(&mut self, token: Token) {
        self.touches.retain(|touch| touch.token != token);
    }

    /// Forgets an array that no thread of this node uses any more.
    pub fn forget_unrequested(&mut self, array: ArrayId) {
        self.prefetches.retain(|(other, _)| *other != array);
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.forget_unrequested(array);
        self.touches.retain(|touch| touch.array != array);
    }

    /// Returns the number of the run that brings a page.
    pub fn run_of(&self, (array, page): PageId) -> Option<u64> {
        let nearest = page.saturating_sub(u64::from(FETCH_PAGES_MAX) - 1);
        let near = self.by_first.range((array, nearest, 0)..=(array, page, u64::MAX));
        near.rev().map(|(_, _, number)| *number).find(|number| {
            let run = self.runs.get(number);
            let slot = run.and_then(|run| run.slots.get(run.index(page)?));
            slot.is_some_and(|slot| !slot.decided)
        })
    }

    /// Removes a run that has no page on its way any more.
    pub fn remove(&mut self, number: u64) -> Option<Run> {
        let run = self.runs.remove(&number)?;
        self.by_first.remove(&(run.pages.array, run.pages.first, number));
        Some(run)
    }
}

impl Run {
    pub fn index(&self, page: u64) -> Option<usize> {
        usize::try_from(page.checked_sub(self.pages.first)?).ok()
    }
}

/// Leaves out the numbers of runs and of messages, which are only names. Runs under way to one node
/// have no page in common that is not decided, so a run's pages tell which one it is.
#[cfg(test)]
impl core::hash::Hash for Fetches {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Fetches {
            next: _,
            runs,
            by_first: _,
            pages,
            answers: _,
            prefetches,
            touches,
            moved,
            is_due,
        } = self;
        let mut sorted: Vec<&Run> = runs.values().collect();
        sorted.sort_by_key(|run| (run.pages.array, run.pages.first, run.pages.count));
        for Run { pages, home, answer, slots, undecided } in sorted {
            (pages.array, pages.first, pages.count, home).hash(state);
            (answer.is_some(), slots, undecided).hash(state);
        }
        (pages, prefetches, touches, moved.len(), is_due).hash(state);
    }
}

impl RunPage {
    /// Returns `true` if the page is mapped now: it is whole, and either is its run or threads
    /// need nothing else.
    pub fn is_due(&self, is_run_whole: bool) -> bool {
        let at_once = is_run_whole || self.wanted.is_some_and(|wanted| wanted.at_once);
        !self.decided && self.filled >= PAGE && at_once
    }
}
