//! Subscriptions: who reads which page after each update (COH-10.18, COH-10.19).
//!
//! The home of a page sees each demand for it and each change of it. A node that demanded a page
//! after each of two successive changes is subscribed from then on. The home sends changes of its
//! own to subscribers, and tells remote writers who they are. An old list costs time, never
//! correctness. A reader that does not use what it gets ends its subscription.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::array::{Array, PageState};
use crate::coherence::codec::{Headline, SubscriptionChange};
use crate::coherence::failure::Doing;
use crate::coherence::guards::pages_of;
use crate::coherence::machine::{ArrayId, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::types::CoherenceError;
use crate::wind::{Class, Refusal};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of updates in a row that no guard has used. With one more, the subscription ends
/// (COH-10.19).
const UNUSED_MAX: u32 = 8;
/// In an array whose loads are not seen, the number of updates after which one is not applied, to
/// see whether the page is demanded.
const PROBE_EVERY: u32 = 64;

/// History of one page, kept by its home from the first fetch on.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Readers {
    /// Epoch of the last change, and of the last change before that epoch.
    changed: u64,
    before: Option<u64>,
    /// Last change that each node's last demand came after.
    demands: Vec<(Rank, u64)>,
    pub subscribers: Vec<Rank>,
}

impl Readers {
    /// Records a change of the page.
    pub fn change(&mut self, epoch: u64) {
        if self.changed != epoch {
            self.before = Some(core::mem::replace(&mut self.changed, epoch));
        }
    }

    /// Records a demand. Returns `true` if the node is subscribed from now on (COH-10.18).
    fn demand(&mut self, from: Rank) -> bool {
        if self.subscribers.contains(&from) {
            return false;
        }
        match self.demands.iter_mut().find(|(rank, _)| *rank == from) {
            Some((_, after)) => {
                let last = core::mem::replace(after, self.changed);
                if Some(last) != self.before {
                    return false;
                }
                self.subscribers.push(from);
                true
            }
            None => {
                self.demands.push((from, self.changed));
                false
            }
        }
    }
}

impl Array {
    /// Returns the nodes that get what is written to a page, as far as this node knows.
    pub fn subscribers(&self, page: u64) -> &[Rank] {
        let here = self.readers.get(&page).map(|readers| &readers.subscribers);
        here.or_else(|| self.remote_subscribers.get(&page)).map_or(&[], Vec::as_slice)
    }
}

/// Pages of which updates come, as one update brings them.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Feed {
    end: u64,
    /// `true` if a guard has touched them since the last update.
    is_used: bool,
    /// Number of updates in a row that nobody has touched.
    unused: u32,
    /// Number of updates since the last probe.
    updates: u32,
}

/// Updates that come to this node, by array and first page.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Feeds {
    feeds: BTreeMap<(ArrayId, u64), Feed>,
    /// Ranges that the program has subscribed to, which do not end by themselves.
    declared: crate::coherence::update::PageSets,
}

impl Feeds {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.feeds.retain(|(other, _), _| *other != array);
        self.declared.forget(array);
    }
}

impl Coherence {
    /// Records an update of these pages.
    pub(crate) fn feed(&mut self, array: ArrayId, range: Range<u64>) {
        let guarded = self.is_guarded(array);
        let new = Feed { end: range.end, is_used: true, unused: 0, updates: 0 };
        let feed = self.updates.feeds.feeds.entry((array, range.start)).or_insert(new);
        feed.end = feed.end.max(range.end);
        feed.updates = feed.updates.saturating_add(1);
        let was_used = core::mem::take(&mut feed.is_used);
        feed.unused = if was_used { 0 } else { feed.unused.saturating_add(1) };
        let (unused, end) = (feed.unused, feed.end);
        let is_probe = !guarded && feed.updates.is_multiple_of(PROBE_EVERY);
        let is_waste = guarded && !was_used;
        self.statistics.updates_wasted += u64::from(is_waste);
        if let Some(known) = self.arrays.get_mut(array) {
            known.statistics.updates_wasted += u64::from(is_waste);
        }
        if is_probe {
            // Without an update, a page that is read is demanded.
            self.updates.receiving.probe(self.epoch, array, range.clone());
        }
        let is_unwanted = if guarded {
            unused > UNUSED_MAX
        } else {
            // A probe or a notice has made the pages invalid, and nobody has demanded them since.
            !was_used && self.is_invalid(array, &range)
        };
        if is_unwanted && !self.updates.feeds.declared.contains((array, range.start)) {
            self.updates.feeds.feeds.remove(&(array, range.start));
            self.change_subscription(array, range.start..end, SubscriptionChange::End);
        }
    }

