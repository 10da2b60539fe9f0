//! A writer's part: which bytes go to whom, and how many messages were sent (COH-10.1 to 10.3,
//! 10.7 to 10.10).

use crate::Rank;
use crate::coherence::array::{PageId, PageState, ranges};
use crate::coherence::codec::Headline;
use crate::coherence::guards::{bytes_of, bytes_of_pages, pages_of};
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::number_set::{NumberSet, common};
use crate::coherence::update::delivery::Delivery;
use crate::coherence::update::{Form, Through, UpdateHead};
use crate::coherence::{Coherence, diff};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Charge, Class, Message, Segment};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of offered bytes from which on they are sent before the release (COH-10.18). Fewer bytes
/// wait, because adjacent ranges are joined. A border of a small stencil, of a page or two, goes
/// early.
const SEND_EARLY: u64 = 3 << 10;
/// Number of bytes from which on a range is sent by itself, from memory. Shorter ranges are packed.
const RANGE_MIN: u64 = 1 << 10;
/// Maximum number of bytes of one range in one message.
const RANGE_MAX: u64 = 1 << 20;
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

/// Changes that are packed for one receiver.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct Packed {
    body: Vec<u8>,
    /// Bytes of the array that change.
    bytes: Vec<Range<u64>>,
}

/// State of the sending side.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Sending {
    offers: Vec<Offer>,
    /// Number of bytes of all offers.
    offered: u64,
    /// Nodes that got everything that was written to a page in the open interval (COH-10.9).
    shares: BTreeMap<PageId, Vec<Rank>>,
    /// Nodes that were named for a page whose twin will tell what was written.
    pushes: BTreeMap<PageId, Vec<Rank>>,
    /// Bytes sent to each node in the open epoch (COH-10.8).
    sent: BTreeMap<(Rank, ArrayId), NumberSet>,
    /// Number of messages sent to each node in the open epoch (COH-10.7).
    counts: BTreeMap<Rank, u64>,
    /// Changes by array, receiver, and whether the receiver was named.
    packed: BTreeMap<(ArrayId, Rank, bool), Packed>,
}

impl Sending {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.offers.retain(|offer| offer.array != array);
        self.shares.retain(|id, _| id.0 != array);
        self.pushes.retain(|id, _| id.0 != array);
        self.sent.retain(|(_, other), _| *other != array);
        self.packed.retain(|(other, ..), _| *other != array);
    }

    /// Records that these nodes, and no others, got a part of what was written to a page.
    fn share(&mut self, id: PageId, targets: &[Rank]) {
        match self.shares.get_mut(&id) {
            Some(_) if planted(Bug::ShareParts) => {}
            Some(share) => share.retain(|rank| targets.contains(rank)),
            None => {
                self.shares.insert(id, targets.to_vec());
            }
        }
    }

    /// Records that a change of a page goes to no reader.
    pub fn share_with_none(&mut self, id: PageId) {
        self.share(id, &[]);
    }

    /// Returns `true` if a part of what was written to a page went to a reader.
    pub fn has_shared(&self, id: PageId) -> bool {
        self.shares.get(&id).is_some_and(|share| !share.is_empty())
    }

    /// Ends the interval. Returns the nodes that got everything that was written, for each page.
    pub fn take_shares(&mut self) -> BTreeMap<PageId, Vec<Rank>> {
        self.pushes.clear();
        core::mem::take(&mut self.shares)
    }

    /// Ends the epoch. Returns the number of messages sent to each node in it.
    pub fn take_counts(&mut self) -> BTreeMap<Rank, u64> {
        self.sent.clear();
        core::mem::take(&mut self.counts)
    }
}

impl Coherence {
    /// Returns the epoch of updates that are sent now (COH-10.3).
    fn open_epoch(&self) -> u64 {
        self.epoch.saturating_add(u64::from(self.collective.is_waiting()))
    }

