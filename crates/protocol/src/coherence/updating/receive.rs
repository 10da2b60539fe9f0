//! A reader's part: it applies updates to valid pages, and knows when all of an epoch are here
//! (COH-10.4 to 10.7, 10.15).

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Runs;
use crate::coherence::clock::vector::Vector;
use crate::coherence::mailbox::CONTROL_MAX;
use crate::coherence::pages::array::Array;
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::common;
use crate::coherence::pages::page::{
    PageId, PageState, bytes_of, bytes_of_pages, pages_of, ranges,
};
use crate::coherence::pages::table::Arrays;
use crate::coherence::updating::head::{Form, UpdateHead, UpdatePart};
use crate::coherence::updating::page_sets::PageSets;
use crate::coherence::updating::pending::{PendingUpdates, UpdateOrigin};
use crate::coherence::updating::send::RANGE_MAX;
use crate::coherence::updating::subscribe::Feeds;
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

    /// Returns the pages that a receiver without them may keep: those that the update brings whole
    /// because the receiver was named.
    fn whole_pages(&self) -> Range<u64> {
        if !self.head.pushed || self.head.form != Form::Range {
            return 0..0;
        }
        let Range { start, end } = self.bytes();
        let first = start.div_ceil(PAGE as u64);
        first..(end / PAGE as u64).max(first)
    }

    fn origin(&self) -> UpdateOrigin {
        let Update { from, head, epoch, .. } = *self;
        UpdateOrigin { from, epoch, interval: head.interval }
    }

    /// Returns `true` if this node knows the interval of the update.
    fn is_known(&self, base: &Base<'_>) -> bool {
        base.clock.knowledge.vector.get(self.from) >= self.head.interval
    }
}

/// Bytes of an invalid page that one update has brought.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct KeptBytes {
    from: Rank,
    interval: u64,
    filled: usize,
}

/// State of the receiving side.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct UpdateReceiver {
    /// Updates of several fragments, by sender and message number.
    incoming: BTreeMap<(Rank, u64), Update>,
    /// Heads that were handed up and not taken yet (header through).
    headers: VecDeque<Update>,
    /// Number of updates that have arrived, by epoch and sender.
    arrived: BTreeMap<(u64, Rank), u64>,
    /// Updates of epochs that this node has not reached.
    held: BTreeMap<u64, Vec<(Update, Vec<u8>)>>,
    held_bytes: BTreeMap<Rank, u64>,
    /// Updates whose intervals this node does not know.
    pending: PendingUpdates,
    /// Pages to invalidate at the end of an epoch, or at a notification in it, to see whether
    /// anybody reads them.
    probes: BTreeMap<u64, PageSets>,
    /// Invalid pages that were pushed to this node, and what has arrived of the last push of each.
    kept: BTreeMap<PageId, KeptBytes>,
}

impl UpdateReceiver {
    /// Drops the kept bytes of a page.
    fn drop_kept(&mut self, id: PageId) {
        self.kept.remove(&id);
    }

    /// Drops the kept bytes of the invalid pages of a range.
    pub fn drop_invalid(&mut self, array: ArrayId, pages: &Range<u64>, arrays: &Arrays) {
        if pages.is_empty() || self.kept.is_empty() {
            return;
        }
        let kept = self.kept.range((array, pages.start)..(array, pages.end)).map(|(id, _)| *id);
        let is_invalid = |id: &PageId| {
            arrays.get(id.0).is_some_and(|array| array.state(id.1) == PageState::Invalid)
        };
        let dropped: Vec<PageId> = kept.filter(is_invalid).collect();
        dropped.into_iter().for_each(|id| self.drop_kept(id));
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.pending.forget(array);
        self.probes.values_mut().for_each(|pages| pages.forget(array));
        self.kept.retain(|id, _| id.0 != array);
    }

    /// Records that pages lack bytes of an update.
    fn doubt(&mut self, update: &Update, array: ArrayId, pages: Range<u64>) {
        if !planted(Bug::ForgetRenew) {
            self.pending.doubt(update.origin(), array, pages);
        }
    }

