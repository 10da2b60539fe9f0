//! Touches of pages by this node's threads, and the state changes that they cause (COH-3.2).

use crate::coherence::fetching::limits::FETCH_PAGES_MAX;
use crate::coherence::fetching::prefetch::take_pages;
use crate::coherence::fetching::runs::{FetchCause, Fetches, Touch};
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::{PageId, PageState};
use crate::coherence::pages::table::Opened;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::writes::Writes;
use crate::wind::Token;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of pages that one explicit touch requests ahead of the first missing page. Half
/// of it is requested at a time, so that the home sends while the next request is on its way.
const TOUCH_AHEAD: u64 = 2 * FETCH_PAGES_MAX as u64;

impl Fetches {
    pub fn begin_touch(
        &mut self,
        array: ArrayId,
        ranges: Vec<Range<u64>>,
        access: Access,
        token: Token,
        w: &mut Writes<'_>,
    ) {
        let doing = || String::from("touch");
        let Some(known) = w.base.arrays.get(array).filter(|known| known.agreed) else {
            return w.base.mail.fail(token, CoherenceError::UnknownArray { doing: doing(), array });
        };
        let is_outside = |range: &&Range<u64>| range.start > range.end || range.end > known.pages;
        if let Some(range) = ranges.iter().find(is_outside) {
            let error = known.out_of_range(doing(), range);
            return w.base.mail.fail(token, error);
        }
        // A write guard of a guarded array makes its pages dirty when it begins.
        let access = if known.guarded { Access::Read } else { access };
        let mut joined = NumberSet::default();
        ranges.into_iter().for_each(|range| joined.insert(range));
        let left: VecDeque<Range<u64>> = joined.iter().collect();
        left.iter().for_each(|range| w.updates.feeds.used(array, range.clone()));
        let unrequested = left.clone();
        self.touches.push(Touch { array, left, unrequested, ahead: 0, access, token });
        self.is_due = true;
    }

    /// Goes on with touches and prefetches if something has changed for them. Returns `true` if
    /// it has.
    #[inline]
    pub fn advance(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        let is_due = core::mem::take(&mut self.is_due);
        if is_due {
            self.advance_touches(w, pages);
            self.advance_prefetches(w);
        }
        is_due
    }

    /// Advances every touch as far as possible.
    fn advance_touches(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let mut waiting = core::mem::take(&mut self.touches);
        waiting.retain_mut(|touch| {
            loop {
                self.request_ahead(touch, w);
                if touch.left.is_empty() {
                    w.base.mail.done(touch.token, Value::None);
                    return false;
                }
                if !self.pass_valid(touch, w, pages) {
                    return true;
                }
            }
        });
        waiting.append(&mut self.touches);
        self.touches = waiting;
    }

    /// Requests the next pages of a touch, once few enough requested pages are missing.
    fn request_ahead(&mut self, touch: &mut Touch, w: &mut Writes<'_>) {
        let room = TOUCH_AHEAD - touch.ahead;
        if room < TOUCH_AHEAD / 2 || touch.unrequested.is_empty() {
            return;
        }
        let next = take_pages(&mut touch.unrequested, room);
        touch.ahead += next.iter().map(|range| range.end - range.start).sum::<u64>();
        self.fetch_ranges(touch.array, next, FetchCause::Touch(touch.access), w);
    }

    /// Passes the pages of a touch that were requested and are valid. Returns `false` if one is
    /// not valid.
    fn pass_valid(&mut self, touch: &mut Touch, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        while touch.ahead > 0
            && let Some(range) = touch.left.front_mut()
        {
            if !self.ensure((touch.array, range.start), touch.access, Some(range.end), w, pages) {
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
    pub fn take_fault(
        &mut self,
        id: PageId,
        access: Option<Access>,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let Some(array) = w.base.arrays.get(id.0).filter(|array| array.contains(id.1, 1)) else {
            return;
        };
        let state = array.state(id.1);
        let access =
            access.unwrap_or(if state.holds(Access::Read) { Access::Write } else { Access::Read });
        match access {
            Access::Write if state != PageState::Write && state != PageState::HomeWrite => {
                w.base.statistics.write_faults += 1
            }
            Access::Read if !state.holds(Access::Read) => w.base.statistics.read_faults += 1,
            _ => {}
        }
        let access = if w.base.arrays.is_guarded(id.0) { Access::Read } else { access };
        if state.holds(access) {
            // Another thread's fault has been served since, and this thread must still be woken up.
            let mapped = if state.holds(Access::Write) { Access::Write } else { Access::Read };
            let mapped = w.base.arrays.mapping(id.0, mapped);
            pages.install(id.0, id.1..id.1 + 1, mapped);
            pages.set_access(id.0, id.1..id.1 + 1, mapped);
        } else {
            self.ensure(id, access, None, w, pages);
        }
    }

    /// Makes one page valid for `access`. Returns `true` if it is valid now; otherwise the page has
    /// been requested. For a touch, `within` is the end of its range, and what is fetched ends
    /// there. A fault fetches as far as earlier faults suggest.
    pub fn ensure(
        &mut self,
        id: PageId,
        access: Access,
        within: Option<u64>,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        match w.base.arrays.open(id, access, pages) {
            Opened::Valid => true,
            Opened::Absent => self.demand(id, access, within, w, pages),
            Opened::Requested => {
                // A thread that touches more pages waits for the whole run anyway.
                let at_once = within.is_none_or(|end| end == id.1 + 1);
                self.want(id, access, at_once, w, pages)
            }
            Opened::Unknown => false,
        }
    }
}
