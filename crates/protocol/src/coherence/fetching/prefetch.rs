//! Fetches of many pages: by as few requests to each home as the limits permit, and ahead of their
//! use (COH-3.3, COH-3.10).

use crate::Rank;
use crate::coherence::fetching::fetch::run_of_invalid;
use crate::coherence::fetching::limits::{FETCH_PAGES_MAX, FETCH_RUNS_MAX, PREFETCH_PAGES_MAX};
use crate::coherence::fetching::runs::{FetchCause, Fetches};
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::page::PageState;
use crate::coherence::pages::table::Arrays;
use crate::coherence::writes::Writes;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

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

impl Fetches {
    /// Begins to fetch the invalid pages of these ranges. Nothing waits for them. Pages outside
    /// the array are left out.
    pub fn begin_prefetch(&mut self, array: ArrayId, ranges: &[Range<u64>], arrays: &Arrays) {
        let Some(known) = arrays.get(array).filter(|known| known.agreed) else {
            return;
        };
        let inside = ranges.iter().map(|range| range.start..range.end.min(known.pages));
        let inside = inside.filter(|range| !range.is_empty());
        self.prefetches.extend(inside.map(|range| (array, range)));
        self.is_due = true;
    }

    /// Requests pages of prefetches while few enough pages are on their way.
    pub fn advance_prefetches(&mut self, w: &mut Writes<'_>) {
        if w.base.failing.left || w.base.failing.broken().is_some() {
            self.prefetches.clear();
        }
        while let Some((array, _)) = self.prefetches.front() {
            let array = *array;
            let room = PREFETCH_PAGES_MAX.saturating_sub(self.pages);
            // The rest waits until it fills a request.
            if room < u64::from(FETCH_PAGES_MAX) {
                return;
            }
            let mut ranges = VecDeque::new();
            while let Some((_, range)) = self.prefetches.pop_front_if(|(other, _)| *other == array)
            {
                ranges.push_back(range);
            }
            let next = take_pages(&mut ranges, room);
            for range in ranges.into_iter().rev() {
                self.prefetches.push_front((array, range));
            }
            self.fetch_ranges(array, next, FetchCause::Prefetch, w);
        }
    }

    /// Requests the invalid pages of these ranges, by as few fetches to each home as the limits
    /// permit. Pages of dead homes are left out.
    pub fn fetch_ranges(
        &mut self,
        array: ArrayId,
        ranges: impl IntoIterator<Item = Range<u64>>,
        cause: FetchCause,
        w: &mut Writes<'_>,
    ) {
        let mut batches: BTreeMap<Rank, Batch> = BTreeMap::new();
        for mut range in ranges {
            while let Some(known) = w.base.arrays.get_mut(array)
                && !range.is_empty()
            {
                let first = range.start;
                if known.state(first) != PageState::Invalid {
                    range.start += 1;
                    continue;
                }
                let reach = (range.end - first).min(u64::from(FETCH_PAGES_MAX));
                let count = run_of_invalid(known, first, reach).max(1);
                range.start += count;
                let home = known.home(first);
                if w.base.mail.is_dead(home) {
                    continue;
                }
                // Later ranges may name the same pages.
                (first..first + count).for_each(|page| known.set(page, PageState::Fetching));
                let count = count as u32;
                let batch = batches.entry(home).or_default();
                if !batch.has_room(count) {
                    let full = core::mem::take(batch);
                    self.send_batch(array, home, full, cause, w);
                }
                let batch = batches.entry(home).or_default();
                batch.runs.push((first, count));
                batch.pages += count;
            }
        }
        for (home, batch) in batches {
            self.send_batch(array, home, batch, cause, w);
        }
    }

    fn send_batch(
        &mut self,
        array: ArrayId,
        home: Rank,
        mut batch: Batch,
        cause: FetchCause,
        w: &mut Writes<'_>,
    ) {
        // Ranges of a program come in any order, runs of a message in theirs.
        batch.runs.sort_unstable();
        self.request(array, home, &batch.runs, cause, w);
    }
}