    /// Makes these pages invalid at the end of the epoch, or at the next notification of any node,
    /// to see whether anybody reads them.
    pub fn probe(&mut self, epoch: u64, array: ArrayId, pages: Range<u64>) {
        self.probes.entry(epoch).or_default().insert(array, pages);
    }

    /// Takes the pages to invalidate at a notification, to see whether anybody reads them.
    pub fn take_probes(&mut self, epoch: u64) -> Runs {
        self.probes.remove(&epoch).map_or_else(Runs::default, |pages| pages.runs())
    }

    /// Returns how many updates of this epoch have arrived from a node.
    pub fn arrived(&self, epoch: u64, from: Rank) -> u64 {
        self.arrived.get(&(epoch, from)).copied().unwrap_or(0)
    }

    /// Returns how many updates of this epoch have arrived from a node in intervals up to this one;
    /// `None` if that cannot be told any more (COH-15.9).
    pub fn arrived_until(&self, epoch: u64, from: Rank, interval: u64) -> Option<u64> {
        let later = self.pending.after(from, epoch, interval)?;
        Some(self.arrived(epoch, from).saturating_sub(later))
    }

    /// Returns the pages that a notification with this vector clock does not leave valid, because
    /// of updates that have come (COH-15.8).
    pub fn doubtful(&self, vector: &Vector) -> Runs {
        self.pending.doubtful(vector)
    }

    /// Returns the pages of updates that have come in unknown intervals other than these.
    pub fn pages_beside(&self, are_meant: impl Fn(Rank, u64) -> bool) -> PageSets {
        self.pending.pages_beside(are_meant)
    }

    /// Forgets what only unknown intervals need, after this node's knowledge has grown.
    pub fn forget_known(&mut self, vector: &Vector) {
        self.pending.forget_known(vector);
    }

