//! Fetches pages from their homes (COH-3.3) in runs, the demanded page first, with several runs at
//! a time. `prefetch.rs` makes requests of several runs.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::array::{Array, PageId, PageState};
use crate::coherence::codec::{Headline, PageRun, RequestedRun};
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::update::delivery::Delivery;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of pages in one run of a fetch.
pub const FETCH_RUN_MAX: u32 = 32;
/// Maximum number of runs in one fetch.
pub const FETCH_RUNS_MAX: usize = 32;
/// Maximum number of pages in all runs of one fetch: 1 MiB.
pub const FETCH_PAGES_MAX: u32 = 256;
/// Maximum number of sequences of faults that are followed at a time, per array.
const STREAMS: usize = 8;

/// Recent sequences of faults of one array. A fault that continues a sequence fetches twice as far
/// (COH-3.4).
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Streams(Vec<Stream>);

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Stream {
    /// First page that the sequence has not fetched.
    next: u64,
    run: u32,
}

impl Streams {
    /// Returns how many pages a fault on `page` should fetch.
    fn reach(&mut self, page: u64) -> u32 {
        let run = match self.0.iter().position(|stream| stream.next == page) {
            Some(found) => self.0.remove(found).run.saturating_mul(2).min(FETCH_RUN_MAX),
            None => 1,
        };
        if self.0.len() == STREAMS {
            self.0.remove(0);
        }
        self.0.push(Stream { next: page, run });
        run
    }

    /// Records that the fault fetched the pages before `end`.
    fn fetched(&mut self, end: u64) {
        if let Some(stream) = self.0.last_mut() {
            stream.next = end;
        }
    }
}

/// One page of a run.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct RunPage {
    /// Number of bytes that have arrived.
    filled: usize,
    /// `true` if a write notice overtook the page. Its arriving bytes may be older than what must
    /// be seen (COH-3.6).
    stale: bool,
    /// `true` once the page is mapped or given up.
    decided: bool,
    /// Access for which threads wait for the page, if any do.
    wanted: Option<Wanted>,
}

/// Access for which threads of this node wait for a page that is on its way.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Wanted {
    access: Access,
    /// `true` if the page is mapped as soon as it has come. Otherwise it is mapped with its run,
    /// because the threads wait for the other pages, too.
    at_once: bool,
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
    fn wanted(self, index: u32) -> Option<Wanted> {
        match self {
            FetchCause::Fault(access) => (index == 0).then_some(Wanted { access, at_once: true }),
            FetchCause::Touch(access) => Some(Wanted { access, at_once: false }),
            FetchCause::Prefetch => None,
        }
    }

    fn demanded(self, count: u32) -> u32 {
        if matches!(self, FetchCause::Fault(_)) { 1 } else { count }
    }
}

/// One request and the part of its answer that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub pages: PageRun,
    pub home: Rank,
    /// Message number of the answer, once it has begun.
    answer: Option<u64>,
    slots: Vec<RunPage>,
    /// Number of slots that are not decided.
    undecided: u32,
}

/// All fetches under way to this node.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Fetches {
    next: u64,
    pub runs: BTreeMap<u64, Run>,
    /// Array, first page and number of each run. The pages of two runs overlap if one of them has
    /// a stale page that the other one fetches again.
    by_first: BTreeSet<(ArrayId, u64, u64)>,
    /// Number of pages that are [`PageState::Fetching`].
    pub pages: u64,
    /// Number of the run that a fragmented answer belongs to.
    answers: BTreeMap<(Rank, u64), u64>,
    /// Ranges that are fetched when fewer pages are on their way.
    pub prefetches: VecDeque<(ArrayId, Range<u64>)>,
}

impl Fetches {
    /// Returns the number of the run that brings a page.
    fn run_of(&self, (array, page): PageId) -> Option<u64> {
        let nearest = page.saturating_sub(u64::from(FETCH_RUN_MAX) - 1);
        let near = self.by_first.range((array, nearest, 0)..=(array, page, u64::MAX));
        near.rev().map(|(_, _, number)| *number).find(|number| {
            let run = self.runs.get(number);
            let slot = run.and_then(|run| run.slots.get(run.index(page)?));
            slot.is_some_and(|slot| !slot.decided)
        })
    }

