//! Order of the parts of coherence: each call and each message goes to one part, and what became
//! possible by it is continued.

pub(crate) mod calls;
pub(crate) mod messages;

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::epoch::Clock;
use crate::coherence::failing::doing::Doing;
use crate::coherence::failing::failure::Failing;
use crate::coherence::fetching::runs::Fetches;
use crate::coherence::fetching::targets::Targets;
use crate::coherence::gathering::state::Collectives;
use crate::coherence::locking::state::Locking;
use crate::coherence::locking::team::report_to_team;
use crate::coherence::mailbox::Mailbox;
use crate::coherence::pages::machine::Pages;
use crate::coherence::pages::table::Arrays;
use crate::coherence::questions::{Questions, Waits};
use crate::coherence::releasing::release::{AfterRelease, Release, Releasing};
use crate::coherence::statistics::CoherenceStatistics;
use crate::coherence::types::CoherenceError;
use crate::coherence::updating::updates::Updates;
use crate::coherence::writes::Writes;
use alloc::string::ToString;

/// One node's view of all shared arrays, its part in locks and collectives, and its duties as a
/// home and as a manager. Each field is a part with methods of its own.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Coherence {
    pub(crate) mail: Mailbox,
    pub(crate) clock: Clock,
    pub(crate) arrays: Arrays,
    pub(crate) failing: Failing,
    pub(crate) statistics: CoherenceStatistics,
    pub(crate) updates: Updates,
    pub(crate) releasing: Releasing,
    pub(crate) fetches: Fetches,
    pub(crate) targets: Targets,
    pub(crate) locking: Locking,
    pub(crate) collectives: Collectives,
    pub(crate) questions: Questions,
}

/// Parts that work with [`Writes`].
struct Callers<'c> {
    fetches: &'c mut Fetches,
    targets: &'c mut Targets,
    locking: &'c mut Locking,
    collectives: &'c mut Collectives,
}

impl Coherence {
    /// Creates the coherence of node `me` in a job of `nodes` nodes.
    #[must_use]
    pub fn new(me: Rank, nodes: u32) -> Self {
        Coherence {
            mail: Mailbox::new(me, nodes),
            clock: Clock::new(me, nodes),
            arrays: Arrays::default(),
            failing: Failing::default(),
            statistics: CoherenceStatistics::default(),
            updates: Updates::default(),
            releasing: Releasing::default(),
            fetches: Fetches::default(),
            targets: Targets::default(),
            locking: Locking::new(nodes),
            collectives: Collectives::new(me, nodes),
            questions: Questions::default(),
        }
    }

    /// Borrows the parts that a call needs.
    #[inline]
    fn parts(&mut self) -> (Callers<'_>, Writes<'_>) {
        let Coherence { mail, clock, arrays, failing, statistics, updates, releasing, .. } = self;
        let base = Base { mail, clock, arrays, failing, statistics };
        let Coherence { fetches, targets, locking, collectives, .. } = self;
        (Callers { fetches, targets, locking, collectives }, Writes { releasing, updates, base })
    }

    /// Borrows the parts that wait for answers, or owe them.
    fn waits(&mut self) -> (Waits<'_>, &mut Questions) {
        let Coherence { mail, clock, arrays, failing, statistics, updates, .. } = self;
        let base = Base { mail, clock, arrays, failing, statistics };
        let receiving = &updates.receiving;
        let Coherence { fetches, targets, locking, collectives, questions, .. } = self;
        let waits = Waits { locking, fetches, targets, collectives, receiving, base };
        (waits, questions)
    }

    /// Continues everything that has become possible. Every call from outside ends with it.
    fn settle(&mut self, pages: &mut dyn Pages) {
        loop {
            self.failing.check_machine(pages);
            self.fail_if_broken();
            if let Some((head, body)) = self.mail.poll_local() {
                if let Err(refusal) = self.handle(self.mail.me, head, body.bytes(), pages) {
                    self.failing.break_down(&Doing::Message, self.mail.me, refusal);
                }
                continue;
            }
            let (up, mut w) = self.parts();
            let goes_on = up.fetches.advance(&mut w, pages)
                || w.updates.receiving.take_header(&mut w.base)
                || up.locking.teams.take_ready(&mut w, pages)
                || up.locking.notifications.advance(&mut w, pages)
                || up.collectives.end(up.locking, up.fetches, &mut w, pages)
                || self.advance_release()
                || self.go_on_after_moves(pages)
                || {
                    let (up, mut w) = self.parts();
                    up.collectives.begin(up.fetches, up.targets, &mut w, pages)
                };
            if !goes_on {
                let knowledge = &self.clock.knowledge;
                (self.statistics.intervals_kept, self.statistics.intervals_forgotten) =
                    knowledge.kept_and_forgotten();
                let mail = &self.mail;
                let is_read = |array| mail.has_posted(|one| one.purpose.reads() == Some(array));
                return self.arrays.end_retired(is_read, pages);
            }
        }
    }

