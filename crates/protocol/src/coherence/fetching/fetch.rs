//! Fetches pages from their homes (COH-3.3) in runs, the demanded page first, with several runs at
//! a time. `prefetch.rs` makes requests of several runs.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::{Headline, PageRun, RequestedRun};
use crate::coherence::fetching::limits::{FETCH_PAGES_MAX, MAPPED_TOGETHER};
use crate::coherence::fetching::runs::{FetchCause, Fetches, Run, RunPage, Wanted};
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::array::Array;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::page::{PageId, PageState, pages_of, ranges};
use crate::coherence::pages::table::Arrays;
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::writes::Writes;
use crate::limits::PAGE;
use crate::wind::{Admission, Class, Refusal};
use alloc::vec::Vec;
use core::ops::Range;

/// Returns the number of invalid pages with one home from `page` on, at most `reach`.
pub(crate) fn run_of_invalid(array: &Array, page: u64, reach: u64) -> u64 {
    let home = array.home(page);
    let row = array.row(page, page..page.saturating_add(reach));
    row.take_while(|page| array.home(*page) == home).count() as u64
}

/// Writes the part `part` of an answer, of which `bytes` begin at `start`. `first` is the offset of
/// the run in its array.
fn write_part(
    pages: &mut dyn Pages,
    array: ArrayId,
    first: u64,
    bytes: &[u8],
    start: usize,
    part: &Range<usize>,
) {
    let within = part.start - start..part.end - start;
    if let Some(bytes) = bytes.get(within).filter(|bytes| !bytes.is_empty()) {
        pages.write(array, first + part.start as u64, bytes);
    }
}

impl Fetches {
    /// Requests an invalid page and the pages after it that will probably be needed.
    pub fn demand(
        &mut self,
        id: PageId,
        access: Access,
        within: Option<u64>,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let (array, first) = id;
        let Some(known) = w.base.arrays.get_mut(array).filter(|known| known.contains(first, 1))
        else {
            return false;
        };
        let home = known.home(first);
        if w.base.mail.is_dead(home) {
            w.base.lose_page(id, home, access, pages);
            return true;
        }
        let reach = match within {
            Some(end) => end.saturating_sub(first).clamp(1, u64::from(FETCH_PAGES_MAX)),
            None => u64::from(known.streams.reach(first)),
        };
        let count = run_of_invalid(known, first, reach).max(1);
        if within.is_none() {
            known.streams.fetched(first + count);
        }
        let cause = match within {
            Some(_) => FetchCause::Touch(access),
            None => FetchCause::Fault(access),
        };
        self.request(array, home, &[(first, count as u32)], cause, w);
        // A touch of one page is mapped without the rest of a run.
        self.want(id, access, within.is_none_or(|end| end == first + 1), w, pages)
    }

    /// Sends one fetch of these runs of invalid pages, which have this home and are in order.
    pub fn request(
        &mut self,
        array: ArrayId,
        home: Rank,
        runs: &[(u64, u32)],
        cause: FetchCause,
        w: &mut Writes<'_>,
    ) {
        let first_number = self.next;
        let mut requested = Vec::with_capacity(runs.len());
        for &(first, count) in runs {
            let number = self.next;
            self.next += 1;
            let Some(known) = w.base.arrays.get_mut(array) else { return };
            for page in first..first + u64::from(count) {
                known.set(page, PageState::Fetching);
            }
            self.by_first.insert((array, first, number));
            self.pages += u64::from(count);
            let pages = PageRun { array, count, first, id: number };
            let slots = (0..count)
                .map(|index| RunPage { wanted: cause.wanted(index), ..RunPage::default() })
                .collect();
            let run = Run { pages, home, answer: None, slots, undecided: count };
            self.runs.insert(number, run);
            requested.push(RequestedRun { pages, demanded: cause.demanded(count) });
        }
        let Some(head) = requested.first().copied().map(Headline::Fetch) else { return };
        w.base.statistics.fetches += 1;
        if let Some(known) = w.base.arrays.get_mut(array) {
            known.statistics.fetches += 1;
        }
        for run in &requested {
            let range = run.pages.first..run.pages.first + u64::from(run.pages.count);
            w.updates.receiving.doubt_fetched(array, range.clone());
            w.updates.feeds.used(array, range);
        }
        // The home must have this node's own earlier changes before it answers (COH-5.4).
        let class =
            if w.base.mail.diffs.has_any_to(home) { Class::Ordered } else { Class::Unordered };
        let purpose = Purpose::Fetch { first: first_number, end: self.next };
        w.base.mail.post(home, class, head, RequestedRun::write_rest(&requested).into(), purpose);
    }

