//! Knowledge that an acquirer gets (COH-7.3).

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
        let vector = &w.base.clock.knowledge.vector;
        let me = w.base.mail.me;
        let news =
            self.intervals.iter().filter(|i| i.writer != me && i.last > vector.get(i.writer));
        let runs = Runs::union(news.map(|interval| &interval.runs));
        if !planted(Bug::SkipInvalidation) {
            w.invalidate(&runs, pages);
        }
        for interval in self.intervals {
            w.base.clock.knowledge.insert(interval);
        }
        for rank in w.base.mail.others() {
            w.base.clock.knowledge.vector.raise(rank, self.vector.get(rank));
        }
    }
}
