//! Parts by which writes of this node reach other nodes, and the other way round.

use crate::coherence::base::Base;
use crate::coherence::clock::notices::Runs;
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::{AfterRelease, Releasing};
use crate::coherence::updating::updates::Updates;

/// Releases and updates, and the parts below them. Fetches, locks and collectives work with these.
pub(crate) struct Writes<'c> {
    pub releasing: &'c mut Releasing,
    pub updates: &'c mut Updates,
    pub base: Base<'c>,
}

impl Writes<'_> {
    /// Begins a release, as [`Releasing::begin`] does.
    pub fn release(&mut self, then: AfterRelease, pages: &mut dyn Pages) {
        self.releasing.begin(then, self.updates, &mut self.base, pages);
    }

    /// Invalidates pages, as [`Releasing::invalidate`] does.
    pub fn invalidate(&mut self, runs: &Runs, pages: &mut dyn Pages) {
        self.releasing.invalidate(runs, self.updates, &mut self.base, pages);
    }
}