    /// Records that a thread wants a page that is on its way. The page may have arrived already and
    /// wait for the rest of its run. With `at_once` the page is mapped without the rest.
    pub fn want(
        &mut self,
        id: PageId,
        access: Access,
        at_once: bool,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let number = self.run_of(id);
        let run = number.and_then(|number| self.runs.get_mut(&number));
        if let (Some(number), Some(run)) = (number, run)
            && let Some(index) = run.index(id.1)
            && let Some(slot) = run.slots.get_mut(index)
        {
            let wanted = slot.wanted.get_or_insert(Wanted { access, at_once });
            if access == Access::Write {
                wanted.access = Access::Write;
            }
            wanted.at_once |= at_once;
            self.decide_filled(number, index..index + 1, false, w, pages);
        }
        w.base.arrays.get(id.0).is_some_and(|array| array.state(id.1).holds(access))
    }

    /// Decides where the bytes of a fragmented answer go.
    pub fn admit(
        &mut self,
        from: Rank,
        number: u64,
        run: PageRun,
        len: u64,
        arrays: &Arrays,
    ) -> Admission {
        if arrays.takes_whole(run.array) {
            return Admission::Assemble;
        }
        let expected = self.expect(from, number, run, len);
        expected.map_or_else(Admission::Refuse, |()| Admission::Place)
    }

    /// Checks that an answer that begins was requested, and from this home.
    pub fn expect(
        &mut self,
        from: Rank,
        number: u64,
        pages: PageRun,
        len: u64,
    ) -> Result<(), Refusal> {
        let run = self.runs.get_mut(&pages.id).ok_or(Refusal::UnknownObject)?;
        if run.home != from
            || run.pages != pages
            || len != u64::from(pages.count) * PAGE as u64
            || run.answer.is_some()
        {
            return Err(Refusal::Malformed);
        }
        run.answer = Some(number);
        self.answers.insert((from, number), pages.id);
        Ok(())
    }

    /// Forgets that the answer to a request has begun, and the bytes of pages that are not
    /// decided. Another answer may begin, and brings them again.
    pub fn forget_begun(&mut self, from: Rank, number: u64) {
        let id = self.answers.remove(&(from, number));
        if let Some(run) = id.and_then(|id| self.runs.get_mut(&id)) {
            run.answer = None;
            run.slots.iter_mut().filter(|slot| !slot.decided).for_each(|slot| slot.filled = 0);
        }
    }

    /// Returns where bytes of an answer would be placed now: the array and the range of its bytes.
    pub fn place_of(
        &self,
        from: Rank,
        number: u64,
        offset: u64,
        len: u64,
    ) -> Option<(ArrayId, Range<u64>)> {
        let run = self.runs.get(self.answers.get(&(from, number))?)?;
        let part = offset..offset.checked_add(len)?;
        let touched = pages_of(&part);
        let slots = run.slots.get(touched.start as usize..touched.end as usize)?;
        let start = run.pages.first * PAGE as u64;
        let is_open = !slots.is_empty() && slots.iter().all(|slot| !slot.decided);
        is_open.then(|| (run.pages.array, start + part.start..start + part.end))
    }