    /// Offers the bytes of a guard that has ended to the readers of its pages.
    pub(crate) fn offer(
        &mut self,
        array: ArrayId,
        bytes: Range<u64>,
        push: &[Rank],
        pages: &mut dyn Pages,
    ) {
        if self.nodes == 1 || bytes.is_empty() {
            return;
        }
        let mut push: Vec<Rank> =
            push.iter().copied().filter(|rank| *rank != self.me && *rank < self.nodes).collect();
        push.sort_unstable();
        push.dedup();
        let Some(known) = self.arrays.get_mut(array) else { return };
        if !known.guarded && push.is_empty() {
            return; // the pages' twins tell what was written
        }
        let range = pages_of(&bytes);
        if !push.is_empty() {
            // Other nodes get copies, so the pages are shared from now on.
            let private = |page: &u64| known.state(*page) == PageState::HomePrivate;
            let first: Vec<u64> = range.clone().filter(private).collect();
            for page in first {
                known.set(page, PageState::HomeWrite);
                self.dirty.insert((array, page));
            }
        }
        if known.delivery.is_some_and(Delivery::is_diff) {
            for page in range.filter(|_| !push.is_empty()) {
                if known.state(page).is_home() && !known.twins.contains_key(&page) {
                    // The page was private, so nothing tells what was written.
                    continue;
                }
                self.updates.sending.pushes.entry((array, page)).or_default().extend(&push);
            }
            return;
        }
        // Pages without copies have no readers.
        let Some(known) = self.arrays.get(array) else { return };
        let shared = range.filter(|page| known.state(*page) != PageState::HomePrivate);
        for (_, part) in ranges(shared.map(|page| (array, page))) {
            let part = common(&bytes, &bytes_of_pages(&part));
            self.updates.sending.offered += part.end - part.start;
            match self.updates.sending.offers.last_mut() {
                Some(last)
                    if last.array == array && last.bytes.end == part.start && last.push == push =>
                {
                    last.bytes.end = part.end;
                }
                _ => self.updates.sending.offers.push(Offer {
                    array,
                    bytes: part,
                    push: push.clone(),
                }),
            }
        }
        if self.updates.sending.offered >= SEND_EARLY {
            self.send_offers(pages);
        }
    }

    /// Sends all offered bytes to the subscribers of their pages, and to those that were named.
    pub(crate) fn send_offers(&mut self, pages: &mut dyn Pages) {
        self.updates.sending.offered = 0;
        for offer in core::mem::take(&mut self.updates.sending.offers) {
            let range = pages_of(&offer.bytes);
            let mut page = range.start;
            while page < range.end {
                // The changes of a page that became invalid went home early.
                if !self.holds(offer.array, page..page + 1, Access::Read) {
                    self.updates.sending.share_with_none((offer.array, page));
                    page += 1;
                    continue;
                }
                let targets = self.targets((offer.array, page), &offer.push);
                self.updates.sending.share((offer.array, page), &targets);
                let mut end = page + 1;
                while end < range.end
                    && self.holds(offer.array, end..end + 1, Access::Read)
                    && self.targets((offer.array, end), &offer.push) == targets
                {
                    self.updates.sending.share((offer.array, end), &targets);
                    end += 1;
                }
                let whole = bytes_of_pages(&(page..end));
                let part = match planted(Bug::SendUnowned) {
                    true => whole,
                    false => common(&offer.bytes, &whole),
                };
                for to in targets {
                    let pushed = offer.push.contains(&to);
                    self.send_range(to, offer.array, part.clone(), pushed, pages);
                }
                page = end;
            }
        }
        self.send_packed();
    }

    /// Gives up what was offered and not sent, at a release that no barrier follows. Readers are
    /// told by notices.
    pub(crate) fn withdraw_offers(&mut self) {
        self.updates.sending.offered = 0;
        for offer in core::mem::take(&mut self.updates.sending.offers) {
            for page in pages_of(&offer.bytes) {
                self.updates.sending.share_with_none((offer.array, page));
            }
        }
    }

