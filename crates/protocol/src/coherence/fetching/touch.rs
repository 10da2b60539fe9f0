//! Touches of pages by this node's threads, and the state changes that they cause (COH-3.2).

use crate::coherence::Coherence;
use crate::coherence::array::{PageId, PageState};
use crate::coherence::fetch::{FETCH_PAGES_MAX, FetchCause};
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::number_set::NumberSet;
use crate::coherence::prefetch::take_pages;
use crate::coherence::types::{CoherenceError, Value};
use crate::limits::PAGE;
use crate::wind::Token;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of pages that the first touch of a page homed here maps around it: 2 MiB.
const FIRST_TOUCH: u64 = 512;
/// Maximum number of pages that one explicit touch requests ahead of the first missing page. Half
/// of it is requested at a time, so that the home sends while the next request is on its way.
const TOUCH_AHEAD: u64 = 2 * FETCH_PAGES_MAX as u64;

/// Ranges that are made valid page by page.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Touch {
    pub array: ArrayId,
    /// Ranges of the pages that have not been valid since the call, in order and disjoint.
    left: VecDeque<Range<u64>>,
    /// Ranges of the pages among them that have not been requested.
    unrequested: VecDeque<Range<u64>>,
    /// Number of the pages among them that have been requested.
    ahead: u64,
    pub access: Access,
    pub token: Token,
}

impl Coherence {
    pub(crate) fn begin_touch(
        &mut self,
        array: ArrayId,
        ranges: Vec<Range<u64>>,
        access: Access,
        token: Token,
    ) {
        let doing = || String::from("touch");
        let Some(known) = self.arrays.get(array).filter(|known| known.agreed) else {
            return self.fail(token, CoherenceError::UnknownArray { doing: doing(), array });
        };
        let is_outside = |range: &&Range<u64>| range.start > range.end || range.end > known.pages;
        if let Some(range) = ranges.iter().find(is_outside) {
            let error = CoherenceError::OutOfRange {
                doing: doing(),
                array: known.name.clone(),
                first: range.start,
                end: range.end,
                pages: known.pages,
            };
            return self.fail(token, error);
        }
        // A write guard of a guarded array makes its pages dirty when it begins.
        let access = if known.guarded { Access::Read } else { access };
        let mut joined = NumberSet::default();
        ranges.into_iter().for_each(|range| joined.insert(range));
        let left: VecDeque<Range<u64>> = joined.iter().collect();
        left.iter().for_each(|range| self.used(array, range.clone()));
        let unrequested = left.clone();
        self.touches.push(Touch { array, left, unrequested, ahead: 0, access, token });
        self.touches_due = true;
    }

    /// Advances every touch as far as possible.
    pub(crate) fn advance_touches(&mut self, pages: &mut dyn Pages) {
        let mut waiting = core::mem::take(&mut self.touches);
        waiting.retain_mut(|touch| {
            loop {
                self.request_ahead(touch);
                if touch.left.is_empty() {
                    self.done(touch.token, Value::None);
                    return false;
                }
                if !self.pass_valid(touch, pages) {
                    return true;
                }
            }
        });
        waiting.append(&mut self.touches);
        self.touches = waiting;
    }

    /// Requests the next pages of a touch, once few enough requested pages are missing.
    fn request_ahead(&mut self, touch: &mut Touch) {
        let room = TOUCH_AHEAD - touch.ahead;
        if room < TOUCH_AHEAD / 2 || touch.unrequested.is_empty() {
            return;
        }
        let next = take_pages(&mut touch.unrequested, room);
        touch.ahead += next.iter().map(|range| range.end - range.start).sum::<u64>();
        self.fetch_ranges(touch.array, next, FetchCause::Touch(touch.access));
    }

    /// Passes the pages of a touch that were requested and are valid. Returns `false` if one is
    /// not valid.
    fn pass_valid(&mut self, touch: &mut Touch, pages: &mut dyn Pages) -> bool {
        while touch.ahead > 0
            && let Some(range) = touch.left.front_mut()
        {
            if !self.ensure((touch.array, range.start), touch.access, Some(range.end), pages) {
                return false;
            }
            touch.ahead -= 1;
            range.start += 1;
            if range.is_empty() {
                touch.left.pop_front();
            }
        }
        true
    }

