//! A writer's part: which bytes go to whom, and how many messages were sent (COH-10.1 to 10.3,
//! 10.7 to 10.10).

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::Headline;
use crate::coherence::mailbox::{Posted, Purpose};
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::{NumberSet, common};
use crate::coherence::pages::page::{
    PageId, PageState, bytes_of, bytes_of_pages, pages_of, ranges,
};
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::updating::head::{Form, UpdateHead, UpdatePart};
use crate::coherence::updating::page_sets::PageSets;
use crate::coherence::updating::shares::PageShares;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Segment};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of offered bytes from which on they are sent before the release (COH-10.18). Fewer bytes
/// wait, because adjacent ranges are joined. A border of a small stencil, of a page or two, goes
/// early.
const SEND_EARLY: u64 = 3 << 10;
/// Number of bytes from which on a range is sent by itself, from memory. Shorter ranges are packed.
/// Packed changes of as many bytes are sent as one message to all their receivers. Fewer bytes join
/// what else is packed for each receiver.
const RANGE_MIN: u64 = 1 << 10;
/// Maximum number of bytes of one range in one message.
pub(crate) const RANGE_MAX: u64 = 1 << 20;
/// Length of the body of packed changes, in bytes, at which it is sent.
const PACKED_MAX: usize = 32 << 10;

/// Bytes that a guard has written and that were not sent yet.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Offer {
    array: ArrayId,
    bytes: Range<u64>,
    push: Vec<Rank>,
}

/// Array and receivers of changes, and whether the receivers were named.
type PackedFor = (ArrayId, Vec<Rank>, bool);

/// Changes that are packed for the same receivers.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct Packed {
    body: Vec<u8>,
    /// Bytes of the array that change.
    bytes: Vec<Range<u64>>,
}

/// Maximum number of intervals of which the bytes that were sent are kept apart. Notifications of
/// the receiver tell one or two intervals late what it knows.
const SENT_APART: usize = 4;

/// Bytes of an array that were sent to one node in the open epoch, and that the node may not know.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct SentBytes(VecDeque<(u64, NumberSet)>);

impl SentBytes {
    /// Adds bytes that are sent in this interval. Returns `true` if some of them were sent before.
    fn add(&mut self, interval: u64, bytes: &[Range<u64>]) -> bool {
        let overlaps = |set: &NumberSet| {
            bytes.iter().any(|range| set.overlaps(range.clone()).next().is_some())
        };
        if planted(Bug::ForgetSentBytes) {
            self.0.retain(|(last, _)| *last == interval);
        }
        let again = self.0.iter().any(|(_, set)| overlaps(set));
        if self.0.back().is_none_or(|(last, _)| *last != interval) {
            self.0.push_back((interval, NumberSet::default()));
        }
        if self.0.len() > SENT_APART
            && let Some((_, oldest)) = self.0.pop_front()
            && let Some((_, next)) = self.0.front_mut()
        {
            oldest.iter().for_each(|range| next.insert(range));
        }
        if let Some((_, set)) = self.0.back_mut() {
            bytes.iter().for_each(|range| set.insert(range.clone()));
        }
        again
    }

    /// Forgets the bytes of intervals up to this one, which the receiver knows.
    fn forget_known(&mut self, interval: u64) {
        while self.0.front().is_some_and(|(last, _)| *last <= interval) {
            self.0.pop_front();
        }
    }
}

/// Number of messages that were sent to one node in the open epoch.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct SentCount {
    total: u64,
    /// Interval of the last message, and the number of messages in this interval.
    interval: u64,
    of_interval: u64,
}

impl SentCount {
    fn add(&mut self, interval: u64) {
        if self.interval != interval {
            (self.interval, self.of_interval) = (interval, 0);
        }
        self.total += 1;
        self.of_interval += 1;
    }
}

/// State of the sending side.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct UpdateSender {
    offers: Vec<Offer>,
    /// Number of bytes of all offers.
    offered: u64,
    /// Nodes that got everything that was written to a page in the open interval (COH-10.9).
    shares: PageShares,
    /// Pages of which neither a twin nor guards tell all that was written in the open interval.
    untold: PageSets,
    /// Bytes of pages with twins that updates or answers to fetches have sent in the open interval
    /// before its end. A twin may not show that they have changed again (COH-10.15).
    shown: BTreeMap<PageId, NumberSet>,
    /// Nodes that were named for a page whose twin will tell what was written.
    pushes: BTreeMap<PageId, Vec<Rank>>,
    /// Bytes sent to each node in the open epoch, which it may not know (COH-10.8, COH-15.10).
    sent: BTreeMap<(Rank, ArrayId), SentBytes>,
    /// Number of messages sent to each node in the open epoch (COH-10.7).
    counts: BTreeMap<Rank, SentCount>,
    packed: BTreeMap<PackedFor, Packed>,
}