    fn is_invalid(&self, array: ArrayId, range: &Range<u64>) -> bool {
        let known = self.arrays.get(array);
        known.is_some_and(|known| range.clone().all(|page| known.state(page) == PageState::Invalid))
    }

    /// Records that a guard of this node touches these pages.
    pub(crate) fn used(&mut self, array: ArrayId, range: Range<u64>) {
        let feeds = self.updates.feeds.feeds.range_mut(..(array, range.end)).rev();
        for (_, feed) in feeds.take_while(|((of, _), _)| *of == array) {
            if feed.end > range.start {
                feed.is_used = true;
            }
        }
    }

    /// Subscribes this node to updates of these bytes, or ends the subscription. The pages' homes
    /// and remote writers learn of it with their next messages.
    ///
    /// # Errors
    /// There is no such array, or the bytes lie outside.
    pub fn subscribe(
        &mut self,
        array: ArrayId,
        bytes: Range<u64>,
        wanted: bool,
        pages: &mut dyn Pages,
    ) -> Result<(), CoherenceError> {
        let doing = || String::from("subscribe");
        let Some(known) = self.arrays.get(array).filter(|known| known.agreed) else {
            return Err(CoherenceError::UnknownArray { doing: doing(), array });
        };
        let range = pages_of(&bytes);
        if bytes.start > bytes.end || range.end > known.pages {
            return Err(CoherenceError::OutOfRange {
                doing: doing(),
                array: known.name.clone(),
                first: range.start,
                end: range.end,
                pages: known.pages,
            });
        }
        let change = if wanted { SubscriptionChange::Begin } else { SubscriptionChange::End };
        if wanted {
            self.updates.feeds.declared.insert(array, range.clone());
        } else {
            self.updates.feeds.declared.remove(array, range.clone());
        }
        self.change_subscription(array, range, change);
        self.settle(pages);
        Ok(())
    }

    /// Tells the homes of these pages that this node wants updates of them, or does not.
    fn change_subscription(
        &mut self,
        array: ArrayId,
        range: Range<u64>,
        change: SubscriptionChange,
    ) {
        let Some(known) = self.arrays.get(array) else { return };
        let mut runs: Vec<(Rank, Range<u64>)> = Vec::new();
        for page in range {
            let home = known.home(page);
            match runs.last_mut() {
                Some((of, run)) if *of == home => run.end = page + 1,
                _ => runs.push((home, page..page + 1)),
            }
        }
        let me = self.me;
        for (home, run) in runs.into_iter().filter(|(home, _)| *home != me) {
            let head =
                Headline::Subscribe { array, change, first: run.start, count: run.end - run.start };
            // Ordered, so that the last word of this node counts.
            let purpose = Purpose::Control(Doing::Subscribe);
            self.post(home, Class::Ordered, head, Vec::new(), purpose);
        }
    }

    /// A node wants updates of pages homed here, or does not.
    pub(crate) fn take_subscription(
        &mut self,
        from: Rank,
        id: ArrayId,
        change: SubscriptionChange,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        if self.arrays.is_over(id) {
            return Ok(()); // sent before its sender dropped the array (COH-14.4)
        }
        let array = self.arrays.get_mut(id).ok_or(Refusal::UnknownObject)?;
        if !array.contains(range.start, range.end - range.start) || from == self.me {
            return Err(Refusal::OutOfBounds);
        }
        if range.clone().any(|page| !array.state(page).is_home()) {
            return Err(Refusal::NotPermitted);
        }
        for page in range {
            match change {
                SubscriptionChange::Begin => {
                    let subscribers = &mut array.readers.entry(page).or_default().subscribers;
                    if !subscribers.contains(&from) {
                        subscribers.push(from);
                    }
                }
                SubscriptionChange::End => {
                    if let Some(readers) = array.readers.get_mut(&page) {
                        readers.subscribers.retain(|rank| *rank != from);
                        readers.demands.retain(|(rank, _)| *rank != from);
                    }
                }
            }
        }
        array.subscription += 1;
        Ok(())
    }