    /// Decides where the bytes of a fragmented update go.
    pub fn admit(
        &mut self,
        from: Rank,
        number: u64,
        head: UpdateHead,
        len: u64,
        feeds: &mut Feeds,
        base: &mut Base<'_>,
    ) -> Admission {
        let update = match expect_update(from, head, len, base) {
            Ok(update) => update,
            Err(refusal) => return Admission::Refuse(refusal),
        };
        let is_early = update.epoch > base.clock.epoch;
        let is_whole = head.form == Form::Changes || head.through == UpdatePart::Message;
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
            self.see(&update, update.bytes(), feeds, base);
        }
        self.incoming.insert((from, number), update);
        Admission::Place
    }

    fn has_room_for(&self, from: Rank, len: u64) -> bool {
        let held = self.held_bytes.get(&from).copied().unwrap_or(0);
        held.saturating_add(len) <= HELD_MAX
    }

    /// Records that an update of the present epoch is for these bytes.
    fn see(&mut self, update: &Update, bytes: Range<u64>, feeds: &mut Feeds, base: &mut Base<'_>) {
        if !update.is_known(base) && !planted(Bug::ForgetSeen) {
            self.pending.add(update.origin(), update.head.array, bytes.clone());
        }
        let written = pages_of(&bytes);
        base.arrays.change(update.head.array, |array| array.moving.note_other_writer(&written));
        if !update.head.pushed {
            let (array, range) = (update.head.array, pages_of(&bytes));
            if feeds.feed(array, range.clone(), base) {
                // Without an update, a page that is read is demanded.
                self.probe(base.clock.epoch, array, range);
            }
        }
    }

    /// Records that the bytes of an update will not be applied.
    fn lack(&mut self, update: &Update, bytes: Range<u64>) {
        for page in pages_of(&bytes) {
            self.doubt(update, update.head.array, page..page + 1);
        }
    }

    /// Places bytes of a fragmented update. Returns `false` if no such message was admitted.
    pub fn place(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let Some(update) = self.incoming.get(&(from, number)).copied() else {
            return false;
        };
        let is_inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= update.len);
        if is_inside && update.epoch == base.clock.epoch {
            self.apply_range(&update, update.head.offset + offset, bytes, base, pages);
        }
        true
    }

    /// Called when a fragmented update is whole. Returns `false` if no such message was admitted.
    pub fn arrive(&mut self, from: Rank, number: u64, base: &mut Base<'_>) -> bool {
        let Some(update) = self.incoming.remove(&(from, number)) else {
            return false;
        };
        self.end_update(&update, base);
        true
    }

    /// Called when the sender has withdrawn a message. An update that has begun counts, and its
    /// bytes lack.
    pub fn withdrawn(&mut self, from: Rank, number: u64, base: &mut Base<'_>) {
        if let Some(update) = self.incoming.remove(&(from, number)) {
            self.lack(&update, update.bytes());
            self.end_update(&update, base);
        }
    }

    /// Forgets an update whose beginning another node has forged.
    pub fn forget_begun(&mut self, from: Rank, number: u64) {
        self.incoming.remove(&(from, number));
    }

    /// Counts an update that has been applied or dropped, after its head was handed up if the
    /// delivery says so.
    fn end_update(&mut self, update: &Update, base: &mut Base<'_>) {
        base.count_delivery(update.head.delivery());
        if update.head.through == UpdatePart::Header {
            self.headers.push_back(*update);
        } else {
            self.count_update(update, base);
        }
    }

    /// Takes the next head that was handed up. Returns `true` if there was one.
    pub fn take_header(&mut self, base: &mut Base<'_>) -> bool {
        let Some(update) = self.headers.pop_front() else { return false };
        self.count_update(&update, base);
        true
    }

    fn count_update(&mut self, update: &Update, base: &mut Base<'_>) {
        let key = (update.epoch, update.from);
        *self.arrived.entry(key).or_default() += 1;
        if !update.is_known(base) {
            self.pending.count(update.origin());
        }
        base.statistics.updates_received += 1;
        if let Some(known) = base.arrays.get_mut(update.head.array) {
            known.statistics.updates_received += 1;
        }
    }

    /// Takes an update that came in one piece, or was assembled.
    pub fn take(
        &mut self,
        from: Rank,
        head: UpdateHead,
        body: &[u8],
        feeds: &mut Feeds,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let len = body.len() as u64;
        let update = expect_update(from, head, len, base)?;
        if head.form == Form::Changes {
            let array = base.arrays.get(head.array).ok_or(Refusal::UnknownObject)?;
            diff::decode(body, |page, _, _| {
                if !array.contains(page, 1) {
                    return Err(Refusal::OutOfBounds);
                }
                if array.refuses_updates(page) { Err(Refusal::NotPermitted) } else { Ok(()) }
            })?;
        }
        if update.epoch > base.clock.epoch {
            self.hold(update, body, base);
        } else {
            self.apply_update(&update, body, feeds, base, pages);
        }
        self.end_update(&update, base);
        Ok(())
    }

    /// Keeps an update until its epoch begins. Without room it is dropped, and its pages are in
    /// doubt.
    fn hold(&mut self, update: Update, body: &[u8], base: &mut Base<'_>) {
        if self.has_room_for(update.from, update.len) {
            *self.held_bytes.entry(update.from).or_default() += update.len;
            let held = self.held.entry(update.epoch).or_default();
            held.push((update, body.to_vec()));
            base.statistics.updates_held += 1;
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

    fn apply_update(
        &mut self,
        update: &Update,
        body: &[u8],
        feeds: &mut Feeds,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        match update.head.form {
            Form::Range => {
                self.see(update, update.bytes(), feeds, base);
                self.apply_range(update, update.head.offset, body, base, pages);
            }
            Form::Changes => {
                // The body has been checked. A page may have several runs, one after another.
                let mut written: Option<(u64, Range<u64>)> = None;
                let _ = diff::decode(body, |page, at, bytes| {
                    let at = bytes_of(page).start + at as u64;
                    let run = at..at + bytes.len() as u64;
                    match &mut written {
                        Some((last, all)) if *last == page => {
                            *all = all.start.min(run.start)..all.end.max(run.end);
                        }
                        _ => {
                            if let Some((_, all)) = written.replace((page, run)) {
                                self.see(update, all, feeds, base);
                            }
                        }
                    }
                    self.apply_range(update, at, bytes, base, pages);
                    Ok(())
                });
                if let Some((_, all)) = written {
                    self.see(update, all, feeds, base);
                }
            }
        }
    }

    /// Applies bytes from a place in the array on to the pages that are valid (COH-10.5), unless
    /// their interval is known (COH-10.4). Bytes under live guards wait (COH-10.12).
    fn apply_range(
        &mut self,
        update: &Update,
        at: u64,
        bytes: &[u8],
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        if update.is_known(base) && !planted(Bug::ApplyKnownUpdate) {
            return;
        }
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let valid = base.arrays.valid_len(update.head.array, at, rest.len());
            let alike = || base.arrays.alike_len(update.head.array, at, rest.len());
            let here = if valid > 0 { valid } else { alike() };
            let (here, after) = rest.split_at(here);
            if valid > 0 {
                base.arrays.apply_change(update.head.array, at, here, pages);
            } else {
                self.apply_to_invalid(update, at, here, base, pages);
            }
            at += here.len() as u64;
            rest = after;
        }
    }

    /// Keeps bytes of pages that are not valid, all in the same state, or records that the pages
    /// lack them (COH-10.5, COH-10.15).
    fn apply_to_invalid(
        &mut self,
        update: &Update,
        at: u64,
        bytes: &[u8],
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let (array, here) = (update.head.array, at..at + bytes.len() as u64);
        let Some(known) = base.arrays.get(array) else { return };
        match known.state(pages_of(&here).start) {
            PageState::Fetching | PageState::Stale if planted(Bug::UpdateFetching) => {
                pages.merge(array, at, bytes);
            }
            PageState::Fetching | PageState::Stale => {
                pages_of(&here).for_each(|page| base.arrays.mark_stale((array, page)));
                self.doubt(update, array, pages_of(&here));
            }
            PageState::Invalid => {
                let whole = update.whole_pages();
                for page in pages_of(&here) {
                    if whole.contains(&page) {
                        self.keep(update, (array, page), common(&here, &bytes_of(page)));
                    } else {
                        self.drop_kept((array, page));
                        self.doubt(update, array, page..page + 1);
                    }
                }
                let kept = common(&here, &bytes_of_pages(&whole));
                let kept = (kept.start - at) as usize..kept.end.saturating_sub(at) as usize;
                pages.expect_writes(array, whole);
                if let Some(kept_bytes) = bytes.get(kept.clone()).filter(|part| !part.is_empty()) {
                    pages.write(array, at + kept.start as u64, kept_bytes);
                }
            }
            _ => {}
        }
    }

    /// Records bytes of an invalid page that an update has brought.
    fn keep(&mut self, update: &Update, id: PageId, bytes: Range<u64>) {
        let UpdateOrigin { from, interval, .. } = update.origin();
        let new = KeptBytes { from, interval, filled: 0 };
        let kept = self.kept.entry(id).or_insert(new);
        if (kept.from, kept.interval) != (from, interval) {
            *kept = new;
        }
        kept.filled += (bytes.end - bytes.start) as usize;
    }

    /// A fetch of these pages begins. If an update of an unknown interval was for one, the bytes of
    /// the answer may be older than the update, or newer (COH-10.6).
    pub fn doubt_fetched(&mut self, array: ArrayId, fetched: Range<u64>) {
        fetched.clone().for_each(|page| self.drop_kept((array, page)));
        if !planted(Bug::ForgetRenew) {
            self.pending.doubt_fetched(array, &fetched);
        }
    }

    /// Returns the pages to invalidate at the end of an epoch: those that are `named`, and those
    /// that lack bytes of an update. [`Self::end_epoch`] follows.
    pub fn take_lacking(&mut self, epoch: u64, named: Runs) -> Runs {
        let later = self.probes.split_off(&(epoch + 1));
        let ended = core::mem::replace(&mut self.probes, later);
        let mut lacking = self.pending.end_epoch(epoch);
        if ended.is_empty() && lacking.is_empty() {
            return named;
        }
        lacking.extend(ended.values().map(PageSets::runs));
        Runs::union(lacking.iter().chain([&named]))
    }

    /// Ends an epoch on the receiving side: makes pages valid that were pushed whole. The departure
    /// `lists` this node for such a page, or tells it that the page is not named (COH-6.21).
    pub fn end_epoch(
        &mut self,
        lists: impl Fn(PageId) -> bool,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let epoch = base.clock.epoch;
        if !self.arrived.is_empty() {
            self.arrived.retain(|(of, _), _| *of > epoch);
        }
        let mut kept = core::mem::take(&mut self.kept);
        kept.retain(|id, _| {
            let is_told = |array: &Array| array.copies.is_told_of(id.1);
            base.arrays.get(id.0).is_some_and(is_told) || lists(*id)
        });
        make_kept_valid(kept, base, pages);
    }

    /// Makes pages valid that the notifier has pushed whole, unless they were invalidated
    /// (COH-15.8).
    pub fn end_pushes(&mut self, notifier: Rank, base: &mut Base<'_>, pages: &mut dyn Pages) {
        let is_whole = |kept: &KeptBytes| kept.from == notifier && kept.filled >= PAGE;
        let (whole, others) =
            core::mem::take(&mut self.kept).into_iter().partition(|(_, kept)| is_whole(kept));
        self.kept = others;
        make_kept_valid(whole, base, pages);
    }

    /// Applies what was held for the epoch that begins now.
    pub fn begin_epoch(&mut self, feeds: &mut Feeds, base: &mut Base<'_>, pages: &mut dyn Pages) {
        if self.held.is_empty() {
            return;
        }
        for (update, body) in self.held.remove(&base.clock.epoch).unwrap_or_default() {
            if let Some(held) = self.held_bytes.get_mut(&update.from) {
                *held = held.saturating_sub(update.len);
            }
            self.apply_update(&update, &body, feeds, base, pages);
        }
    }
}

