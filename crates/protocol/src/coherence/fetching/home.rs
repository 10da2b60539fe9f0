//! A node's part as the home of pages: serving fetches, applying diffs, and ending tracking
//! (COH-3.5).

use crate::Rank;
use crate::coherence::array::{PageId, PageState};
use crate::coherence::codec::{Headline, PageRun, RequestedRun};
use crate::coherence::machine::{Access, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::update::delivery::Delivery;
use crate::coherence::{Coherence, array, diff};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Charge, Class, Message, Refusal, Segment};

impl Coherence {
    /// Serves a fetch, with one answer for each of its runs. All runs are checked before the first
    /// one is served (COH-9.1).
    pub(crate) fn serve_fetch(
        &mut self,
        from: Rank,
        first: RequestedRun,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let runs = first.read_all(body)?;
        for run in &runs {
            self.check_run(from, run.pages)?;
        }
        self.owe(from, runs.len())?;
        runs.into_iter().try_for_each(|run| self.serve(from, run.pages, run.demanded, pages))
    }

    /// Checks that this node is the home of all pages of a run that a peer requests.
    fn check_run(&self, from: Rank, run: PageRun) -> Result<(), Refusal> {
        let array = self.arrays.get(run.array).ok_or(Refusal::UnknownObject)?;
        let count = u64::from(run.count);
        if from == self.me {
            return Err(Refusal::Malformed);
        }
        if !self.regions.contains_key(&run.array) {
            return Err(Refusal::UnknownObject);
        }
        if !array.contains(run.first, count) {
            return Err(Refusal::OutOfBounds);
        }
        if (run.first..run.first + count).any(|page| !array.state(page).is_home()) {
            return Err(Refusal::NotPermitted);
        }
        Ok(())
    }

    /// Serves one run, of which the first `demanded` pages are not read ahead. Its pages are
    /// write-protected before their bytes are read, so that later writes of this node become a
    /// notice. The bytes are gathered when they are sent, and again at each retransmission (COH-3.7
    /// says why that is right).
    fn serve(
        &mut self,
        from: Rank,
        run: PageRun,
        demanded: u32,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let region = *self.regions.get(&run.array).ok_or(Refusal::UnknownObject)?;
        self.take_demands(from, run.array, run.first..run.first + u64::from(demanded));
        let array = self.arrays.get_mut(run.array).ok_or(Refusal::UnknownObject)?;
        let count = u64::from(run.count);
        let range = run.first..run.first + count;
        array.statistics.served_pages += count;
        let mut protect = alloc::vec::Vec::new();
        for page in range.clone() {
            array.noticed.remove(&page);
            match array.state(page) {
                PageState::HomeUntouched => array.set(page, PageState::HomeShared),
                PageState::HomePrivate => {
                    array.set(page, PageState::HomeRead);
                    protect.push((run.array, page));
                }
                _ => {}
            }
        }
        if array.guarded {
            // Nothing traps here. A guard that is alive goes on writing.
            range.for_each(|page| self.write_if_live((run.array, page), pages));
        } else {
            for (array, range) in array::ranges(protect) {
                pages.set_access(array, range, Access::Read);
            }
        }
        self.statistics.served_pages += count;
        self.statistics.served_demanded_pages += u64::from(demanded);
        let range = run.first..run.first + count;
        let body = if pages.has_pending(run.array, range.clone()) {
            // Guards here keep old bytes in memory (COH-3.9), so the answer is a copy with the new
            // bytes.
            let mut newest = alloc::vec![0; run.count as usize * PAGE];
            range
                .zip(newest.chunks_exact_mut(PAGE))
                .for_each(|(page, into)| pages.read_newest(run.array, page, into));
            Body::Inline(newest)
        } else {
            Body::Segment(Segment {
                region,
                offset: run.first * PAGE as u64,
                len: count * PAGE as u64,
            })
        };
        let head = Headline::Pages(run).write();
        let token = self.await_settling(from, Purpose::Pages(run.array));
        let message = Message {
            class: Class::Unordered,
            urgent: false,
            charge: Charge::Nothing,
            head,
            body,
            token,
        };
        self.out.push_back((from, message));
        Ok(())
    }

    /// Applies changes to pages homed here. The diff is checked as a whole before the first byte is
    /// written.
    pub(crate) fn apply_diff(
        &mut self,
        from: Rank,
        id: u32,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let array = self.arrays.get(id).ok_or(Refusal::UnknownObject)?;
        let mut changed = alloc::vec::Vec::new();
        diff::decode(body, |page, _, _| {
            if !array.state(page).is_home() {
                return Err(Refusal::NotPermitted);
            }
            if changed.last() != Some(&page) {
                changed.push(page);
            }
            Ok(())
        })?;
        if planted(Bug::LoseDiff) && changed.len() % 2 == 1 {
            return Ok(());
        }
        self.statistics.applied_diffs += changed.len() as u64;
        self.count_delivery(Delivery::HeaderThroughDiffDecode);
        diff::decode(body, |page, at, bytes| {
            self.apply_change((id, page), at, bytes, pages);
            Ok(())
        })?;
        changed.into_iter().for_each(|page| self.changed((id, page)));
        self.tell_subscribers(from, id);
        // Changes that could not be placed must not be told to anybody (COH-5.4).
        if pages.failure().is_some() { Err(Refusal::NoRoom) } else { Ok(()) }
    }

    /// Writes bytes of another node into a page, and into its twin, because they are no change of
    /// this node's.
    pub(crate) fn apply_change(
        &mut self,
        id: PageId,
        at: usize,
        bytes: &[u8],
        pages: &mut dyn Pages,
    ) {
        pages.merge(id.0, id.1 * PAGE as u64 + at as u64, bytes);
        let twin = self.arrays.get_mut(id.0).and_then(|array| array.twins.get_mut(&id.1));
        if let Some(part) = twin.and_then(|twin| twin.get_mut(at..at + bytes.len())) {
            part.copy_from_slice(bytes);
        }
    }

    /// Ends the tracking of pages whose copies are all invalid, after a collective that told all
    /// nodes this node's intervals up to `told`. Those are pages that the intervals name and that
    /// nobody has fetched since.
    pub(crate) fn untrack(&mut self, told: u64, pages: &mut dyn Pages) {
        for (id, array) in self.arrays.iter_mut() {
            let guarded = array.guarded;
            let mut free = alloc::vec::Vec::new();
            let noticed = core::mem::take(&mut array.noticed);
            for (page, interval) in noticed {
                if interval > told {
                    array.noticed.insert(page, interval);
                    continue;
                }
                match array.state(page) {
                    PageState::HomeShared => array.set(page, PageState::HomeUntouched),
                    PageState::HomeRead => {
                        array.set(page, PageState::HomePrivate);
                        free.push((id, page));
                    }
                    PageState::HomeWrite => {
                        array.set(page, PageState::HomePrivate);
                        array.twins.remove(&page);
                        self.dirty.remove(&(id, page));
                    }
                    _ => {}
                }
            }
            for (array, range) in array::ranges(free).into_iter().filter(|_| !guarded) {
                pages.set_access(array, range, Access::Write);
            }
        }
    }
}