    /// Records which pages a node demanded from this home.
    pub(crate) fn take_demands(&mut self, from: Rank, id: ArrayId, demanded: Range<u64>) {
        let Some(array) = self.arrays.get_mut(id) else { return };
        for page in demanded {
            if array.readers.entry(page).or_default().demand(from) {
                array.subscription += 1;
            }
        }
    }

    /// Records a change of a page homed here.
    pub(crate) fn changed(&mut self, (id, page): (ArrayId, u64)) {
        let epoch = self.epoch;
        if let Some(array) = self.arrays.get_mut(id)
            && let Some(readers) = array.readers.get_mut(&page)
        {
            readers.change(epoch + 1);
        }
    }

    /// Tells a node that has sent changes of pages homed here who reads these pages, unless it
    /// knows.
    pub(crate) fn tell_subscribers(&mut self, writer: Rank, id: ArrayId) {
        let Some(array) = self.arrays.get_mut(id) else { return };
        let told = array.told_subscription.entry(writer).or_default();
        if core::mem::replace(told, array.subscription) == array.subscription {
            return;
        }
        let mut groups: Vec<(Range<u64>, &[Rank])> = Vec::new();
        for (page, readers) in &array.readers {
            match groups.last_mut() {
                Some((run, ranks)) if run.end == *page && *ranks == readers.subscribers => {
                    run.end += 1;
                }
                _ if readers.subscribers.is_empty() => {}
                _ => groups.push((*page..*page + 1, &readers.subscribers)),
            }
        }
        let mut body = Vec::new();
        body.put_leb128(groups.len() as u64);
        for (run, ranks) in groups {
            body.put_leb128(run.start).put_leb128(run.end - run.start);
            body.put_leb128(ranks.len() as u64);
            ranks.iter().for_each(|rank| {
                body.put_leb128(u64::from(*rank));
            });
        }
        let purpose = Purpose::Control(Doing::Subscribe);
        self.post(writer, Class::Ordered, Headline::Subscribers { array: id }, body, purpose);
    }

    /// A home tells who reads pages of it that this node writes.
    pub(crate) fn take_subscribers(
        &mut self,
        from: Rank,
        id: ArrayId,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let nodes = self.nodes;
        if self.arrays.is_over(id) {
            return Ok(()); // sent before its sender heard that the array is freed (COH-14.4)
        }
        let array = self.arrays.get_mut(id).ok_or(Refusal::UnknownObject)?;
        let mut reader = ByteReader(body);
        let mut news: Vec<(u64, Vec<Rank>)> = Vec::new();
        let mut last = 0;
        for _ in 0..reader.count(4)? {
            let (first, count) = (reader.leb128()?, reader.leb128()?);
            // In order, so that no page makes more state than one.
            if first < last || !array.contains(first, count) {
                return Err(Refusal::OutOfBounds);
            }
            last = first + count;
            let ranks = (0..reader.count(1)?)
                .map(|_| reader.leb128_u32())
                .collect::<Result<Vec<Rank>, _>>()?;
            if ranks.iter().any(|rank| *rank >= nodes) || ranks.len() > nodes as usize {
                return Err(Refusal::Malformed);
            }
            for page in first..first + count {
                if array.home(page) != from {
                    return Err(Refusal::NotPermitted);
                }
                news.push((page, ranks.clone()));
            }
        }
        reader.end()?;
        let homes = (&array.homes, array.pages);
        array.remote_subscribers.retain(|page, _| homes.0.home(*page, homes.1, nodes) != from);
        array.remote_subscribers.extend(news);
        Ok(())
    }
}
