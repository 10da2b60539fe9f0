//! A reader's part: it applies updates to valid pages, and knows when all of an epoch are here
//! (COH-10.4 to 10.7, 10.15).

use crate::Rank;
use crate::coherence::array::{PageId, PageState, ranges};
use crate::coherence::clock::notices::Runs;
use crate::coherence::guards::{bytes_of, pages_of};
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::mailbox::CONTROL_MAX;
use crate::coherence::update::{Form, PageSets, Through, UpdateHead};
use crate::coherence::{Coherence, diff};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Admission, Refusal};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of bytes of one writer's updates that are held until their epoch begins
/// (COH-10.4).
const HELD_MAX: u64 = 4 << 20;

/// An update whose bytes arrive.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Update {
    from: Rank,
    head: UpdateHead,
    epoch: u64,
    /// Length of its body.
    len: u64,
}

impl Update {
    /// Returns the bytes of the array that an update of one range changes.
    fn bytes(&self) -> Range<u64> {
        self.head.offset..self.head.offset.saturating_add(self.len)
    }
}

/// State of the receiving side.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Receiving {
    /// Updates of several fragments, by sender and message number.
    incoming: BTreeMap<(Rank, u64), Update>,
    /// Heads that were handed up and not taken yet (header through).
    headers: VecDeque<Update>,
    /// Number of updates that have arrived, by epoch and sender.
    arrived: BTreeMap<(u64, Rank), u64>,
    /// Updates of epochs that this node has not reached.
    held: BTreeMap<u64, Vec<(Update, Vec<u8>)>>,
    held_bytes: BTreeMap<Rank, u64>,
    /// Pages that updates of the present epoch were for.
    seen: PageSets,
    /// Pages to invalidate at the end of an epoch, because they lack bytes of an update of it.
    renew: BTreeMap<u64, PageSets>,
    /// Invalid pages that were pushed to this node, and how many bytes of each have arrived.
    kept: BTreeMap<PageId, usize>,
}

impl Receiving {
    /// Drops the kept bytes of a page.
    pub fn drop_kept(&mut self, id: PageId) {
        self.kept.remove(&id);
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.seen.forget(array);
        self.renew.values_mut().for_each(|pages| pages.forget(array));
        self.kept.retain(|id, _| id.0 != array);
    }

    fn renew(&mut self, epoch: u64, (array, page): PageId) {
        if !planted(Bug::ForgetRenew) {
            self.renew.entry(epoch).or_default().insert(array, page..page + 1);
        }
    }

    /// Makes these pages invalid at the end of the epoch, to see whether anybody reads them.
    pub fn probe(&mut self, epoch: u64, array: ArrayId, pages: Range<u64>) {
        self.renew.entry(epoch).or_default().insert(array, pages);
    }

    /// Returns how many updates of this epoch have arrived from a node.
    pub fn arrived(&self, epoch: u64, from: Rank) -> u64 {
        self.arrived.get(&(epoch, from)).copied().unwrap_or(0)
    }
}

impl Coherence {
    /// Checks the head of an update.
    fn expect_update(&self, from: Rank, head: UpdateHead, len: u64) -> Result<Update, Refusal> {
        let array = self.arrays.get(head.array).ok_or(Refusal::UnknownObject)?;
        let epoch = head.epoch_near(self.epoch);
        // A writer is at most in the collective after the next one (COH-10.3).
        let last = self.epoch_possible().saturating_add(1);
        let update = Update { from, head, epoch, len };
        if epoch > last || (epoch < self.epoch && self.dead.is_empty()) {
            return Err(Refusal::Malformed);
        }
        if head.form == Form::Range {
            let range = pages_of(&update.bytes());
            if len == 0 || !array.contains(range.start, range.end.saturating_sub(range.start)) {
                return Err(Refusal::OutOfBounds);
            }
            if range.into_iter().any(|page| array.state(page).is_home()) {
                return Err(Refusal::NotPermitted);
            }
        }
        Ok(update)
    }

    /// Decides where the bytes of a fragmented update go.
    pub(crate) fn admit_update(
        &mut self,
        from: Rank,
        number: u64,
        head: UpdateHead,
        len: u64,
    ) -> Admission {
        let update = match self.expect_update(from, head, len) {
            Ok(update) => update,
            Err(refusal) => return Admission::Refuse(refusal),
        };
        let is_early = update.epoch > self.epoch;
        let is_whole = head.form == Form::Changes || head.through == Through::Message;
        if is_whole || (is_early && self.has_room_for(from, len)) {
            return if len <= CONTROL_MAX {
                Admission::Assemble
            } else {
                Admission::Refuse(Refusal::NoRoom)
            };
        }
        if is_early {
            self.lack(&update, update.bytes());
        } else {
            self.see(&update, update.bytes());
        }
        self.updates.receiving.incoming.insert((from, number), update);
        Admission::Place
    }

