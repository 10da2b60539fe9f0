//! Locks, barriers of teams, and notifications on one node.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::locking::lock::Locks;
use crate::coherence::locking::lock_manager::Managed;
use crate::coherence::locking::notifications::Notifications;
use crate::coherence::locking::team::TeamAcquires;
use crate::coherence::pages::machine::Pages;
use crate::coherence::writes::Writes;
use crate::wind::Token;

/// State of locks on one node: those that it uses, those that it manages, acquires of
/// teams, and notifications.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Locking {
    pub locks: Locks,
    pub managed: Managed,
    pub teams: TeamAcquires,
    pub notifications: Notifications,
}

impl Locking {
    pub fn new(nodes: u32) -> Locking {
        Locking {
            locks: Locks::default(),
            managed: Managed::new(nodes),
            teams: TeamAcquires::default(),
            notifications: Notifications::default(),
        }
    }

    /// Called when nobody waits for this operation any longer.
    pub fn cancel(&mut self, token: Token, base: &mut Base<'_>) {
        self.locks.cancel(token, base);
        self.teams.cancel(token);
        self.notifications.cancel(token);
    }

    /// Takes the grants and the acquires whose epoch this node has reached.
    pub fn take_ready(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        self.locks.take_deferred_grants(&mut self.managed.written, w, pages);
        self.teams.take_ready(w, pages);
    }

    /// Fails requests and breaks locks that a dead node managed, held or waited for.
    pub fn fail_by_death(&mut self, rank: Rank, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        self.locks.fail_managed_by(rank, w.base.mail);
        self.take_ready(w, pages);
        self.managed.free_from(rank, &mut w.base);
    }
}