    /// Removes a run that has no page on its way any more.
    fn remove(&mut self, number: u64) -> Option<Run> {
        let run = self.runs.remove(&number)?;
        self.by_first.remove(&(run.pages.array, run.pages.first, number));
        Some(run)
    }
}

impl Run {
    fn index(&self, page: u64) -> Option<usize> {
        usize::try_from(page.checked_sub(self.pages.first)?).ok()
    }

    fn slot(&mut self, page: u64) -> Option<&mut RunPage> {
        let index = self.index(page)?;
        self.slots.get_mut(index)
    }
}

/// Leaves out the numbers of runs and of messages, which are only names. Runs under way to one node
/// have no page in common that is not decided, so a run's pages tell which one it is.
#[cfg(test)]
impl core::hash::Hash for Fetches {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Fetches { next: _, runs, by_first: _, pages, answers: _, prefetches } = self;
        let mut sorted: Vec<&Run> = runs.values().collect();
        sorted.sort_by_key(|run| (run.pages.array, run.pages.first, run.pages.count));
        for Run { pages, home, answer, slots, undecided } in sorted {
            (pages.array, pages.first, pages.count, home).hash(state);
            (answer.is_some(), slots, undecided).hash(state);
        }
        (pages, prefetches).hash(state);
    }
}

impl RunPage {
    /// Returns `true` if the page is mapped now: it is whole, and either is its run or threads
    /// need nothing else.
    fn is_due(&self, is_run_whole: bool) -> bool {
        let at_once = is_run_whole || self.wanted.is_some_and(|wanted| wanted.at_once);
        !self.decided && self.filled >= PAGE && at_once
    }
}

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

