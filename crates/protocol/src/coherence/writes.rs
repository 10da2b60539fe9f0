//! Parts by which writes of this node reach other nodes, and the other way round.

use crate::coherence::base::Base;
use crate::coherence::clock::notices::Runs;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::page::ranges;
use crate::coherence::releasing::release::{AfterRelease, Releasing};
use crate::coherence::updating::updates::Updates;
use crate::planted::{Bug, planted};
use core::ops::Range;

/// Releases and updates, and the parts below them. Fetches, locks and collectives work with these.
pub(crate) struct Writes<'c> {
    pub releasing: &'c mut Releasing,
    pub updates: &'c mut Updates,
    pub base: Base<'c>,
}

impl Writes<'_> {
    /// Begins a release, as [`Releasing::begin`] does, when no home may move (COH-11.3).
    pub fn release(&mut self, then: AfterRelease, pages: &mut dyn Pages) {
        let is_round = then == AfterRelease::Arrive || planted(Bug::ReleaseWhileHomesMove);
        if self.base.clock.moves_homes && !is_round {
            return self.releasing.defer(then);
        }
        self.releasing.begin(then, self.updates, &mut self.base, pages);
    }

    /// Invalidates pages, as [`Releasing::invalidate`] does.
    pub fn invalidate(&mut self, runs: &Runs, pages: &mut dyn Pages) {
        self.releasing.invalidate(runs, self.updates, &mut self.base, pages);
    }

    /// Counts these pages as shared if they are homed here. Later writes of this node become a
    /// notice (COH-3.5).
    pub fn share(&mut self, id: ArrayId, range: Range<u64>, pages: &mut dyn Pages) {
        let Writes { releasing, base, .. } = self;
        let Some(array) = base.arrays.get_mut(id) else { return };
        let protected = array.share(range.clone());
        if array.guarded {
            // Nothing traps here. A guard that is alive goes on writing.
            let range = if releasing.guards.has_live_of(id) { range } else { 0..0 };
            range.for_each(|page| releasing.guards.write_if_live((id, page), base.arrays, pages));
            return;
        }
        for (array, range) in ranges(protected.into_iter().map(|page| (id, page))) {
            pages.set_access(array, range, Access::Read);
        }
    }
}