    /// Does what follows the first release if that is finished. Returns `true` if it is.
    fn advance_release(&mut self) -> bool {
        let (up, mut w) = self.parts();
        let locks = &up.locking.locks;
        let Some(release) = w.releasing.advance(&w.base, |lock, request, base| {
            locks.receiver((lock, request), base).map(|next| next.of.rank)
        }) else {
            return false;
        };
        let Release { vector, updates, changes, then, .. } = release;
        match then {
            AfterRelease::Arrive => up.collectives.arrive(vector, &mut w.base),
            AfterRelease::ReportToTeam { token } => report_to_team(token, &vector, &mut w.base),
            AfterRelease::Notify { to, token } => {
                up.locking.notifications.send((to, token), &vector, updates, &mut w.base);
            }
            AfterRelease::Unlock { lock, request, token } => {
                let Locking { locks, managed, .. } = up.locking;
                let (past, lists) = ((vector, changes), &mut managed.written);
                locks.give_back((lock, request), token, past, lists, &mut w.base);
            }
            AfterRelease::FallSilent => up.collectives.announce_silence(&mut w.base),
        }
        true
    }

    /// Begins what was left until homes have moved. Returns `true` if there was anything.
    fn go_on_after_moves(&mut self, pages: &mut dyn Pages) -> bool {
        let (up, mut w) = self.parts();
        if up.collectives.has_lost_moves(&w.base) {
            w.base.clock.moves_homes = false;
            if let Some(dead) = w.base.mail.first_dead() {
                // Others may know of moves of which this node does not hear (COH-11.7).
                w.base.failing.lose_moves(dead);
            }
            up.locking.take_ready(&mut w, pages);
            return true;
        }
        if w.base.clock.moves_homes {
            return false;
        }
        if let Some(then) = w.releasing.take_deferred() {
            w.release(then, pages);
            return true;
        }
        up.fetches.request_moved(&mut w, pages) || up.targets.begin_deferred(&mut w, pages)
    }

    /// Fails everything that waits if shared memory has broken on this node.
    fn fail_if_broken(&mut self) {
        if let Some(error) = self.failing.take_news() {
            let (up, mut w) = self.parts();
            up.collectives.fail(&error, &mut w.base);
            up.locking.locks.fail(&error, &mut w.base);
            up.targets.fail(&error, None, w.base.mail);
        }
    }

    /// Notes that a node is dead. If this node has found that (`reports`), it tells all others.
    fn note_death(&mut self, rank: Rank, reports: bool, pages: &mut dyn Pages) {
        if rank >= self.mail.nodes || rank == self.mail.me {
            return;
        }
        if reports && !self.failing.left && !self.mail.is_dead(rank) {
            self.mail.announce_death(rank);
        }
        if self.mail.forget_posted(rank) {
            self.failing.lose_diff(rank);
        }
        self.collectives.end_leaving(&mut self.mail);
        if !self.failing.left && !self.mail.is_dead(rank) {
            self.mail.count_dead(rank);
            self.fail_by_death(rank, pages);
        }
    }

    /// Ends everything that waits for a dead node (COH-8.2).
    fn fail_by_death(&mut self, rank: Rank, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.collectives.notify_dead_of_leaving(rank, w.base.clock.epoch, w.base.mail);
        up.fetches.give_up_home(rank, &mut w, pages);
        let doing = Doing::Target.to_string();
        up.targets.fail(&CoherenceError::NodeDead { doing, rank }, Some(rank), w.base.mail);
        up.collectives.fail_by_death(rank, &mut w.base);
        up.collectives.gather_death(&mut w.base);
        up.locking.fail_by_death(rank, &mut w, pages);
    }
}