impl UpdateSender {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.offers.retain(|offer| offer.array != array);
        self.shares.forget(array);
        self.untold.forget(array);
        self.shown.retain(|id, _| id.0 != array);
        self.pushes.retain(|id, _| id.0 != array);
        self.sent.retain(|(_, other), _| *other != array);
        self.packed.retain(|(other, ..), _| *other != array);
    }

    /// Returns `true` if nothing of the open interval was offered, shared or packed.
    pub fn is_idle(&self) -> bool {
        let UpdateSender { offers, offered, shares, shown, pushes, packed, .. } = self;
        *offered == 0
            && offers.is_empty()
            && shares.is_empty()
            && shown.is_empty()
            && pushes.is_empty()
            && packed.is_empty()
    }

    /// Records that a change of a page goes to no reader.
    pub fn share_with_none(&mut self, id: PageId) {
        self.shares.add(id.0, id.1..id.1 + 1, &[]);
    }

    /// Records that neither a twin nor guards tell all that is written to a page in the open
    /// interval.
    pub fn note_untold(&mut self, id: PageId) {
        self.share_with_none(id);
        self.untold.insert(id.0, id.1..id.1 + 1);
    }

    /// Returns `true` if what was written to a page is not known as a whole.
    pub fn is_untold(&self, id: PageId) -> bool {
        self.untold.contains(id)
    }

    /// Returns `true` if a part of what was written to a page went to a reader.
    pub fn has_shared(&self, id: PageId) -> bool {
        self.shares.of(id).is_some_and(|share| !share.is_empty())
    }

    /// Returns `true` if no reader counts as having everything that was written to a page.
    pub fn is_shared_with_none(&self, id: PageId) -> bool {
        self.shares.of(id).is_some_and(<[Rank]>::is_empty)
    }

    /// Takes the bytes of a page that were sent in the open interval, as places in the page.
    pub fn take_shown(&mut self, id: PageId) -> impl Iterator<Item = Range<usize>> + use<> {
        let start = bytes_of(id.1).start;
        let runs: Vec<Range<u64>> =
            self.shown.remove(&id).iter().flat_map(NumberSet::iter).collect();
        runs.into_iter().map(move |run| (run.start - start) as usize..(run.end - start) as usize)
    }

    /// Ends the interval. Returns the nodes that got everything that was written.
    pub fn take_shares(&mut self) -> PageShares {
        self.pushes.clear();
        self.shown.clear();
        self.untold = PageSets::default();
        core::mem::take(&mut self.shares)
    }

    /// Ends the epoch. Returns the number of messages sent to each node in it.
    pub fn take_counts(&mut self) -> BTreeMap<Rank, u64> {
        if !self.sent.is_empty() {
            self.sent.clear();
        }
        let counts = core::mem::take(&mut self.counts);
        counts.into_iter().map(|(to, sent)| (to, sent.total)).collect()
    }

    /// Returns how many messages of intervals up to this one were sent to a node in the open epoch.
    pub fn sent_until(&self, to: Rank, interval: u64) -> u64 {
        let SentCount { total, interval: last, of_interval } =
            self.counts.get(&to).copied().unwrap_or_default();
        if last > interval { total.saturating_sub(of_interval) } else { total }
    }

    /// Called when a node has told that it knows this node's intervals up to this one. Updates of
    /// these intervals need no order any more (COH-15.10).
    pub fn forget_known_to(&mut self, to: Rank, interval: u64) {
        self.sent.range_mut((to, 0)..=(to, ArrayId::MAX)).for_each(|(_, sent)| {
            sent.forget_known(interval);
        });
    }

    /// Offers the bytes of a guard that has ended to the readers of its pages.
    pub fn offer(
        &mut self,
        array: ArrayId,
        bytes: Range<u64>,
        push: &[Rank],
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        if base.mail.nodes == 1 || bytes.is_empty() {
            return;
        }
        let mut push: Vec<Rank> = push
            .iter()
            .copied()
            .filter(|rank| *rank != base.mail.me && *rank < base.mail.nodes)
            .collect();
        push.sort_unstable();
        push.dedup();
        let Some(known) = base.arrays.get(array) else { return };
        if !known.guarded && push.is_empty() {
            return; // the pages' twins tell what was written
        }
        let range = pages_of(&bytes);
        if !push.is_empty() {
            base.arrays.share_private(array, range.clone());
        }
        let Some(known) = base.arrays.get(array) else { return };
        if known.delivery.is_some_and(Delivery::is_diff) {
            for page in range.filter(|_| !push.is_empty()) {
                if known.state(page).is_home() && !known.twins.contains_key(&page) {
                    // The page was private, so nothing tells what was written.
                    continue;
                }
                self.pushes.entry((array, page)).or_default().extend(&push);
            }
            return;
        }
        // Pages without copies have no readers.
        let shared = range.filter(|page| known.state(*page) != PageState::HomePrivate);
        for (_, part) in ranges(shared.map(|page| (array, page))) {
            let part = common(&bytes, &bytes_of_pages(&part));
            self.offered += part.end - part.start;
            match self.offers.last_mut() {
                Some(last)
                    if last.array == array && last.bytes.end == part.start && last.push == push =>
                {
                    last.bytes.end = part.end;
                }
                _ => self.offers.push(Offer { array, bytes: part, push: push.clone() }),
            }
        }
        if self.offered >= SEND_EARLY {
            self.send_offered(true, base, pages);
        }
    }

    /// Sends all offered bytes to the subscribers of their pages, and to those that were named.
    /// Called when the interval is closed.
    pub fn send_offers(&mut self, base: &mut Base<'_>, pages: &mut dyn Pages) {
        self.send_offered(false, base, pages);
    }

    fn send_offered(&mut self, is_open: bool, base: &mut Base<'_>, pages: &mut dyn Pages) {
        self.offered = 0;
        for offer in core::mem::take(&mut self.offers) {
            let range = pages_of(&offer.bytes);
            let mut page = range.start;
            while page < range.end {
                // The changes of a page that became invalid went home early.
                if !base.arrays.holds(offer.array, page..page + 1, Access::Read) {
                    self.share_with_none((offer.array, page));
                    page += 1;
                    continue;
                }
                let targets = receivers((offer.array, page), &offer.push, base);
                let mut end = page + 1;
                while end < range.end
                    && base.arrays.holds(offer.array, end..end + 1, Access::Read)
                    && have_same_readers(offer.array, page, end, base)
                {
                    end += 1;
                }
                self.shares.add(offer.array, page..end, &targets);
                let whole = bytes_of_pages(&(page..end));
                let part = match planted(Bug::SendUnowned) {
                    true => whole,
                    false => common(&offer.bytes, &whole),
                };
                if is_open && !targets.is_empty() {
                    self.note_shown(offer.array, &part, base);
                }
                for (to, pushed) in by_push(targets, &offer.push) {
                    self.send_range(to, offer.array, part.clone(), pushed, base, pages);
                }
                page = end;
            }
        }
        self.send_packed(base);
    }

    /// Records bytes that are sent before the interval ends, where a twin tells what has changed.
    fn note_shown(&mut self, array: ArrayId, bytes: &Range<u64>, base: &Base<'_>) {
        let Some(known) = base.arrays.get(array) else { return };
        for page in pages_of(bytes) {
            if !known.guarded || known.twins.contains_key(&page) {
                let shown = self.shown.entry((array, page)).or_default();
                shown.insert(common(bytes, &bytes_of(page)));
            }
        }
    }

    /// Records what an answer to a fetch shows of the open interval. A twin may not show that these
    /// bytes have changed again.
    pub fn note_served(&mut self, id: PageId, now: &[u8], base: &Base<'_>) {
        let Some(twin) = base.arrays.get(id.0).and_then(|array| array.twins.get(&id.1)) else {
            return;
        };
        let start = bytes_of(id.1).start;
        for run in diff::changed(twin, now) {
            let shown = self.shown.entry(id).or_default();
            shown.insert(start + run.start as u64..start + run.end as u64);
        }
    }

    /// Records what a settled message may have shown of the open interval. Its bytes were read from
    /// memory at an unknown time, so a page's twin cannot tell what readers have (COH-10.21).
    pub fn note_read(&mut self, posted: &Posted, base: &Base<'_>) {
        let Some((id, read)) = posted.reads() else { return };
        if let Some(array) = base.arrays.get(id).filter(|_| !planted(Bug::TrustTwinOfRead)) {
            array.twins.range(read).for_each(|(page, _)| self.note_untold((id, *page)));
        }
    }

    /// Gives up what was offered and not sent, at a release that sends no updates. Notices tell
    /// readers.
    pub fn withdraw_offers(&mut self) {
        self.offered = 0;
        for offer in core::mem::take(&mut self.offers) {
            for page in pages_of(&offer.bytes) {
                self.share_with_none((offer.array, page));
            }
        }
    }

    /// Sends changes of a page that were found with its twin to the page's subscribers.
    pub fn send_changes(
        &mut self,
        id: PageId,
        runs: &[Range<usize>],
        now: &[u8],
        base: &mut Base<'_>,
    ) {
        let push = self.pushes.remove(&id).unwrap_or_default();
        let targets = receivers(id, &push, base);
        self.shares.add(id.0, id.1..id.1 + 1, &targets);
        for (to, pushed) in by_push(targets, &push) {
            self.pack(to, id, pushed, runs, now, base);
        }
    }

    /// Sends a range of bytes. Longer ranges are read from memory when they are sent, and again
    /// when they are retransmitted (COH-10.11).
    fn send_range(
        &mut self,
        to: Vec<Rank>,
        array: ArrayId,
        bytes: Range<u64>,
        pushed: bool,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let is_chosen = base.arrays.get(array).is_some_and(|a| a.delivery.is_some());
        if bytes.end - bytes.start < RANGE_MIN && !is_chosen {
            for page in pages_of(&bytes) {
                let of_page = bytes_of(page);
                let part = common(&bytes, &of_page);
                let mut now = vec![0u8; PAGE];
                pages.read(array, page, &mut now);
                let run =
                    (part.start - of_page.start) as usize..(part.end - of_page.start) as usize;
                self.pack(
                    to.clone(),
                    (array, page),
                    pushed,
                    core::slice::from_ref(&run),
                    &now,
                    base,
                );
            }
            return;
        }
        let Some(region) = base.arrays.region(array) else { return };
        let mut at = bytes.start;
        while at < bytes.end {
            let end = bytes.end.min(at.saturating_add(RANGE_MAX));
            let body = Body::Segment(Segment { region, offset: at, len: end - at });
            let part = at..end;
            self.send_update(&to, array, pushed, body, core::slice::from_ref(&part), base);
            at = end;
        }
    }

    /// Adds changes of a page to what is packed for these nodes.
    fn pack(
        &mut self,
        to: Vec<Rank>,
        id: PageId,
        pushed: bool,
        runs: &[Range<usize>],
        now: &[u8],
        base: &mut Base<'_>,
    ) {
        let start = bytes_of(id.1).start;
        let add = |packed: &mut Packed| {
            diff::encode_runs(id.1, runs, now, &mut packed.body);
            // One range for a page with hundreds of runs. The ranges only say what comes in order.
            if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
                packed.bytes.push(start + first.start as u64..start + last.end as u64);
            }
        };
        if let Some((key, full)) = add_packed(&mut self.packed, (id.0, to, pushed), add) {
            self.send_changes_to(&key, full, base);
        }
    }

    /// Sends everything that is packed.
    pub fn send_packed(&mut self, base: &mut Base<'_>) {
        let is_short =
            |to: &[Rank], packed: &Packed| to.len() > 1 && (packed.body.len() as u64) < RANGE_MIN;
        let mut packed = core::mem::take(&mut self.packed);
        let short = packed.extract_if(.., |(_, to, _), packed| is_short(to, packed));
        for ((array, to, pushed), part) in short.collect::<Vec<_>>() {
            for rank in to {
                let add = |whole: &mut Packed| {
                    whole.body.extend_from_slice(&part.body);
                    whole.bytes.extend_from_slice(&part.bytes);
                };
                if let Some((key, full)) = add_packed(&mut packed, (array, vec![rank], pushed), add)
                {
                    self.send_changes_to(&key, full, base);
                }
            }
        }
        packed.into_iter().for_each(|(key, changes)| self.send_changes_to(&key, changes, base));
    }

    fn send_changes_to(
        &mut self,
        (array, to, pushed): &PackedFor,
        Packed { body, bytes }: Packed,
        base: &mut Base<'_>,
    ) {
        self.send_update(to, *array, *pushed, Body::Inline(body), &bytes, base);
    }

    /// Sends these bytes of an array: one range from memory, or packed changes. If one receiver
    /// must apply them in order, all do, because they get one message.
    fn send_update(
        &mut self,
        to: &[Rank],
        array: ArrayId,
        pushed: bool,
        body: Body,
        bytes: &[Range<u64>],
        base: &mut Base<'_>,
    ) {
        let (form, offset) = match &body {
            Body::Segment(range) => (Form::Range, range.offset),
            _ => (Form::Changes, 0),
        };
        let interval = base.clock.knowledge.open_interval();
        let mut again = false;
        for to in to {
            again |= self.sent.entry((*to, array)).or_default().add(interval, bytes);
        }
        // A later change of the same bytes must not be applied before an earlier one (COH-10.8).
        let is_behind = again && !planted(Bug::ReorderUpdates);
        let chosen = base.arrays.get(array).map_or(Class::Unordered, |array| array.update_class);
        let class = if is_behind { Class::Sync } else { chosen };
        if !(planted(Bug::MiscountUpdates) && form == Form::Changes) {
            to.iter().for_each(|to| self.counts.entry(*to).or_default().add(interval));
        }
        let epoch = base.clock.open_epoch() as u16;
        let delivery = base.arrays.get(array).and_then(|array| array.delivery);
        let through = match delivery {
            Some(Delivery::MessageThrough) if form == Form::Range => UpdatePart::Message,
            Some(delivery) if delivery.is_through() => UpdatePart::Header,
            _ => UpdatePart::Nothing,
        };
        let head = UpdateHead { array, form, pushed, through, epoch, offset, interval };
        let (messages, sent) = (to.len() as u64, to.len() as u64 * body.len());
        base.statistics.updates_sent += messages;
        base.statistics.update_bytes += sent;
        if let Some(known) = base.arrays.get_mut(array) {
            known.statistics.updates_sent += messages;
            known.statistics.update_bytes += sent;
            // A page that somebody got an update of has a copy (COH-10.10).
            for page in bytes.iter().flat_map(pages_of) {
                known.noticed.remove(&page);
            }
        }
        let purpose = Purpose::Update(array);
        base.mail.post_many(to, class, Headline::Update(head), body, purpose);
    }
}

