//! Fetches pages from their homes (COH-3.3) in runs, the demanded page first, with several runs at
//! a time.

use super::array::{Array, PageId, PageState};
use super::codec::{Headline, PageRun};
use super::{Access, Coherence, Pages};
use crate::Rank;
use crate::coherence::mailbox::Purpose;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of pages in one fetch.
pub const FETCH_RUN_MAX: u32 = 32;
/// Maximum number of sequences of faults that are followed at a time, per array.
const STREAMS: usize = 8;

/// Recent sequences of faults of one array. A fault that continues a sequence fetches twice as far
/// (COH-3.4).
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

#[derive(Clone, Copy, Debug)]
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
struct RunPage {
    /// Number of bytes that have arrived.
    filled: usize,
    /// `true` if a write notice overtook the page. Its arriving bytes may be older than what must
    /// be seen (COH-3.6).
    stale: bool,
    /// `true` once the page is mapped or given up.
    decided: bool,
}

/// One request and the part of its answer that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub pages: PageRun,
    pub home: Rank,
    /// Message number of the answer, once it has begun.
    answer: Option<u64>,
    slots: Vec<RunPage>,
}

/// All fetches under way to this node.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    next: u64,
    pub runs: BTreeMap<u64, Run>,
    /// Number of the run that brings a page that is [`PageState::Fetching`].
    of_page: BTreeMap<PageId, u64>,
    /// Number of the run that a fragmented answer belongs to.
    answers: BTreeMap<(Rank, u64), u64>,
    /// Access that threads want for pages that are on their way.
    wanted: BTreeMap<PageId, Access>,
}

impl Run {
    fn slot(&mut self, page: u64) -> Option<&mut RunPage> {
        let index = usize::try_from(page.checked_sub(self.pages.first)?).ok()?;
        self.slots.get_mut(index)
    }
}

fn run_of_invalid(array: &Array, page: u64, reach: u64) -> u64 {
    let home = array.home(page);
    let row = array.row(page, page..page.saturating_add(reach));
    row.take_while(|page| array.home(*page) == home).count() as u64
}

impl Coherence {
    /// Requests an invalid page and the pages after it that will probably be needed.
    pub(super) fn demand(
        &mut self,
        id: PageId,
        access: Access,
        within: Option<u64>,
        pages: &mut dyn Pages,
    ) -> bool {
        let (array, first) = id;
        let Some(known) =
            self.arrays.get_mut(array as usize).filter(|known| known.contains(first, 1))
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
        let number = self.fetches.next;
        self.fetches.next += 1;
        for page in first..first + count {
            known.set(page, PageState::Fetching);
            self.fetches.of_page.insert((array, page), number);
        }
        self.fetches.wanted.insert(id, access);
        let run = PageRun { array, count: count as u32, first, id: number };
        let slots = vec![RunPage::default(); count as usize];
        self.fetches.runs.insert(number, Run { pages: run, home, answer: None, slots });
        self.statistics.fetches += 1;
        self.renew_fetched(array, first..first + count);
        self.used(array, first..first + count);
        // The home must have this node's own earlier changes before it answers (COH-5.4).
        let class =
            if self.releases.are_on_their_way_to(home) { Class::Ordered } else { Class::Unordered };
        self.post(home, class, Headline::Fetch(run), Vec::new(), Purpose::Fetch(number));
        false
    }

    /// Records that a thread wants a page that is on its way. The page may have arrived already and
    /// wait for the rest of its run.
    pub(super) fn want(&mut self, id: PageId, access: Access, pages: &mut dyn Pages) -> bool {
        let wanted = self.fetches.wanted.entry(id).or_insert(access);
        if access == Access::Write {
            *wanted = Access::Write;
        }
        if let Some(number) = self.fetches.of_page.get(&id).copied() {
            self.decide_filled(number, false, pages);
        }
        self.arrays.get(id.0 as usize).is_some_and(|array| array.state(id.1).holds(access))
    }

