//! Write guards of this node's threads: which bytes of guarded arrays are written (COH-10.13).
//!
//! A guarded array is written under guards alone, so its pages need no protection and no twin: the
//! guards say what was written. An array that a program may also write with plain stores is
//! *plain*, and its pages are tracked.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::array::{PageId, PageState, ranges};
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::number_set::{NumberSet, common};
use crate::coherence::update::delivery::Delivery;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

/// Number of a write guard of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Meaning of the bytes of a write guard to other nodes (COH-10.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ownership {
    /// All bytes of the guard count as written. No other node writes any of them before it
    /// synchronises with this one (COH-10.10).
    Owned,
    /// Only bytes that change count as written. Other nodes may write other bytes of the same range
    /// meanwhile.
    Merged,
}

/// Ranges of bytes of one guard, in order and disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum Spans {
    /// One range, as most guards have.
    One(Range<u64>),
    /// The rows of a block.
    Many(Vec<Range<u64>>),
}

impl From<Range<u64>> for Spans {
    fn from(range: Range<u64>) -> Spans {
        Spans::One(range)
    }
}

impl Spans {
    /// Returns the ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[Range<u64>] {
        match self {
            Spans::One(range) => core::slice::from_ref(range),
            Spans::Many(ranges) => ranges,
        }
    }

    /// Returns the pages that hold these bytes, in order, each once.
    fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        let mut next = 0;
        self.as_slice().iter().flat_map(move |bytes| {
            let pages = pages_of(bytes);
            let pages = pages.start.max(next)..pages.end;
            next = next.max(pages.end);
            pages
        })
    }

    /// Returns `true` if the ranges are in order and disjoint.
    fn are_sound(&self) -> bool {
        let mut end = 0;
        self.as_slice().iter().all(|range| {
            let is_behind = end <= range.start && range.start <= range.end;
            end = range.end;
            is_behind
        })
    }
}

/// A write guard that has not ended.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct LiveWrite {
    array: ArrayId,
    bytes: Spans,
    ownership: Ownership,
    /// `true` if the guard itself tells what is written, because its pages were not tracked when it
    /// began.
    is_owner: bool,
}

/// All write guards of this node.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Guards {
    next: u64,
    live: BTreeMap<WriteId, LiveWrite>,
    /// Bytes written under guards that have ended since the last release, by array, of which no
    /// diff has been made.
    written: BTreeMap<ArrayId, NumberSet>,
    /// `true` if a lock was held in the open interval, which orders its writes (COH-10.14).
    pub under_lock: bool,
}

/// Returns the pages that hold these bytes. No bytes have no pages, wherever they lie.
pub(crate) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let first = bytes.start / PAGE as u64;
    let end = if bytes.is_empty() { first } else { bytes.end.div_ceil(PAGE as u64) };
    first..end
}

/// Returns the bytes of one page.
pub(crate) fn bytes_of(page: u64) -> Range<u64> {
    bytes_of_pages(&(page..page + 1))
}

/// Returns the bytes of consecutive pages.
pub(crate) fn bytes_of_pages(pages: &Range<u64>) -> Range<u64> {
    pages.start * PAGE as u64..pages.end * PAGE as u64
}

impl Guards {
    /// Returns the ownership of the live guards that cover bytes of a page: *merged* if any of them
    /// is.
    pub fn live_ownership(&self, id: PageId) -> Option<Ownership> {
        let covers = |guard: &&LiveWrite| {
            let mut spans = guard.bytes.as_slice().iter();
            guard.array == id.0 && spans.any(|bytes| pages_of(bytes).contains(&id.1))
        };
        self.live.values().filter(covers).map(|guard| guard.ownership).max()
    }