/// Adds to what is packed for these receivers. Returns all of that once it is long enough to be
/// sent.
fn add_packed(
    packed: &mut BTreeMap<PackedFor, Packed>,
    key: PackedFor,
    add: impl FnOnce(&mut Packed),
) -> Option<(PackedFor, Packed)> {
    let mut entry = match packed.entry(key) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(entry) => entry.insert_entry(Packed::default()),
    };
    add(entry.get_mut());
    (entry.get().body.len() >= PACKED_MAX).then(|| entry.remove_entry())
}

/// Parts receivers into those that were not named, and those that were.
fn by_push(targets: Vec<Rank>, push: &[Rank]) -> impl Iterator<Item = (Vec<Rank>, bool)> + use<> {
    let (named, others): (Vec<Rank>, Vec<Rank>) =
        targets.into_iter().partition(|rank| push.contains(rank));
    [(others, false), (named, true)].into_iter().filter(|(to, _)| !to.is_empty())
}

/// Returns `true` if the same nodes [get](receivers) what is written to two pages of an array.
fn have_same_readers(array: ArrayId, one: u64, other: u64, base: &Base<'_>) -> bool {
    base.arrays.get(array).is_some_and(|array| {
        array.home(one) == array.home(other) && array.subscribers(one) == array.subscribers(other)
    })
}

/// Returns the nodes that get what is written to a page, in order. The home gets a diff instead
/// (COH-10.2).
fn receivers(id: PageId, push: &[Rank], base: &Base<'_>) -> Vec<Rank> {
    let Some(array) = base.arrays.get(id.0) else { return Vec::new() };
    let home = array.home(id.1);
    let gets = |rank: &Rank| {
        *rank != base.mail.me
            && *rank != home
            && *rank < base.mail.nodes
            && !base.mail.is_dead(*rank)
    };
    let subscribers = array.subscribers(id.1);
    let mut targets: Vec<Rank> = subscribers.iter().chain(push).copied().filter(gets).collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}