    fn has_room_for(&self, from: Rank, len: u64) -> bool {
        let held = self.updates.receiving.held_bytes.get(&from).copied().unwrap_or(0);
        held.saturating_add(len) <= HELD_MAX
    }

    /// Records that an update of the present epoch is for these bytes.
    fn see(&mut self, update: &Update, bytes: Range<u64>) {
        if !planted(Bug::ForgetSeen) {
            self.updates.receiving.seen.insert(update.head.array, pages_of(&bytes));
        }
        if !update.head.pushed {
            self.feed(update.head.array, pages_of(&bytes));
        }
    }

    /// Records that the bytes of an update will not be applied.
    fn lack(&mut self, update: &Update, bytes: Range<u64>) {
        for page in pages_of(&bytes) {
            self.updates.receiving.renew(update.epoch, (update.head.array, page));
        }
    }

    /// Places bytes of a fragmented update. Returns `false` if no such message was admitted.
    pub(crate) fn place_update(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        pages: &mut dyn Pages,
    ) -> bool {
        let Some(update) = self.updates.receiving.incoming.get(&(from, number)).copied() else {
            return false;
        };
        let is_inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= update.len);
        if is_inside && update.epoch == self.epoch {
            self.apply_range(&update, update.head.offset + offset, bytes, pages);
        }
        true
    }

    /// Called when a fragmented update is whole. Returns `false` if no such message was admitted.
    pub(crate) fn update_arrived(&mut self, from: Rank, number: u64) -> bool {
        let Some(update) = self.updates.receiving.incoming.remove(&(from, number)) else {
            return false;
        };
        self.end_update(&update);
        true
    }

    /// Counts an update that has been applied or dropped, after its head was handed up if the
    /// delivery says so.
    fn end_update(&mut self, update: &Update) {
        self.count_delivery(update.head.delivery());
        if update.head.through == Through::Header {
            self.updates.receiving.headers.push_back(*update);
        } else {
            self.count_update(update);
        }
    }

    /// Takes the next head that was handed up. Returns `true` if there was one.
    pub(crate) fn take_header(&mut self) -> bool {
        let Some(update) = self.updates.receiving.headers.pop_front() else { return false };
        self.count_update(&update);
        true
    }

    fn count_update(&mut self, update: &Update) {
        let key = (update.epoch, update.from);
        *self.updates.receiving.arrived.entry(key).or_default() += 1;
        self.statistics.updates_received += 1;
        if let Some(known) = self.arrays.get_mut(update.head.array) {
            known.statistics.updates_received += 1;
        }
    }

    /// Takes an update that came in one piece, or was assembled.
    pub(crate) fn take_update(
        &mut self,
        from: Rank,
        head: UpdateHead,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let len = body.len() as u64;
        let update = self.expect_update(from, head, len)?;
        if head.form == Form::Changes {
            let array = self.arrays.get(head.array).ok_or(Refusal::UnknownObject)?;
            diff::decode(body, |page, _, _| {
                if !array.contains(page, 1) {
                    return Err(Refusal::OutOfBounds);
                }
                if array.state(page).is_home() { Err(Refusal::NotPermitted) } else { Ok(()) }
            })?;
        }
        if update.epoch > self.epoch {
            self.hold(update, body);
        } else {
            self.apply_update(&update, body, pages);
        }
        self.end_update(&update);
        Ok(())
    }

    /// Keeps an update until its epoch begins. Without room it is dropped, and its pages are
    /// renewed.
    fn hold(&mut self, update: Update, body: &[u8]) {
        if self.has_room_for(update.from, update.len) {
            *self.updates.receiving.held_bytes.entry(update.from).or_default() += update.len;
            let held = self.updates.receiving.held.entry(update.epoch).or_default();
            held.push((update, body.to_vec()));
            self.statistics.updates_held += 1;
            return;
        }
        match update.head.form {
            Form::Range => self.lack(&update, update.bytes()),
            Form::Changes => {
                // The body has been checked.
                let _ = diff::decode(body, |page, _, _| {
                    self.lack(&update, bytes_of(page));
                    Ok(())
                });
            }
        }
    }

    fn apply_update(&mut self, update: &Update, body: &[u8], pages: &mut dyn Pages) {
        match update.head.form {
            Form::Range => {
                self.see(update, update.bytes());
                self.apply_range(update, update.head.offset, body, pages);
            }
            Form::Changes => {
                // The body has been checked. A page may have several runs, one after another.
                let mut last = None;
                let _ = diff::decode(body, |page, at, bytes| {
                    if last.replace(page) != Some(page) {
                        self.see(update, bytes_of(page));
                    }
                    self.apply_range(update, bytes_of(page).start + at as u64, bytes, pages);
                    Ok(())
                });
            }
        }
    }

    /// Applies bytes from a place in the array on, page by page, unless their interval is known
    /// (COH-10.4).
    fn apply_range(&mut self, update: &Update, at: u64, bytes: &[u8], pages: &mut dyn Pages) {
        let known = self.knowledge.vector.get(update.from) >= update.head.interval;
        if known && !planted(Bug::ApplyKnownUpdate) {
            return;
        }
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let left = PAGE - (at % PAGE as u64) as usize;
            let (here, after) = rest.split_at(rest.len().min(left));
            self.apply_to_page(update, at, here, pages);
            at += here.len() as u64;
            rest = after;
        }
    }

    /// Applies bytes to one page if it is valid (COH-10.5). Bytes under live guards wait
    /// (COH-10.12).
    fn apply_to_page(&mut self, update: &Update, at: u64, bytes: &[u8], pages: &mut dyn Pages) {
        let id = (update.head.array, at / PAGE as u64);
        let Some(array) = self.arrays.get(id.0) else { return };
        match array.state(id.1) {
            PageState::Read | PageState::Write => {
                self.apply_change(id, (at % PAGE as u64) as usize, bytes, pages);
            }
            PageState::Fetching if planted(Bug::UpdateFetching) => {
                pages.merge(id.0, at, bytes);
            }
            PageState::Fetching => {
                self.mark_stale(id);
                self.updates.receiving.renew(update.epoch, id);
            }
            PageState::Invalid => {
                let of_page = bytes_of(id.1);
                let whole = update.head.form == Form::Range
                    && update.bytes().start <= of_page.start
                    && of_page.end <= update.bytes().end;
                if update.head.pushed && whole {
                    pages.write(id.0, at, bytes);
                    *self.updates.receiving.kept.entry(id).or_default() += bytes.len();
                } else {
                    self.updates.receiving.drop_kept(id);
                    self.updates.receiving.renew(update.epoch, id);
                }
            }
            _ => {}
        }
    }

    /// A fetch of these pages begins. If an update of this epoch was for one, the bytes of the
    /// answer may be older than the update, or newer (COH-10.6).
    pub(crate) fn renew_fetched(&mut self, array: ArrayId, fetched: Range<u64>) {
        for page in fetched {
            self.updates.receiving.drop_kept((array, page));
            if self.updates.receiving.seen.contains((array, page)) {
                self.updates.receiving.renew(self.epoch, (array, page));
            }
        }
    }

    /// Ends an epoch on the receiving side: invalidates `named` pages and those that lack bytes,
    /// and makes pages valid that were pushed whole.
    pub(crate) fn end_update_epoch(&mut self, named: &Runs, pages: &mut dyn Pages) {
        let epoch = self.epoch;
        let later = self.updates.receiving.renew.split_off(&(epoch + 1));
        let ended = core::mem::replace(&mut self.updates.receiving.renew, later);
        let lacking: Vec<Runs> = ended.values().map(PageSets::runs).collect();
        // This drops the kept bytes of pages, too.
        self.invalidate(&Runs::union(lacking.iter().chain([named])), pages);
        let kept = core::mem::take(&mut self.updates.receiving.kept);
        let mut whole: Vec<PageId> = Vec::new();
        for (id, filled) in kept {
            let Some(array) = self.arrays.get_mut(id.0) else { continue };
            if filled >= PAGE && array.state(id.1) == PageState::Invalid {
                array.set(id.1, PageState::Read);
                self.statistics.kept_pages += 1;
                whole.push(id);
            }
        }
        for (array, range) in ranges(whole) {
            let access = self.mapping(array, Access::Read);
            pages.install(array, range, access);
        }
        self.updates.receiving.seen = PageSets::default();
        self.updates.receiving.arrived.retain(|(of, _), _| *of > epoch);
    }

    /// Applies what was held for the epoch that begins now.
    pub(crate) fn begin_update_epoch(&mut self, pages: &mut dyn Pages) {
        for (update, body) in self.updates.receiving.held.remove(&self.epoch).unwrap_or_default() {
            if let Some(held) = self.updates.receiving.held_bytes.get_mut(&update.from) {
                *held = held.saturating_sub(update.len);
            }
            self.apply_update(&update, &body, pages);
        }
    }
}