    /// Places bytes of an answer.
    pub fn place(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let Some(id) = self.answers.get(&(from, number)).copied() else { return };
        let Some(run) = self.runs.get_mut(&id) else { return };
        let len = run.slots.len() * PAGE;
        let Some(start) = usize::try_from(offset)
            .ok()
            .filter(|start| start.checked_add(bytes.len()).is_some_and(|end| end <= len))
        else {
            return;
        };
        let touched = start / PAGE..(start + bytes.len()).div_ceil(PAGE);
        let (array, first) = (run.pages.array, run.pages.first * PAGE as u64);
        // Few calls copy faster than one for each page.
        let (mut at, mut rest, mut undecided) = (start, bytes, start..start);
        for slot in run.slots.iter_mut().take(touched.end).skip(touched.start) {
            let (here, after) = rest.split_at(rest.len().min(PAGE - at % PAGE));
            if slot.decided {
                write_part(pages, array, first, bytes, start, &undecided);
                undecided = at + here.len()..at + here.len();
            } else {
                slot.filled += here.len();
                undecided.end = at + here.len();
            }
            at += here.len();
            rest = after;
        }
        write_part(pages, array, first, bytes, start, &undecided);
        self.decide_touched(id, touched, w, pages);
    }

    /// Decides the pages of a run for which bytes have come: all of a part that is whole, and
    /// those that are wanted at once.
    fn decide_touched(
        &mut self,
        number: u64,
        touched: Range<usize>,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let mut at = touched.start;
        while at < touched.end {
            let Some(run) = self.runs.get(&number) else { return };
            let begin = at - at % MAPPED_TOGETHER;
            let part = begin..run.slots.len().min(begin + MAPPED_TOGETHER);
            let slots = run.slots.get(part.clone()).unwrap_or_default();
            let is_whole = slots.iter().all(|slot| slot.filled >= PAGE);
            let some = at..touched.end.min(part.end);
            at = part.end;
            self.decide_filled(number, if is_whole { part } else { some }, is_whole, w, pages);
        }
    }

    /// Called when a fragmented answer is whole.
    pub fn arrived(
        &mut self,
        from: Rank,
        number: u64,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let id = self.answers.remove(&(from, number)).ok_or(Refusal::UnknownObject)?;
        let array = self.runs.get(&id).map(|run| run.pages.array);
        let is_whole = array.is_some_and(|array| w.base.arrays.takes_whole(array));
        w.base.count_delivery(match is_whole {
            true => Delivery::MessageThrough,
            false => Delivery::HeaderThrough,
        });
        self.decide_filled(id, 0..usize::MAX, true, w, pages);
        Ok(())
    }

    /// Takes an answer that came in one piece.
    pub fn take(
        &mut self,
        from: Rank,
        run: PageRun,
        body: &[u8],
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        // No fragmented message has this number, because Wind counts from zero and never reaches
        // it.
        let number = u64::MAX;
        self.expect(from, number, run, body.len() as u64)?;
        self.place(from, number, 0, body, w, pages);
        self.arrived(from, number, w, pages)
    }

    /// Decides the pages of these slots of a run that have come. Pages that are wanted at once are
    /// mapped as they come, the others together when all of the run is there.
    fn decide_filled(
        &mut self,
        number: u64,
        slots: Range<usize>,
        all: bool,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let Some(run) = self.runs.get(&number) else { return };
        let (skipped, checked) = (slots.start, slots.len());
        if !run.slots.iter().skip(skipped).take(checked).any(|slot| slot.is_due(all)) {
            return;
        }
        // The run is in neither index while its pages are decided.
        let Some(mut run) = self.remove(number) else { return };
        let mut again: Vec<(PageId, Wanted)> = Vec::new();
        let mut installs: Vec<(Range<u64>, Access)> = Vec::new();
        let (array, first) = (run.pages.array, run.pages.first + skipped as u64);
        let due = (first..).zip(run.slots.iter_mut().skip(skipped).take(checked));
        for (page, slot) in due.filter(|(_, slot)| slot.is_due(all)) {
            let id = (array, page);
            slot.decided = true;
            run.undecided -= 1;
            self.pages -= 1;
            let Some(known) = w.base.arrays.get_mut(array) else { continue };
            if known.state(page) == PageState::Stale {
                w.base.statistics.stale_pages += 1;
                known.set(page, PageState::Invalid);
                again.extend(slot.wanted.map(|wanted| (id, wanted)));
                continue;
            }
            w.base.statistics.fetched_pages += 1;
            known.statistics.fetched_pages += 1;
            let guarded = known.guarded;
            known.set(page, PageState::Read);
            let access = slot.wanted.map_or(Access::Read, |wanted| wanted.access);
            let access = if guarded { Access::Read } else { access };
            match access {
                Access::Write => w.base.arrays.make_twin(id, pages),
                Access::Read => w.releasing.guards.write_if_live(id, w.base.arrays, pages),
            }
            match installs.last_mut() {
                Some((range, last)) if range.end == page && *last == access => range.end += 1,
                _ => installs.push((page..page + 1, access)),
            }
        }
        for (range, access) in installs {
            pages.install(array, range, w.base.arrays.mapping(array, access));
        }
        if run.undecided > 0 {
            self.by_first.insert((array, run.pages.first, number));
            self.runs.insert(number, run);
        }
        self.fetch_again(array, &again, w, pages);
        self.is_due = true;
    }