    /// Takes one fault of a thread that sleeps until the page is mapped for the wanted access.
    pub(crate) fn take_fault(&mut self, id: PageId, access: Option<Access>, pages: &mut dyn Pages) {
        let Some(array) = self.arrays.get(id.0).filter(|array| array.contains(id.1, 1)) else {
            return;
        };
        let state = array.state(id.1);
        let access =
            access.unwrap_or(if state.holds(Access::Read) { Access::Write } else { Access::Read });
        match access {
            Access::Write if state != PageState::Write && state != PageState::HomeWrite => {
                self.statistics.write_faults += 1
            }
            Access::Read if !state.holds(Access::Read) => self.statistics.read_faults += 1,
            _ => {}
        }
        let access = if self.is_guarded(id.0) { Access::Read } else { access };
        if state.holds(access) {
            // Another thread's fault has been served since, and this thread must still be woken up.
            let mapped = if state.holds(Access::Write) { Access::Write } else { Access::Read };
            let mapped = self.mapping(id.0, mapped);
            pages.install(id.0, id.1..id.1 + 1, mapped);
            pages.set_access(id.0, id.1..id.1 + 1, mapped);
        } else {
            self.ensure(id, access, None, pages);
        }
    }

    /// Makes one page valid for `access`. Returns `true` if it is valid now; otherwise the page has
    /// been requested. For a touch, `within` is the end of its range, and what is fetched ends
    /// there. A fault fetches as far as earlier faults suggest.
    pub(crate) fn ensure(
        &mut self,
        id: PageId,
        access: Access,
        within: Option<u64>,
        pages: &mut dyn Pages,
    ) -> bool {
        let (array, page) = id;
        let Some(known) = self.arrays.get_mut(array) else { return false };
        let one = page..page + 1;
        let guarded = known.guarded;
        let for_loads = known.mapping(Access::Read);
        match (known.state(page), access) {
            (state, access) if state.holds(access) => {}
            (PageState::HomeUntouched, _) => {
                let window = page / FIRST_TOUCH * FIRST_TOUCH;
                let row = known.row(page, window..window + FIRST_TOUCH);
                row.clone().for_each(|page| known.set(page, PageState::HomePrivate));
                pages.install(array, row, Access::Write);
            }
            (PageState::HomeShared, Access::Read) => {
                known.set(page, PageState::HomeRead);
                pages.install(array, one, for_loads);
            }
            (PageState::HomeShared, Access::Write) => {
                known.set(page, PageState::HomeWrite);
                self.dirty.insert(id);
                pages.install(array, one, Access::Write);
            }
            (PageState::HomeRead, _) if guarded => {}
            (PageState::HomeRead, _) => {
                let has_readers = !known.subscribers(page).is_empty();
                known.set(page, PageState::HomeWrite);
                self.dirty.insert(id);
                if has_readers {
                    self.copy_to_twin(id, pages);
                }
                pages.set_access(array, one, Access::Write);
            }
            (PageState::Read, _) if guarded => {}
            (PageState::Read, _) => {
                self.make_twin(id, pages);
                pages.set_access(array, one, Access::Write);
            }
            (PageState::Invalid, _) => return self.demand(id, access, within, pages),
            (PageState::Fetching, _) => {
                // A thread that touches more pages waits for the whole run anyway.
                let at_once = within.is_none_or(|end| end == page + 1);
                return self.want(id, access, at_once, pages);
            }
            (PageState::Write | PageState::HomePrivate | PageState::HomeWrite, _) => {}
        }
        true
    }

    /// Keeps a copy of a clean page before it is written. The page is dirty from now on.
    pub(crate) fn make_twin(&mut self, id: PageId, pages: &mut dyn Pages) {
        self.copy_to_twin(id, pages);
        if let Some(array) = self.arrays.get_mut(id.0) {
            array.set(id.1, PageState::Write);
            self.dirty.insert(id);
        }
    }

    /// Keeps a copy of a page, to find later what was written to it.
    pub(crate) fn copy_to_twin(&mut self, id: PageId, pages: &mut dyn Pages) {
        let mut twin = vec![0u8; PAGE].into_boxed_slice();
        pages.read(id.0, id.1, &mut twin);
        if let Some(array) = self.arrays.get_mut(id.0) {
            array.twins.insert(id.1, twin);
        }
    }
}
