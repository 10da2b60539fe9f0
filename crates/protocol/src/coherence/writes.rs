//! Parts by which writes of this node reach other nodes, and the other way round.

use crate::coherence::base::Base;
use crate::coherence::clock::notices::Runs;
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::{AfterRelease, Releasing};
use crate::coherence::updating::updates::Updates;
use crate::planted::{Bug, planted};

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
}