    /// Fetches pages again for which threads wait, by one request.
    fn fetch_again(
        &mut self,
        array: ArrayId,
        stale: &[(PageId, Wanted)],
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        if !stale.is_empty() {
            let ranges = ranges(stale.iter().map(|(id, _)| *id));
            let ranges = ranges.into_iter().map(|(_, range)| range);
            self.fetch_ranges(array, ranges, FetchCause::Touch(Access::Read), w);
        }
        for &((_, page), wanted) in stale {
            let within = if wanted.at_once { page + 1 } else { u64::MAX };
            self.ensure((array, page), wanted.access, Some(within), w, pages);
        }
    }

    /// Leaves runs whose home has refused them because pages have moved. Returns `false` if this
    /// node does not know of a move, and will not hear of one.
    pub fn leave_moved(&mut self, home: Rank, runs: &Range<u64>, base: &Base<'_>) -> bool {
        let has_moved = |number| {
            let Some(Run { pages, .. }) = self.runs.get(&number) else { return false };
            let array = base.arrays.get(pages.array);
            let mut all = pages.first..pages.first + u64::from(pages.count);
            array.is_some_and(|array| all.any(|page| array.home(page) != home))
        };
        let may_go_on = base.clock.moves_homes || runs.clone().any(has_moved);
        if may_go_on {
            self.moved.push(runs.clone());
        }
        may_go_on
    }

    /// Requests the pages of refused runs again, now that this node knows their homes. Returns
    /// `true` if there were any.
    pub fn request_moved(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        let Some(runs) = self.moved.pop() else { return false };
        for number in runs {
            let Some(run) = self.remove(number) else { continue };
            let array = run.pages.array;
            let mut wanted: Vec<(PageId, Wanted)> = Vec::new();
            for (page, slot) in (run.pages.first..).zip(&run.slots).filter(|(_, s)| !s.decided) {
                self.pages -= 1;
                w.base.arrays.change(array, |array| array.set(page, PageState::Invalid));
                wanted.extend(slot.wanted.map(|wanted| ((array, page), wanted)));
            }
            self.fetch_again(array, &wanted, w, pages);
        }
        self.is_due = true;
        true
    }

    /// Gives up runs that their home has refused.
    pub fn give_up(&mut self, runs: Range<u64>, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        runs.for_each(|run| self.give_up_run(run, w, pages));
    }

    /// Gives up the runs of a home that is dead.
    pub fn give_up_home(&mut self, home: Rank, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let runs = self.runs.iter().filter(|(_, run)| run.home == home);
        for number in runs.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.give_up_run(number, w, pages);
        }
    }

    /// Gives up a run whose home is dead or has refused it. Every page of it that has not arrived
    /// keeps its last bytes (COH-3.8).
    fn give_up_run(&mut self, number: u64, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let Some(run) = self.remove(number) else { return };
        if let Some(answer) = run.answer {
            self.answers.remove(&(run.home, answer));
        }
        for (page, slot) in (run.pages.first..).zip(&run.slots) {
            let id = (run.pages.array, page);
            if slot.decided {
                continue;
            }
            self.pages -= 1;
            if let Some(array) = w.base.arrays.get_mut(id.0) {
                array.set(page, PageState::Invalid);
            }
            if let Some(wanted) = slot.wanted {
                w.base.lose_page(id, run.home, wanted.access, pages);
            }
        }
        self.is_due = true;
    }
}
