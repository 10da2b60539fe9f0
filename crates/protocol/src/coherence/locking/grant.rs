//! Knowledge that an acquirer gets (COH-7.3), and the pages that stay valid by what comes with it
//! (COH-10.17, COH-15.8).

use crate::Rank;
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::locking::written::{Written, named_beside};
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::Pages;
use crate::coherence::pages::page::{PageId, PageState, bytes_of};
use crate::coherence::updating::page_sets::PageSets;
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use alloc::vec::Vec;

/// Knowledge that an acquirer gets, by a lock's grant or from a member of its team.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct AcquireGrant {
    /// Number of collectives that the acquirer must have passed.
    pub epoch: u64,
    pub vector: Vector,
    pub intervals: Vec<Interval>,
    /// Changes under the lock, in order (COH-10.17).
    pub written: Vec<Written>,
}

impl AcquireGrant {
    /// COH-7.3: this node learns everything that happened before a release.
    pub fn learn(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        for interval in core::mem::take(&mut self.intervals) {
            w.base.clock.knowledge.insert(interval);
        }
        acquire(&self.vector, &Brought::Written(&self.written), w, pages);
    }
}

/// How pages of the acquirer get what was written to them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Brought<'a> {
    /// By what intervals wrote under the lock.
    Written(&'a [Written]),
    /// By updates of this notifier, which are all here.
    Updates(Rank),
    /// Not by updates of this notifier.
    Nothing(Rank),
}

/// Learns what a node with this vector clock knew, whose intervals are in the store of this node.
/// Pages that are up to date by what the node has brought stay valid.
pub(crate) fn acquire(
    vector: &Vector,
    brought: &Brought<'_>,
    w: &mut Writes<'_>,
    pages: &mut dyn Pages,
) {
    let (me, epoch, knowledge) = (w.base.mail.me, w.base.clock.epoch, &w.base.clock.knowledge);
    let news = knowledge.between(&knowledge.vector, vector);
    let news = news.filter(|interval| interval.is_news(me, &knowledge.vector));
    let late = Runs::union(news.clone().filter(|one| one.late).map(|one| &one.runs));
    let receiving = &mut w.updates.receiving;
    let mut kept = KeptPages::default();
    let named = match *brought {
        Brought::Written(list) => {
            let (mut named, learnt) = named_beside(news, list, me, (&knowledge.vector, vector));
            if !learnt.is_empty() {
                let others = receiving.pages_beside(|writer, interval| {
                    learnt.iter().any(|one| (one.writer, one.interval) == (writer, interval))
                });
                kept = KeptPages::choose(learnt, &mut named, &others, w);
            }
            named
        }
        Brought::Updates(notifier) => {
            w.updates.sending.forget_known_to(notifier, vector.get(me));
            let named = Runs::named_beside_updates(news, me, notifier);
            let doubtful = receiving.doubtful(vector);
            Runs::union([&named, &doubtful, &receiving.take_probes(epoch)])
        }
        Brought::Nothing(notifier) => {
            w.updates.sending.forget_known_to(notifier, vector.get(me));
            let probes = receiving.take_probes(epoch);
            Runs::union(news.map(|interval| &interval.runs).chain([&probes]))
        }
    };
    if !planted(Bug::SkipInvalidation) {
        w.invalidate(&named, pages);
    }
    kept.bring_up_to_date(w, pages);
    if !planted(Bug::KeepLatePagesPrivate) {
        // A grant may bring the bytes of a late interval to others, beside what this node writes
        // to its homes from now on (COH-3.5).
        late.iter().for_each(|(array, range)| w.share(*array, range.clone(), pages));
    }
    for rank in w.base.mail.others() {
        w.base.clock.knowledge.vector.raise(rank, vector.get(rank));
    }
    w.updates.receiving.forget_known(&w.base.clock.knowledge.vector);
    if let Brought::Updates(notifier) = *brought {
        w.updates.receiving.end_pushes(notifier, &mut w.base, pages);
    }
}

/// Valid pages that stay valid, because a grant has all that the new intervals wrote to them.
#[derive(Default)]
struct KeptPages<'a> {
    pages: PageSets,
    written: Vec<&'a Written>,
}

impl<'a> KeptPages<'a> {
    /// Adds the other pages of these intervals to the `named` ones. A page is not kept if an update
    /// of another unknown interval has come for it (`others`), because that may be the later one.
    fn choose(
        written: Vec<&'a Written>,
        named: &mut Runs,
        others: &PageSets,
        w: &Writes<'_>,
    ) -> KeptPages<'a> {
        let invalid = PageSets::of_runs(named);
        let is_kept = |id: &PageId| {
            let state = w.base.arrays.get(id.0).map(|array| array.state(id.1));
            let is_valid = matches!(state, Some(PageState::Read | PageState::Write));
            is_valid && (!others.contains(*id) || planted(Bug::ApplyBesideUpdates))
        };
        let ids = written.iter().flat_map(|one| one.changes.iter().map(|(id, _)| *id));
        let (mut kept, mut lost) = (PageSets::default(), PageSets::default());
        for id in ids.filter(|id| !invalid.contains(*id)) {
            let set = if is_kept(&id) { &mut kept } else { &mut lost };
            set.insert(id.0, id.1..id.1 + 1);
        }
        *named = Runs::union([&*named, &lost.runs()]);
        KeptPages { pages: kept, written }
    }

    /// Applies what the intervals wrote, in their order.
    fn bring_up_to_date(self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        w.base.statistics.granted_pages += self.pages.runs().pages();
        let mut written = self.written;
        if planted(Bug::ReorderWritten) {
            written.reverse();
        }
        let changes = written.iter().flat_map(|one| &one.changes);
        for (id, diff) in changes.filter(|(id, _)| self.pages.contains(*id)) {
            // The diff has been checked.
            let _ = diff::decode(diff, |page, at, bytes| {
                w.base.arrays.apply_change(id.0, bytes_of(page).start + at as u64, bytes, pages);
                Ok(())
            });
        }
    }
}
