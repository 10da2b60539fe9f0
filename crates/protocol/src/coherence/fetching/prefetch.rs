//! Fetches of many pages: by as few requests to each home as the limits permit, and ahead of their
//! use (COH-3.3, COH-3.10).

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::array::PageState;
use crate::coherence::fetch::{
    FETCH_PAGES_MAX, FETCH_RUN_MAX, FETCH_RUNS_MAX, FetchCause, run_of_invalid,
};
use crate::coherence::machine::ArrayId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of pages on their way to this node for which a prefetch adds more: 4 MiB.
pub const PREFETCH_PAGES_MAX: u64 = 1024;

/// Takes up to `most` pages from the front of these ranges.
pub(crate) fn take_pages(ranges: &mut VecDeque<Range<u64>>, most: u64) -> Vec<Range<u64>> {
    let (mut taken, mut left) = (Vec::new(), most);
    while left > 0
        && let Some(range) = ranges.front_mut()
    {
        let end = range.end.min(range.start.saturating_add(left));
        taken.push(range.start..end);
        left -= end - range.start;
        range.start = end;
        if range.is_empty() {
            ranges.pop_front();
        }
    }
    taken
}

/// Runs of one home that the next fetch names: first page and count of each.
#[derive(Default)]
struct Batch {
    runs: Vec<(u64, u32)>,
    pages: u32,
}

impl Batch {
    fn has_room(&self, count: u32) -> bool {
        self.runs.len() < FETCH_RUNS_MAX && self.pages + count <= FETCH_PAGES_MAX
    }
}

impl Coherence {
    /// Begins to fetch the invalid pages of these ranges. Nothing waits for them. Pages outside
    /// the array are left out.
    pub(crate) fn begin_prefetch(&mut self, array: ArrayId, ranges: &[Range<u64>]) {
        let Some(known) = self.arrays.get(array).filter(|known| known.agreed) else {
            return;
        };
        let inside = ranges.iter().map(|range| range.start..range.end.min(known.pages));
        let inside = inside.filter(|range| !range.is_empty());
        self.fetches.prefetches.extend(inside.map(|range| (array, range)));
        self.touches_due = true;
    }

    /// Requests pages of prefetches while few enough pages are on their way.
    pub(crate) fn advance_prefetches(&mut self) {
        if self.left || self.broken.is_some() {
            self.fetches.prefetches.clear();
        }
        while let Some((array, _)) = self.fetches.prefetches.front() {
            let array = *array;
            let room = PREFETCH_PAGES_MAX.saturating_sub(self.fetches.pages);
            // The rest waits until it fills a request.
            if room < u64::from(FETCH_PAGES_MAX) {
                return;
            }
            let mut ranges = VecDeque::new();
            while let Some((_, range)) =
                self.fetches.prefetches.pop_front_if(|(other, _)| *other == array)
            {
                ranges.push_back(range);
            }
            let next = take_pages(&mut ranges, room);
            for range in ranges.into_iter().rev() {
                self.fetches.prefetches.push_front((array, range));
            }
            self.fetch_ranges(array, next, FetchCause::Prefetch);
        }
    }

    /// Requests the invalid pages of these ranges, by as few fetches to each home as the limits
    /// permit. Pages of dead homes are left out.
    pub(crate) fn fetch_ranges(
        &mut self,
        array: ArrayId,
        ranges: impl IntoIterator<Item = Range<u64>>,
        cause: FetchCause,
    ) {
        let mut batches: BTreeMap<Rank, Batch> = BTreeMap::new();
        for mut range in ranges {
            while let Some(known) = self.arrays.get_mut(array)
                && !range.is_empty()
            {
                let first = range.start;
                if known.state(first) != PageState::Invalid {
                    range.start += 1;
                    continue;
                }
                let reach = (range.end - first).min(u64::from(FETCH_RUN_MAX));
                let count = run_of_invalid(known, first, reach).max(1);
                range.start += count;
                let home = known.home(first);
                if self.dead.contains(&home) {
                    continue;
                }
                // Later ranges may name the same pages.
                (first..first + count).for_each(|page| known.set(page, PageState::Fetching));
                let count = count as u32;
                let batch = batches.entry(home).or_default();
                if !batch.has_room(count) {
                    let full = core::mem::take(batch);
                    self.send_batch(array, home, full, cause);
                }
                let batch = batches.entry(home).or_default();
                batch.runs.push((first, count));
                batch.pages += count;
            }
        }
        for (home, batch) in batches {
            self.send_batch(array, home, batch, cause);
        }
    }

    fn send_batch(&mut self, array: ArrayId, home: Rank, mut batch: Batch, cause: FetchCause) {
        // Ranges of a program come in any order, runs of a message in theirs.
        batch.runs.sort_unstable();
        self.request(array, home, &batch.runs, cause);
    }
}