    /// Returns the bytes of a page that guards own, relative to the page. Those of guards that have
    /// ended are taken out of the set.
    pub fn take_owned(&mut self, id: PageId) -> NumberSet {
        let (mut owned, bytes) = (NumberSet::default(), bytes_of(id.1));
        let mut own =
            |part: Range<u64>| owned.insert(part.start - bytes.start..part.end - bytes.start);
        if let Some(written) = self.written.get_mut(&id.0) {
            written.overlaps(bytes.clone()).for_each(&mut own);
            written.remove(bytes.clone());
        }
        let live = self.live.values().filter(|guard| guard.is_owner && guard.array == id.0);
        let spans = live.flat_map(|guard| guard.bytes.as_slice());
        let parts = spans.map(|span| common(span, &bytes));
        parts.filter(|part| !part.is_empty()).for_each(&mut own);
        owned
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.live.retain(|_, guard| guard.array != array);
        self.written.remove(&array);
    }

    /// Returns the bytes that guards have owned since the last release, by array.
    pub fn written(&self) -> BTreeMap<ArrayId, NumberSet> {
        let mut written = self.written.clone();
        for guard in self.live.values().filter(|guard| guard.is_owner) {
            let written = written.entry(guard.array).or_default();
            guard.bytes.as_slice().iter().for_each(|span| written.insert(span.clone()));
        }
        written
    }

    /// Forgets the guards that have ended, because a release has closed their interval.
    pub fn end_interval(&mut self) {
        self.written.clear();
    }
}

impl Coherence {
    /// Tells that this node writes the array under guards alone, so its pages are not tracked. All
    /// pages must be as they were when the array was declared.
    pub fn track_by_guards(&mut self, array: ArrayId) {
        if let Some(array) = self.arrays.get_mut(array) {
            array.guarded = true;
        }
    }

    /// Returns `true` if the array is written under guards alone.
    #[must_use]
    pub fn is_guarded(&self, array: ArrayId) -> bool {
        self.arrays.get(array).is_some_and(|array| array.guarded)
    }

    /// Tells that this node will also write the array with plain stores. From now on its pages are
    /// tracked (COH-10.13).
    pub fn track_by_pages(&mut self, array: ArrayId, pages: &mut dyn Pages) {
        let Some(known) = self.arrays.get_mut(array).filter(|known| known.guarded) else {
            return;
        };
        known.guarded = false;
        let mut clean: Vec<PageId> = Vec::new();
        let mut written: Vec<PageId> = Vec::new();
        for page in 0..known.pages {
            match known.state(page) {
                PageState::Read | PageState::HomeRead => clean.push((array, page)),
                PageState::Write if !known.twins.contains_key(&page) => written.push((array, page)),
                _ => {}
            }
        }
        for (array, range) in ranges(clean) {
            pages.set_access(array, range, Access::Read);
        }
        // The twin has the bytes that guards have written so far. Plain stores from here on differ
        // from it.
        written.into_iter().for_each(|id| self.make_twin(id, pages));
        self.settle(pages);
    }

    /// Begins a write guard over these bytes, which are in order and disjoint. Returns `None` if a
    /// page is not valid: touch the pages, and try again.
    pub fn begin_write(
        &mut self,
        array: ArrayId,
        bytes: impl Into<Spans>,
        ownership: Ownership,
        pages: &mut dyn Pages,
    ) -> Option<WriteId> {
        let bytes = bytes.into();
        let known = self.arrays.get(array).filter(|known| known.agreed)?;
        let guarded = known.guarded;
        let is_inside = |span: &Range<u64>| pages_of(span).end <= known.pages;
        if !bytes.are_sound() || !bytes.as_slice().iter().all(is_inside) {
            return None;
        }
        let needed = if guarded { Access::Read } else { Access::Write };
        let mut unmapped: Vec<u64> = Vec::new();
        let mut copied: Vec<u64> = Vec::new();
        for page in bytes.pages() {
            match known.state(page) {
                PageState::HomeUntouched | PageState::HomeShared => unmapped.push(page),
                PageState::HomePrivate => {}
                state if !state.holds(needed) => return None,
                _ => copied.push(page),
            }
        }
        for page in unmapped {
            self.ensure((array, page), Access::Write, None, pages);
        }
        if guarded {
            copied
                .into_iter()
                .for_each(|page| self.write_under_guard((array, page), ownership, pages));
        }
        bytes.as_slice().iter().for_each(|span| self.used(array, pages_of(span)));
        let id = WriteId(self.guards.next);
        self.guards.next += 1;
        let is_owner = guarded && ownership == Ownership::Owned;
        self.guards.live.insert(id, LiveWrite { array, bytes, ownership, is_owner });
        self.settle(pages);
        Some(id)
    }

