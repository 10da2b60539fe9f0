//! Subscriptions: who reads which page after each update (COH-10.18, COH-10.19).
//!
//! The home of a page sees each demand for it and each change of it. A node that demanded a page
//! after each of two successive changes is subscribed from then on. The home sends changes of its
//! own to subscribers, and tells remote writers who they are. An old list costs time, never
//! correctness. A reader that does not use what it gets ends its subscription.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::{Headline, SubscriptionChange};
use crate::coherence::failing::doing::Doing;
use crate::coherence::mailbox::Purpose;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::page::pages_of;
use crate::coherence::types::CoherenceError;
use crate::coherence::updating::page_sets::PageSets;
use crate::wind::{Body, Class};
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
    declared: PageSets,
}

impl Feeds {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.feeds.retain(|(other, _), _| *other != array);
        self.declared.forget(array);
    }

    /// Records an update of these pages. Returns `true` if one of its pages is to be probed.
    pub fn feed(&mut self, array: ArrayId, range: Range<u64>, base: &mut Base<'_>) -> bool {
        let guarded = base.arrays.is_guarded(array);
        let new = Feed { end: range.end, is_used: true, unused: 0, updates: 0 };
        let feed = self.feeds.entry((array, range.start)).or_insert(new);
        feed.end = feed.end.max(range.end);
        feed.updates = feed.updates.saturating_add(1);
        let was_used = core::mem::take(&mut feed.is_used);
        feed.unused = if was_used { 0 } else { feed.unused.saturating_add(1) };
        let (unused, end) = (feed.unused, feed.end);
        let is_probe = !guarded && feed.updates.is_multiple_of(PROBE_EVERY);
        let is_waste = guarded && !was_used;
        base.statistics.updates_wasted += u64::from(is_waste);
        if let Some(known) = base.arrays.get_mut(array) {
            known.statistics.updates_wasted += u64::from(is_waste);
        }
        let is_unwanted = if guarded {
            unused > UNUSED_MAX
        } else {
            // A probe or a notice has made the pages invalid, and nobody has demanded them since.
            !was_used && base.arrays.get(array).is_some_and(|known| known.is_invalid(&range))
        };
        if is_unwanted && !self.declared.contains((array, range.start)) {
            self.feeds.remove(&(array, range.start));
            change_subscription(array, range.start..end, SubscriptionChange::End, base);
        }
        is_probe
    }

    /// Records that a guard of this node touches these pages.
    pub fn used(&mut self, array: ArrayId, range: Range<u64>) {
        let feeds = self.feeds.range_mut(..(array, range.end)).rev();
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
        base: &mut Base<'_>,
    ) -> Result<(), CoherenceError> {
        let doing = || String::from("subscribe");
        let Some(known) = base.arrays.get(array).filter(|known| known.agreed) else {
            return Err(CoherenceError::UnknownArray { doing: doing(), array });
        };
        let range = pages_of(&bytes);
        if bytes.start > bytes.end || range.end > known.pages {
            return Err(known.out_of_range(doing(), &range));
        }
        let change = if wanted { SubscriptionChange::Begin } else { SubscriptionChange::End };
        if wanted {
            self.declared.insert(array, range.clone());
        } else {
            self.declared.remove(array, range.clone());
        }
        change_subscription(array, range, change, base);
        Ok(())
    }
}

impl Feeds {
    /// Tells the new home of pages that this node has subscribed to them by a call (COH-11.6).
    /// Other subscriptions begin again by themselves.
    pub fn subscribe_again(&self, array: ArrayId, moved: &Range<u64>, base: &mut Base<'_>) {
        for pages in self.declared.overlaps(array, moved.clone()) {
            change_subscription(array, pages, SubscriptionChange::Begin, base);
        }
    }
}

/// Tells the homes of these pages that this node wants updates of them, or does not.
fn change_subscription(
    array: ArrayId,
    range: Range<u64>,
    change: SubscriptionChange,
    base: &mut Base<'_>,
) {
    let Some(known) = base.arrays.get(array) else { return };
    let mut runs: Vec<(Rank, Range<u64>)> = Vec::new();
    for page in range {
        let home = known.home(page);
        match runs.last_mut() {
            Some((of, run)) if *of == home => run.end = page + 1,
            _ => runs.push((home, page..page + 1)),
        }
    }
    let me = base.mail.me;
    for (home, run) in runs.into_iter().filter(|(home, _)| *home != me) {
        let head =
            Headline::Subscribe { array, change, first: run.start, count: run.end - run.start };
        // Ordered, so that the last word of this node counts.
        let purpose = Purpose::Control(Doing::Subscribe);
        base.mail.post(home, Class::Ordered, head, Body::Empty, purpose);
    }
}
