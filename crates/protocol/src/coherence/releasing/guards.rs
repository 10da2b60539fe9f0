//! Write guards of this node's threads: which bytes of guarded arrays are written (COH-10.13).
//!
//! A guarded array is written under guards alone, so its pages need no protection and no twin: the
//! guards say what was written. An array that a program may also write with plain stores is
//! *plain*, and its pages are tracked.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::{NumberSet, common};
use crate::coherence::pages::page::{PageId, PageState, bytes_of, pages_of};
use crate::coherence::pages::table::Arrays;
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::updating::send::UpdateSender;
use crate::coherence::updating::subscribe::Feeds;
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
    /// Those of which a diff has gone home before the release. The next barrier compares them, too.
    sent_early: BTreeMap<ArrayId, NumberSet>,
    /// `true` if a lock was held in the open interval, which orders its writes (COH-10.14).
    pub under_lock: bool,
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

    /// Keeps what guards that have ended own of a page whose diff goes home before the release.
    pub fn note_early(&mut self, id: PageId) {
        if let Some(written) = self.written.get(&id.0) {
            let early = self.sent_early.entry(id.0).or_default();
            written.overlaps(bytes_of(id.1)).for_each(|part| early.insert(part));
        }
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.live.retain(|_, guard| guard.array != array);
        self.written.remove(&array);
        self.sent_early.remove(&array);
    }

    /// Returns the bytes that guards have owned since the last release, by array.
    pub fn written(&self) -> BTreeMap<ArrayId, NumberSet> {
        let mut written = self.written.clone();
        for (array, early) in &self.sent_early {
            let written = written.entry(*array).or_default();
            early.iter().for_each(|part| written.insert(part));
        }
        for guard in self.live.values().filter(|guard| guard.is_owner) {
            let written = written.entry(guard.array).or_default();
            guard.bytes.as_slice().iter().for_each(|span| written.insert(span.clone()));
        }
        written
    }

    /// Returns `true` if no guard is alive, and none has written since the last release.
    pub fn are_idle(&self) -> bool {
        self.live.is_empty() && self.written.is_empty() && self.sent_early.is_empty()
    }

    /// Forgets the guards that have ended, because a release has closed their interval.
    pub fn end_interval(&mut self) {
        self.written.clear();
        self.sent_early.clear();
    }

    /// Begins a write guard over these bytes, which are in order and disjoint. Returns `None` if a
    /// page is not valid: touch the pages, and try again.
    pub fn begin(
        &mut self,
        array: ArrayId,
        bytes: Spans,
        ownership: Ownership,
        (arrays, feeds): (&mut Arrays, &mut Feeds),
        pages: &mut dyn Pages,
    ) -> Option<WriteId> {
        let known = arrays.get(array).filter(|known| known.agreed)?;
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
            arrays.open((array, page), Access::Write, pages);
        }
        if guarded {
            copied
                .into_iter()
                .for_each(|page| write_under_guard((array, page), ownership, arrays, pages));
        }
        bytes.as_slice().iter().for_each(|span| feeds.used(array, pages_of(span)));
        let id = WriteId(self.next);
        self.next += 1;
        let is_owner = guarded && ownership == Ownership::Owned;
        self.live.insert(id, LiveWrite { array, bytes, ownership, is_owner });
        Some(id)
    }

    /// Returns `true` if a guard of an array is alive.
    pub fn has_live_of(&self, array: ArrayId) -> bool {
        self.live.values().any(|guard| guard.array == array)
    }

    /// Makes a page dirty if a live guard covers it, because the guard writes it without a trap.
    pub fn write_if_live(&self, id: PageId, arrays: &mut Arrays, pages: &mut dyn Pages) {
        if arrays.is_guarded(id.0)
            && let Some(ownership) = self.live_ownership(id)
        {
            write_under_guard(id, ownership, arrays, pages);
        }
    }

    /// Makes the pages of all live guards dirty again, after a release has closed their interval.
    pub fn write_live_again(&self, arrays: &mut Arrays, pages: &mut dyn Pages) {
        for guard in self.live.values() {
            if planted(Bug::ForgetLiveGuard) || !arrays.is_guarded(guard.array) {
                continue;
            }
            for page in guard.bytes.pages() {
                write_under_guard((guard.array, page), guard.ownership, arrays, pages);
            }
        }
    }

    /// Ends a write guard. Its bytes go to subscribers and to the nodes of `push` with the next
    /// barrier of this node, or earlier.
    pub fn end(
        &mut self,
        id: WriteId,
        push: &[Rank],
        sending: &mut UpdateSender,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let Some(guard) = self.live.remove(&id) else { return };
        let LiveWrite { array, bytes, ownership, is_owner } = guard;
        for span in bytes.as_slice() {
            if ownership == Ownership::Owned {
                if is_owner {
                    self.written.entry(array).or_default().insert(span.clone());
                }
                sending.offer(array, span.clone(), push, base, pages);
            } else {
                withhold(array, span, sending, base.arrays);
            }
        }
    }

    /// Records that readers do not get what live guards have written so far.
    pub fn withhold_live(&self, dirty: &BTreeSet<PageId>, sending: &mut UpdateSender) {
        for guard in self.live.values() {
            for range in guard.bytes.as_slice().iter().map(pages_of) {
                for id in dirty.range((guard.array, range.start)..(guard.array, range.end)) {
                    sending.share_with_none(*id);
                }
            }
        }
    }

    /// Ends a write guard under which nothing was written.
    pub fn abandon(&mut self, id: WriteId) {
        self.live.remove(&id);
    }
}

/// Makes a valid page of a guarded array dirty, before a guard writes it.
fn write_under_guard(id: PageId, ownership: Ownership, arrays: &mut Arrays, pages: &mut dyn Pages) {
    let Some(array) = arrays.get_mut(id.0) else { return };
    let was_clean = matches!(array.state(id.1), PageState::HomeRead | PageState::Read);
    match array.state(id.1) {
        PageState::HomeRead => array.set(id.1, PageState::HomeWrite),
        PageState::Read => array.set(id.1, PageState::Write),
        PageState::Write | PageState::HomeWrite => {}
        _ => return,
    }
    let is_home = array.state(id.1).is_home();
    // Such a twin tells everything that is written from now to the release.
    let sends_changes = was_clean && array.delivery.is_some_and(Delivery::is_diff);
    // A home needs no twin of what merges, unless it is the home no longer at the release.
    let is_copy = !is_home || array.may_leave(id.1);
    let needs_twin = sends_changes || (ownership == Ownership::Merged && is_copy);
    let lacks_twin = needs_twin && !array.twins.contains_key(&id.1);
    arrays.dirty.insert(id);
    if lacks_twin {
        arrays.copy_to_twin(id, pages);
    }
}

/// Records that nothing tells what was written to the pages of these bytes. (Where a twin tells
/// it, the release sends that.)
fn withhold(array: ArrayId, bytes: &Range<u64>, sending: &mut UpdateSender, arrays: &Arrays) {
    let Some(known) = arrays.get(array) else { return };
    let withheld = |page: &u64| {
        known.guarded
            && !known.twins.contains_key(page)
            && known.state(*page).is_home()
            && known.state(*page) != PageState::HomePrivate
    };
    for page in pages_of(bytes).filter(withheld) {
        sending.note_untold((array, page));
    }
}