/// Makes invalid pages valid of which all bytes have arrived.
fn make_kept_valid(kept: BTreeMap<PageId, KeptBytes>, base: &mut Base<'_>, pages: &mut dyn Pages) {
    let mut whole: Vec<PageId> = Vec::new();
    for (id, kept) in kept {
        let Some(array) = base.arrays.get_mut(id.0) else { continue };
        if kept.filled >= PAGE && array.state(id.1) == PageState::Invalid {
            array.set(id.1, PageState::Read);
            base.statistics.kept_pages += 1;
            whole.push(id);
        }
    }
    for (array, range) in ranges(whole) {
        let access = base.arrays.mapping(array, Access::Read);
        pages.install(array, range, access);
    }
}

/// Checks the head of an update.
fn expect_update(
    from: Rank,
    head: UpdateHead,
    len: u64,
    base: &Base<'_>,
) -> Result<Update, Refusal> {
    let array = base.arrays.get(head.array).ok_or(Refusal::UnknownObject)?;
    let epoch = head.epoch_near(base.clock.epoch);
    // A writer is at most in the collective after the next one (COH-10.3).
    let last = base.epoch_possible().saturating_add(1);
    let update = Update { from, head, epoch, len };
    if epoch > last || (epoch < base.clock.epoch && base.mail.dead().is_empty()) {
        return Err(Refusal::Malformed);
    }
    if head.form == Form::Range {
        // Memory for the whole range is found when its first bytes come.
        if len > RANGE_MAX {
            return Err(Refusal::Malformed);
        }
        let range = pages_of(&update.bytes());
        if len == 0 || !array.contains(range.start, range.end.saturating_sub(range.start)) {
            return Err(Refusal::OutOfBounds);
        }
        if range.into_iter().any(|page| array.refuses_updates(page)) {
            return Err(Refusal::NotPermitted);
        }
    }
    Ok(update)
}
