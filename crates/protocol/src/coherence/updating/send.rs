//! A writer's part: which bytes go to whom, and how many messages were sent (COH-10.1 to 10.3,
//! 10.7 to 10.10).

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::Headline;
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::{NumberSet, common};
use crate::coherence::pages::page::{
    PageId, PageState, bytes_of, bytes_of_pages, pages_of, ranges,
};
use crate::coherence::updating::delivery::Delivery;
use crate::coherence::updating::head::{Form, UpdateHead, UpdatePart};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Segment};
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
pub(crate) struct UpdateSender {
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

impl UpdateSender {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.offers.retain(|offer| offer.array != array);
        self.shares.retain(|id, _| id.0 != array);
        self.pushes.retain(|id, _| id.0 != array);
        self.sent.retain(|(_, other), _| *other != array);
        self.packed.retain(|(other, ..), _| *other != array);
    }

    /// Returns `true` if nothing of the open interval was offered, shared or packed.
    pub fn is_idle(&self) -> bool {
        let UpdateSender { offers, offered, shares, pushes, sent: _, counts: _, packed } = self;
        *offered == 0
            && offers.is_empty()
            && shares.is_empty()
            && pushes.is_empty()
            && packed.is_empty()
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
        if !self.sent.is_empty() {
            self.sent.clear();
        }
        core::mem::take(&mut self.counts)
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
            self.send_offers(base, pages);
        }
    }

    /// Sends all offered bytes to the subscribers of their pages, and to those that were named.
    pub fn send_offers(&mut self, base: &mut Base<'_>, pages: &mut dyn Pages) {
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
                self.share((offer.array, page), &targets);
                let mut end = page + 1;
                while end < range.end
                    && base.arrays.holds(offer.array, end..end + 1, Access::Read)
                    && receivers((offer.array, end), &offer.push, base) == targets
                {
                    self.share((offer.array, end), &targets);
                    end += 1;
                }
                let whole = bytes_of_pages(&(page..end));
                let part = match planted(Bug::SendUnowned) {
                    true => whole,
                    false => common(&offer.bytes, &whole),
                };
                for to in targets {
                    let pushed = offer.push.contains(&to);
                    self.send_range(to, offer.array, part.clone(), pushed, base, pages);
                }
                page = end;
            }
        }
        self.send_packed(base);
    }

    /// Gives up what was offered and not sent, at a release that no barrier follows. Readers are
    /// told by notices.
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
        self.share(id, &targets);
        for to in targets {
            self.pack(to, id, push.contains(&to), runs, now, base);
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
                self.pack(to, (array, page), pushed, core::slice::from_ref(&run), &now, base);
            }
            return;
        }
        let Some(region) = base.arrays.region(array) else { return };
        let mut at = bytes.start;
        while at < bytes.end {
            let end = bytes.end.min(at.saturating_add(RANGE_MAX));
            let body = Body::Segment(Segment { region, offset: at, len: end - at });
            let part = at..end;
            self.send_update(to, array, pushed, body, core::slice::from_ref(&part), base);
            at = end;
        }
    }

    /// Adds changes of a page to what is packed for a node.
    fn pack(
        &mut self,
        to: Rank,
        id: PageId,
        pushed: bool,
        runs: &[Range<usize>],
        now: &[u8],
        base: &mut Base<'_>,
    ) {
        let start = bytes_of(id.1).start;
        let packed = self.packed.entry((id.0, to, pushed)).or_default();
        diff::encode_runs(id.1, runs, now, &mut packed.body);
        // One range for a page with hundreds of runs. The ranges only say what comes in order.
        if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
            packed.bytes.push(start + first.start as u64..start + last.end as u64);
        }
        if packed.body.len() >= PACKED_MAX {
            let Packed { body, bytes } = core::mem::take(packed);
            self.send_update(to, id.0, pushed, Body::Inline(body), &bytes, base);
        }
    }

    /// Sends everything that is packed.
    pub fn send_packed(&mut self, base: &mut Base<'_>) {
        let packed = core::mem::take(&mut self.packed);
        for ((array, to, pushed), Packed { body, bytes }) in packed {
            if !body.is_empty() {
                self.send_update(to, array, pushed, Body::Inline(body), &bytes, base);
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
        base: &mut Base<'_>,
    ) {
        let (form, offset) = match &body {
            Body::Segment(range) => (Form::Range, range.offset),
            _ => (Form::Changes, 0),
        };
        let sent = self.sent.entry((to, array)).or_default();
        let again = bytes.iter().any(|range| sent.overlaps(range.clone()).next().is_some());
        bytes.iter().for_each(|range| sent.insert(range.clone()));
        // A later change of the same bytes must not be applied before an earlier one (COH-10.8).
        let is_behind = again && !planted(Bug::ReorderUpdates);
        let chosen = base.arrays.get(array).map_or(Class::Unordered, |array| array.update_class);
        let class = if is_behind { Class::Sync } else { chosen };
        if !(planted(Bug::MiscountUpdates) && form == Form::Changes) {
            *self.counts.entry(to).or_default() += 1;
        }
        let interval = base.clock.knowledge.open_interval();
        let epoch = base.clock.open_epoch() as u16;
        let delivery = base.arrays.get(array).and_then(|array| array.delivery);
        let through = match delivery {
            Some(Delivery::MessageThrough) if form == Form::Range => UpdatePart::Message,
            Some(delivery) if delivery.is_through() => UpdatePart::Header,
            _ => UpdatePart::Nothing,
        };
        let head = UpdateHead { array, form, pushed, through, epoch, offset, interval };
        base.statistics.updates_sent += 1;
        base.statistics.update_bytes += body.len();
        if let Some(known) = base.arrays.get_mut(array) {
            known.statistics.updates_sent += 1;
            known.statistics.update_bytes += body.len();
            // A page that somebody got an update of has a copy (COH-10.10).
            for page in bytes.iter().flat_map(pages_of) {
                known.noticed.remove(&page);
            }
        }
        let purpose = Purpose::Update(array);
        base.mail.post_body(to, class, Headline::Update(head), body, purpose);
    }
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