impl Coherence {
    /// Requests an invalid page and the pages after it that will probably be needed.
    pub(crate) fn demand(
        &mut self,
        id: PageId,
        access: Access,
        within: Option<u64>,
        pages: &mut dyn Pages,
    ) -> bool {
        let (array, first) = id;
        let Some(known) = self.arrays.get_mut(array).filter(|known| known.contains(first, 1))
        else {
            return false;
        };
        let home = known.home(first);
        if self.dead.contains(&home) {
            self.lose_page(id, home, access, pages);
            return true;
        }
        let reach = match within {
            Some(end) => end.saturating_sub(first).clamp(1, u64::from(FETCH_RUN_MAX)),
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
        self.request(array, home, &[(first, count as u32)], cause);
        // A touch of one page is mapped without the rest of a run.
        self.want(id, access, within.is_none_or(|end| end == first + 1), pages)
    }

    /// Sends one fetch of these runs of invalid pages, which have this home and are in order.
    pub(crate) fn request(
        &mut self,
        array: ArrayId,
        home: Rank,
        runs: &[(u64, u32)],
        cause: FetchCause,
    ) {
        let first_number = self.fetches.next;
        let mut requested = Vec::with_capacity(runs.len());
        for &(first, count) in runs {
            let number = self.fetches.next;
            self.fetches.next += 1;
            let Some(known) = self.arrays.get_mut(array) else { return };
            for page in first..first + u64::from(count) {
                known.set(page, PageState::Fetching);
            }
            self.fetches.by_first.insert((array, first, number));
            self.fetches.pages += u64::from(count);
            let pages = PageRun { array, count, first, id: number };
            let slots = (0..count)
                .map(|index| RunPage { wanted: cause.wanted(index), ..RunPage::default() })
                .collect();
            let run = Run { pages, home, answer: None, slots, undecided: count };
            self.fetches.runs.insert(number, run);
            requested.push(RequestedRun { pages, demanded: cause.demanded(count) });
        }
        let Some(head) = requested.first().copied().map(Headline::Fetch) else { return };
        self.statistics.fetches += 1;
        if let Some(known) = self.arrays.get_mut(array) {
            known.statistics.fetches += 1;
        }
        for run in &requested {
            let range = run.pages.first..run.pages.first + u64::from(run.pages.count);
            self.renew_fetched(array, range.clone());
            self.used(array, range);
        }
        // The home must have this node's own earlier changes before it answers (COH-5.4).
        let class =
            if self.releases.are_on_their_way_to(home) { Class::Ordered } else { Class::Unordered };
        let purpose = Purpose::Fetch { first: first_number, end: self.fetches.next };
        self.post(home, class, head, RequestedRun::write_rest(&requested), purpose);
    }

    /// Records that a thread wants a page that is on its way. The page may have arrived already and
    /// wait for the rest of its run. With `at_once` the page is mapped without the rest.
    pub(crate) fn want(
        &mut self,
        id: PageId,
        access: Access,
        at_once: bool,
        pages: &mut dyn Pages,
    ) -> bool {
        let number = self.fetches.run_of(id);
        let run = number.and_then(|number| self.fetches.runs.get_mut(&number));
        if let (Some(number), Some(run)) = (number, run)
            && let Some(index) = run.index(id.1)
            && let Some(slot) = run.slots.get_mut(index)
        {
            let wanted = slot.wanted.get_or_insert(Wanted { access, at_once });
            if access == Access::Write {
                wanted.access = Access::Write;
            }
            wanted.at_once |= at_once;
            self.decide_filled(number, index..index + 1, false, pages);
        }
        self.arrays.get(id.0).is_some_and(|array| array.state(id.1).holds(access))
    }

    /// Marks a page on its way as stale, because a notice names it.
    pub(crate) fn mark_stale(&mut self, id: PageId) {
        if planted(Bug::ForgetStaleFetch) {
            return;
        }
        let number = self.fetches.run_of(id);
        let run = number.and_then(|number| self.fetches.runs.get_mut(&number));
        if let Some(slot) = run.and_then(|run| run.slot(id.1)) {
            slot.stale = true;
        }
    }

    /// Checks that an answer that begins was requested, and from this home.
    pub(crate) fn expect_pages(
        &mut self,
        from: Rank,
        number: u64,
        pages: PageRun,
        len: u64,
    ) -> Result<(), Refusal> {
        let run = self.fetches.runs.get_mut(&pages.id).ok_or(Refusal::UnknownObject)?;
        if run.home != from
            || run.pages != pages
            || len != u64::from(pages.count) * PAGE as u64
            || run.answer.is_some()
        {
            return Err(Refusal::Malformed);
        }
        run.answer = Some(number);
        self.fetches.answers.insert((from, number), pages.id);
        Ok(())
    }

    /// Places bytes of an answer.
    pub(crate) fn place_pages(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        pages: &mut dyn Pages,
    ) {
        let Some(id) = self.fetches.answers.get(&(from, number)).copied() else { return };
        let Some(run) = self.fetches.runs.get_mut(&id) else { return };
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
        self.decide_filled(id, touched, false, pages);
    }

    /// Called when a fragmented answer is whole.
    pub(crate) fn pages_arrived(
        &mut self,
        from: Rank,
        number: u64,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let id = self.fetches.answers.remove(&(from, number)).ok_or(Refusal::UnknownObject)?;
        let array = self.fetches.runs.get(&id).map(|run| run.pages.array);
        let is_whole = array.is_some_and(|array| self.takes_whole(array));
        self.count_delivery(match is_whole {
            true => Delivery::MessageThrough,
            false => Delivery::HeaderThrough,
        });
        self.decide_filled(id, 0..usize::MAX, true, pages);
        Ok(())
    }

    /// Returns `true` if answers for this array are handed up whole (message through).
    pub(crate) fn takes_whole(&self, array: u32) -> bool {
        let known = self.arrays.get(array);
        known.is_some_and(|known| known.delivery == Some(Delivery::MessageThrough))
    }

    /// Takes an answer that came in one piece.
    pub(crate) fn take_pages(
        &mut self,
        from: Rank,
        run: PageRun,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        // No fragmented message has this number, because Wind counts from zero and never reaches
        // it.
        let number = u64::MAX;
        self.expect_pages(from, number, run, body.len() as u64)?;
        self.place_pages(from, number, 0, body, pages);
        self.pages_arrived(from, number, pages)
    }

    /// Decides the pages of these slots of a run that have come. Pages that are wanted at once are
    /// mapped as they come, the others together when all of the run is there.
    fn decide_filled(
        &mut self,
        number: u64,
        slots: Range<usize>,
        all: bool,
        pages: &mut dyn Pages,
    ) {
        let Some(run) = self.fetches.runs.get(&number) else { return };
        let (skipped, checked) = (slots.start, slots.len());
        if !run.slots.iter().skip(skipped).take(checked).any(|slot| slot.is_due(all)) {
            return;
        }
        // The run is in neither index while its pages are decided.
        let Some(mut run) = self.fetches.remove(number) else { return };
        let mut again: Vec<(PageId, Wanted)> = Vec::new();
        let mut installs: Vec<(Range<u64>, Access)> = Vec::new();
        let (array, first) = (run.pages.array, run.pages.first + skipped as u64);
        let due = (first..).zip(run.slots.iter_mut().skip(skipped).take(checked));
        for (page, slot) in due.filter(|(_, slot)| slot.is_due(all)) {
            let id = (array, page);
            slot.decided = true;
            run.undecided -= 1;
            self.fetches.pages -= 1;
            let Some(known) = self.arrays.get_mut(array) else { continue };
            if slot.stale {
                self.statistics.stale_pages += 1;
                known.set(page, PageState::Invalid);
                again.extend(slot.wanted.map(|wanted| (id, wanted)));
                continue;
            }
            self.statistics.fetched_pages += 1;
            known.statistics.fetched_pages += 1;
            let guarded = known.guarded;
            known.set(page, PageState::Read);
            let access = slot.wanted.map_or(Access::Read, |wanted| wanted.access);
            let access = if guarded { Access::Read } else { access };
            match access {
                Access::Write => self.make_twin(id, pages),
                Access::Read => self.write_if_live(id, pages),
            }
            match installs.last_mut() {
                Some((range, last)) if range.end == page && *last == access => range.end += 1,
                _ => installs.push((page..page + 1, access)),
            }
        }
        for (range, access) in installs {
            pages.install(array, range, self.mapping(array, access));
        }
        if run.undecided > 0 {
            self.fetches.by_first.insert((array, run.pages.first, number));
            self.fetches.runs.insert(number, run);
        }
        self.fetch_again(array, &again, pages);
        self.touches_due = true;
    }

    /// Fetches stale pages for which threads wait, by one request.
    fn fetch_again(&mut self, array: ArrayId, stale: &[(PageId, Wanted)], pages: &mut dyn Pages) {
        if !stale.is_empty() {
            let ranges = crate::coherence::array::ranges(stale.iter().map(|(id, _)| *id));
            let ranges = ranges.into_iter().map(|(_, range)| range);
            self.fetch_ranges(array, ranges, FetchCause::Touch(Access::Read));
        }
        for &((_, page), wanted) in stale {
            let within = if wanted.at_once { page + 1 } else { u64::MAX };
            self.ensure((array, page), wanted.access, Some(within), pages);
        }
    }

    /// Gives up a run whose home is dead or has refused it. Every page of it that has not arrived
    /// keeps its last bytes (COH-3.8).
    pub(crate) fn give_up_run(&mut self, number: u64, pages: &mut dyn Pages) {
        let Some(run) = self.fetches.remove(number) else { return };
        if let Some(answer) = run.answer {
            self.fetches.answers.remove(&(run.home, answer));
        }
        for (page, slot) in (run.pages.first..).zip(&run.slots) {
            let id = (run.pages.array, page);
            if slot.decided {
                continue;
            }
            self.fetches.pages -= 1;
            if let Some(array) = self.arrays.get_mut(id.0) {
                array.set(page, PageState::Invalid);
            }
            if let Some(wanted) = slot.wanted {
                self.lose_page(id, run.home, wanted.access, pages);
            }
        }
        self.touches_due = true;
    }
}
