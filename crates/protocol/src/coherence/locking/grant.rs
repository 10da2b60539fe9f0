//! Knowledge that an acquirer gets (COH-7.3).

use crate::Rank;
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::pages::machine::Pages;
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
}

impl AcquireGrant {
    /// COH-7.3: this node learns everything that happened before a release.
    pub fn learn(self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let me = w.base.mail.me;
        let runs = Runs::union(self.news(me, &w.base.clock.knowledge.vector).map(|i| &i.runs));
        for interval in self.intervals {
            w.base.clock.knowledge.insert(interval);
        }
        apply(&self.vector, &runs, w, pages);
    }

    /// Returns the intervals of other nodes that this node does not know.
    fn news<'a>(
        &'a self,
        me: Rank,
        known: &'a Vector,
    ) -> impl Iterator<Item = &'a Interval> + Clone {
        self.intervals.iter().filter(move |interval| interval.is_news(me, known))
    }
}

/// Learns what a notifier knew, whose intervals are in the store of this node. If all its updates
/// are here, pages that they have brought stay valid (COH-15.8).
pub(crate) fn learn_from_notifier(
    vector: &Vector,
    notifier: Rank,
    are_updates_here: bool,
    w: &mut Writes<'_>,
    pages: &mut dyn Pages,
) {
    let (me, knowledge) = (w.base.mail.me, &w.base.clock.knowledge);
    w.updates.sending.forget_known_to(notifier, vector.get(me));
    let news = knowledge.between(&knowledge.vector, vector);
    let news = news.filter(|interval| interval.is_news(me, &knowledge.vector));
    let receiving = &mut w.updates.receiving;
    let probes = receiving.take_probes(w.base.clock.epoch);
    if !are_updates_here {
        let runs = Runs::union(news.map(|interval| &interval.runs).chain([&probes]));
        return apply(vector, &runs, w, pages);
    }
    let named = Runs::named_beside_updates(news, me, notifier);
    let doubtful = receiving.doubtful(vector);
    apply(vector, &Runs::union([&named, &doubtful, &probes]), w, pages);
    w.updates.receiving.end_pushes(notifier, &mut w.base, pages);
}

/// Invalidates these pages, and raises this node's knowledge.
fn apply(vector: &Vector, named: &Runs, w: &mut Writes<'_>, pages: &mut dyn Pages) {
    if !planted(Bug::SkipInvalidation) {
        w.invalidate(named, pages);
    }
    for rank in w.base.mail.others() {
        w.base.clock.knowledge.vector.raise(rank, vector.get(rank));
    }
    w.updates.receiving.forget_known(&w.base.clock.knowledge.vector);
}