    /// Makes a valid page of a guarded array dirty, before a guard writes it.
    fn write_under_guard(&mut self, id: PageId, ownership: Ownership, pages: &mut dyn Pages) {
        let Some(array) = self.arrays.get_mut(id.0) else { return };
        let was_clean = matches!(array.state(id.1), PageState::HomeRead | PageState::Read);
        match array.state(id.1) {
            PageState::HomeRead => array.set(id.1, PageState::HomeWrite),
            PageState::Read => array.set(id.1, PageState::Write),
            PageState::Write | PageState::HomeWrite => {}
            _ => return,
        }
        self.dirty.insert(id);
        let is_home = array.state(id.1).is_home();
        // Such a twin tells everything that is written from now to the release.
        let sends_changes = was_clean && array.delivery.is_some_and(Delivery::is_diff);
        let needs_twin = sends_changes || (ownership == Ownership::Merged && !is_home);
        if needs_twin && !array.twins.contains_key(&id.1) {
            self.copy_to_twin(id, pages);
        }
    }

    /// Makes a page dirty if a live guard covers it, because the guard writes it without a trap.
    pub(crate) fn write_if_live(&mut self, id: PageId, pages: &mut dyn Pages) {
        if self.is_guarded(id.0)
            && let Some(ownership) = self.guards.live_ownership(id)
        {
            self.write_under_guard(id, ownership, pages);
        }
    }

    /// Makes the pages of all live guards dirty again, after a release has closed their interval.
    pub(crate) fn write_live_again(&mut self, pages: &mut dyn Pages) {
        let live: Vec<LiveWrite> = self.guards.live.values().cloned().collect();
        for guard in live {
            if planted(Bug::ForgetLiveGuard) || !self.is_guarded(guard.array) {
                continue;
            }
            for page in guard.bytes.pages() {
                self.write_under_guard((guard.array, page), guard.ownership, pages);
            }
        }
    }

    /// Ends a write guard. Its bytes go to subscribers and to the nodes of `push` with the next
    /// barrier of this node, or earlier.
    pub fn end_write(&mut self, id: WriteId, push: &[Rank], pages: &mut dyn Pages) {
        let Some(guard) = self.guards.live.remove(&id) else { return };
        let LiveWrite { array, bytes, ownership, is_owner } = guard;
        for span in bytes.as_slice() {
            if ownership == Ownership::Owned {
                if is_owner {
                    self.guards.written.entry(array).or_default().insert(span.clone());
                }
                self.offer(array, span.clone(), push, pages);
            } else {
                self.withhold(array, span);
            }
        }
        self.settle(pages);
    }

    /// Records that readers do not get what was written to the pages of these bytes. (Where a twin
    /// tells what was written, the release sends that.)
    fn withhold(&mut self, array: ArrayId, bytes: &Range<u64>) {
        let Some(known) = self.arrays.get(array) else { return };
        let withheld = |page: &u64| {
            known.guarded
                && !known.twins.contains_key(page)
                && known.state(*page).is_home()
                && known.state(*page) != PageState::HomePrivate
        };
        for page in pages_of(bytes).filter(withheld) {
            self.updates.sending.share_with_none((array, page));
        }
    }

    /// Records that readers do not get what live guards have written so far.
    pub(crate) fn withhold_live(&mut self, dirty: &BTreeSet<PageId>) {
        for guard in self.guards.live.values() {
            for range in guard.bytes.as_slice().iter().map(pages_of) {
                for id in dirty.range((guard.array, range.start)..(guard.array, range.end)) {
                    self.updates.sending.share_with_none(*id);
                }
            }
        }
    }

    /// Ends a write guard under which nothing was written.
    pub fn abandon_write(&mut self, id: WriteId) {
        self.guards.live.remove(&id);
    }
}