    /// Returns the nodes that get what is written to a page, in order. The home gets a diff instead
    /// (COH-10.2).
    fn targets(&self, id: PageId, push: &[Rank]) -> Vec<Rank> {
        let Some(array) = self.arrays.get(id.0) else { return Vec::new() };
        let home = array.home(id.1);
        let gets = |rank: &Rank| {
            *rank != self.me && *rank != home && *rank < self.nodes && !self.dead.contains(rank)
        };
        let subscribers = array.subscribers(id.1);
        let mut targets: Vec<Rank> = subscribers.iter().chain(push).copied().filter(gets).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Sends changes of a page that were found with its twin to the page's subscribers.
    pub(crate) fn send_changes(&mut self, id: PageId, runs: &[Range<usize>], now: &[u8]) {
        let push = self.updates.sending.pushes.remove(&id).unwrap_or_default();
        let targets = self.targets(id, &push);
        self.updates.sending.share(id, &targets);
        for to in targets {
            self.pack(to, id, push.contains(&to), runs, now);
        }
    }

    /// Sends a range of bytes. Longer ranges are read from memory when they are sent, and again
    /// when they are retransmitted (COH-10.11).
    fn send_range(
        &mut self,
        to: Rank,
        array: ArrayId,
        bytes: Range<u64>,
        pushed: bool,
        pages: &mut dyn Pages,
    ) {
        let is_chosen = self.arrays.get(array).is_some_and(|a| a.delivery.is_some());
        if bytes.end - bytes.start < RANGE_MIN && !is_chosen {
            for page in pages_of(&bytes) {
                let of_page = bytes_of(page);
                let part = common(&bytes, &of_page);
                let mut now = vec![0u8; PAGE];
                pages.read(array, page, &mut now);
                let run =
                    (part.start - of_page.start) as usize..(part.end - of_page.start) as usize;
                self.pack(to, (array, page), pushed, core::slice::from_ref(&run), &now);
            }
            return;
        }
        let Some(region) = self.regions.get(&array).copied() else { return };
        let mut at = bytes.start;
        while at < bytes.end {
            let end = bytes.end.min(at.saturating_add(RANGE_MAX));
            let body = Body::Segment(Segment { region, offset: at, len: end - at });
            let part = at..end;
            self.send_update(to, array, pushed, body, core::slice::from_ref(&part));
            at = end;
        }
    }

    /// Adds changes of a page to what is packed for a node.
    fn pack(&mut self, to: Rank, id: PageId, pushed: bool, runs: &[Range<usize>], now: &[u8]) {
        let start = bytes_of(id.1).start;
        let packed = self.updates.sending.packed.entry((id.0, to, pushed)).or_default();
        diff::encode_runs(id.1, runs, now, &mut packed.body);
        // One range for a page with hundreds of runs. The ranges only say what comes in order.
        if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
            packed.bytes.push(start + first.start as u64..start + last.end as u64);
        }
        if packed.body.len() >= PACKED_MAX {
            let Packed { body, bytes } = core::mem::take(packed);
            self.send_update(to, id.0, pushed, Body::Inline(body), &bytes);
        }
    }

    /// Sends everything that is packed.
    pub(crate) fn send_packed(&mut self) {
        let packed = core::mem::take(&mut self.updates.sending.packed);
        for ((array, to, pushed), Packed { body, bytes }) in packed {
            if !body.is_empty() {
                self.send_update(to, array, pushed, Body::Inline(body), &bytes);
            }
        }
    }

    /// Sends these bytes of an array: one range from memory, or packed changes.
    fn send_update(
        &mut self,
        to: Rank,
        array: ArrayId,
        pushed: bool,
        body: Body,
        bytes: &[Range<u64>],
    ) {
        let (form, offset) = match &body {
            Body::Segment(range) => (Form::Range, range.offset),
            _ => (Form::Changes, 0),
        };
        let sent = self.updates.sending.sent.entry((to, array)).or_default();
        let again = bytes.iter().any(|range| sent.overlaps(range.clone()).next().is_some());
        bytes.iter().for_each(|range| sent.insert(range.clone()));
        // A later change of the same bytes must not be applied before an earlier one (COH-10.8).
        let is_behind = again && !planted(Bug::ReorderUpdates);
        let chosen = self.arrays.get(array).map_or(Class::Unordered, |array| array.update_class);
        let class = if is_behind { Class::Sync } else { chosen };
        if !(planted(Bug::MiscountUpdates) && form == Form::Changes) {
            *self.updates.sending.counts.entry(to).or_default() += 1;
        }
        let interval = self.knowledge.open_interval();
        let epoch = self.open_epoch() as u16;
        let delivery = self.arrays.get(array).and_then(|array| array.delivery);
        let through = match delivery {
            Some(Delivery::MessageThrough) if form == Form::Range => Through::Message,
            Some(delivery) if delivery.is_through() => Through::Header,
            _ => Through::Nothing,
        };
        let head = UpdateHead { array, form, pushed, through, epoch, offset, interval };
        self.statistics.updates_sent += 1;
        self.statistics.update_bytes += body.len();
        if let Some(known) = self.arrays.get_mut(array) {
            known.statistics.updates_sent += 1;
            known.statistics.update_bytes += body.len();
            // A page that somebody got an update of has a copy (COH-10.10).
            for page in bytes.iter().flat_map(pages_of) {
                known.noticed.remove(&page);
            }
        }
        let token = self.await_settling(to, Purpose::Update(array));
        let head = Headline::Update(head).write();
        let message = Message { class, urgent: false, charge: Charge::Nothing, head, body, token };
        self.out.push_back((to, message));
    }
}