    /// Marks a page on its way as stale, because a notice names it.
    pub(super) fn mark_stale(&mut self, id: PageId) {
        if planted(Bug::ForgetStaleFetch) {
            return;
        }
        let run =
            self.fetches.of_page.get(&id).and_then(|number| self.fetches.runs.get_mut(number));
        if let Some(slot) = run.and_then(|run| run.slot(id.1)) {
            slot.stale = true;
        }
    }

    /// Checks that an answer that begins was requested, and from this home.
    pub(super) fn expect_pages(
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
    pub(super) fn place_pages(
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
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let (here, after) = rest.split_at(rest.len().min(PAGE - at % PAGE));
            if let Some(slot) = run.slots.get_mut(at / PAGE).filter(|slot| !slot.decided) {
                slot.filled += here.len();
                pages.write(run.pages.array, run.pages.first * PAGE as u64 + at as u64, here);
            }
            at += here.len();
            rest = after;
        }
        self.decide_filled(id, false, pages);
    }

    /// Called when a fragmented answer is whole.
    pub(super) fn pages_arrived(
        &mut self,
        from: Rank,
        number: u64,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let id = self.fetches.answers.remove(&(from, number)).ok_or(Refusal::UnknownObject)?;
        self.decide_filled(id, true, pages);
        Ok(())
    }

    /// Takes an answer that came in one piece.
    pub(super) fn take_pages(
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

    /// Decides every page of a run that is complete. Pages that somebody waits for are mapped at
    /// once, the others together at the end.
    fn decide_filled(&mut self, number: u64, all: bool, pages: &mut dyn Pages) {
        let Some(mut run) = self.fetches.runs.remove(&number) else { return };
        let mut install: Vec<PageId> = Vec::new();
        let mut decided = false;
        let mut again: Vec<(PageId, Access)> = Vec::new();
        let first = run.pages.first;
        for (page, slot) in (first..).zip(run.slots.iter_mut()) {
            let id = (run.pages.array, page);
            if slot.decided
                || slot.filled < PAGE
                || (!all && !self.fetches.wanted.contains_key(&id))
            {
                continue;
            }
            slot.decided = true;
            decided = true;
            self.fetches.of_page.remove(&id);
            let wanted = self.fetches.wanted.remove(&id);
            let Some(array) = self.arrays.get_mut(id.0 as usize) else { continue };
            if slot.stale {
                self.statistics.stale_pages += 1;
                array.set(page, PageState::Invalid);
                again.extend(wanted.map(|access| (id, access)));
                continue;
            }
            self.statistics.fetched_pages += 1;
            array.statistics.fetched_pages += 1;
            array.set(page, PageState::Read);
            if wanted == Some(Access::Write) && !array.guarded {
                self.make_twin(id, pages);
                pages.install(id.0, page..page + 1, Access::Write);
            } else {
                install.push(id);
                self.write_if_live(id, pages);
            }
        }
        for (array, range) in super::array::ranges(install) {
            pages.install(array, range, self.mapping(array, Access::Read));
        }
        if run.slots.iter().any(|slot| !slot.decided) {
            self.fetches.runs.insert(number, run);
        }
        for (id, access) in again {
            self.ensure(id, access, Some(id.1 + 1), pages);
        }
        self.touches_due |= decided;
    }

    /// Gives up a run whose home is dead or has refused it. Every page of it that has not arrived
    /// keeps its last bytes (COH-3.8).
    pub(super) fn give_up_run(&mut self, number: u64, pages: &mut dyn Pages) {
        let Some(run) = self.fetches.runs.remove(&number) else { return };
        if let Some(answer) = run.answer {
            self.fetches.answers.remove(&(run.home, answer));
        }
        for (page, slot) in (run.pages.first..).zip(&run.slots) {
            let id = (run.pages.array, page);
            if slot.decided {
                continue;
            }
            self.fetches.of_page.remove(&id);
            if let Some(array) = self.arrays.get_mut(id.0 as usize) {
                array.set(page, PageState::Invalid);
            }
            if let Some(access) = self.fetches.wanted.remove(&id) {
                self.lose_page(id, run.home, access, pages);
            }
        }
        self.touches_due = true;
    }
}
