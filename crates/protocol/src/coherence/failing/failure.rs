//! Handling of nodes that are dead or send nonsense (COH-8). Nobody waits for ever, and every error
//! is reported.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::array::{PageId, PageState};
use crate::coherence::codec::Headline;
use crate::coherence::machine::{Access, Pages};
use crate::coherence::mailbox::{Posted, Purpose};
use crate::coherence::types::CoherenceError;
use crate::limits::PAGE;
use crate::wind::{Body, Charge, Class, Message, Nonsense, Refusal, Token};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Operation that was being tried, for messages to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Doing {
    Barrier,
    TeamBarrier,
    Reduce,
    Declare(String),
    Free(String),
    Leave,
    Lock(u64),
    Unlock(u64),
    Diff,
    Fetch,
    Update,
    Subscribe,
    Target,
    Message,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doing::Barrier => f.write_str("barrier"),
            Doing::TeamBarrier => f.write_str("team barrier or notification"),
            Doing::Reduce => f.write_str("reduce"),
            Doing::Declare(name) => write!(f, "declare array \"{name}\""),
            Doing::Free(name) => write!(f, "free array \"{name}\""),
            Doing::Leave => f.write_str("leave"),
            Doing::Lock(lock) => write!(f, "lock {lock}"),
            Doing::Unlock(lock) => write!(f, "unlock {lock}"),
            Doing::Diff => f.write_str("bring written pages home"),
            Doing::Fetch => f.write_str("fetch pages"),
            Doing::Update => f.write_str("send updates of written pages"),
            Doing::Subscribe => f.write_str("subscribe to updates"),
            Doing::Target => f.write_str("read elements at their home"),
            Doing::Message => f.write_str("read a message of shared memory"),
        }
    }
}

/// First page that was read with old bytes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Lost {
    page: PageId,
    home: Rank,
}

impl Coherence {
    /// Returns why a synchronisation cannot succeed any more, whatever nodes it needs.
    fn impediment(&self, doing: &Doing) -> Option<CoherenceError> {
        let doing = doing.to_string();
        if self.left {
            return Some(CoherenceError::Left { doing });
        }
        if let Some(broken) = &self.broken {
            return Some(broken.clone());
        }
        if let Some(lost) = &self.lost_page {
            let array =
                self.arrays.get(lost.page.0).map(|array| array.name.clone()).unwrap_or_default();
            return Some(CoherenceError::PageLost {
                doing,
                array,
                page: lost.page.1,
                rank: lost.home,
            });
        }
        None
    }

    /// Returns why a collective, which needs every node, cannot succeed.
    pub(crate) fn collective_impediment(&self, doing: &Doing) -> Option<CoherenceError> {
        let dead = || {
            self.dead
                .first()
                .map(|rank| CoherenceError::NodeDead { doing: doing.to_string(), rank: *rank })
        };
        self.impediment(doing).or_else(dead)
    }

    /// Returns why this lock cannot be acquired or given back.
    pub(crate) fn lock_impediment(&self, doing: Doing, lock: u64) -> Option<CoherenceError> {
        let manager = self.manager(lock);
        let dead = || self.lost_diff.or_else(|| self.dead.contains(&manager).then_some(manager));
        let hopeless =
            || dead().map(|rank| CoherenceError::NodeDead { doing: doing.to_string(), rank });
        self.impediment(&doing).or_else(hopeless)
    }

    /// Gives up a page that cannot be fetched. The thread goes on with its last bytes, and the next
    /// synchronisation reports that (COH-8.3).
    pub(crate) fn lose_page(
        &mut self,
        id: PageId,
        home: Rank,
        access: Access,
        pages: &mut dyn Pages,
    ) {
        self.lost_page.get_or_insert(Lost { page: id, home });
        pages.lost(id.0, id.1, home);
        if let Some(array) = self.arrays.get_mut(id.0) {
            array.set(id.1, PageState::Read);
        }
        // The page may never have been here, and a page that was never written through the alias
        // cannot be mapped.
        let mut last = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut last);
        pages.write(id.0, id.1 * PAGE as u64, &last);
        if access == Access::Write {
            self.make_twin(id, pages);
        }
        pages.install(id.0, id.1..id.1 + 1, access);
    }

    /// Marks a node that this node has found dead, and tells all other nodes, which may not be in
    /// contact with it (COH-8.1).
    pub(crate) fn report_death(&mut self, rank: Rank, pages: &mut dyn Pages) {
        if rank >= self.nodes || rank == self.me {
            return;
        }
        if !self.left && !self.dead.contains(&rank) {
            let me = self.me;
            for other in (0..self.nodes).filter(|other| *other != me && *other != rank) {
                self.post(
                    other,
                    Class::Unordered,
                    Headline::Died { rank },
                    Vec::new(),
                    Purpose::Control(Doing::Message),
                );
            }
        }
        self.mark_failed(rank, pages);
    }

    /// Ends everything that waits for a dead node (COH-8.2).
    pub(crate) fn mark_failed(&mut self, rank: Rank, pages: &mut dyn Pages) {
        let gone: Vec<u64> = self
            .posted
            .iter()
            .filter(|(_, posted)| posted.to == rank)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some(Posted { purpose: Purpose::Diff, .. }) = self.posted.remove(&number) {
                self.releases.settled(number, rank);
                self.lost_diff.get_or_insert(rank);
            }
        }
        self.end_leaving();
        if self.left || self.dead.contains(&rank) {
            return;
        }
        self.dead.push(rank);
        self.out.retain(|(to, _)| *to != rank);
        // Perhaps only other nodes have lost it. Tell it, so that it does not wait for answers that
        // will not come.
        self.post_to_dead(rank, Class::Unordered, Headline::Died { rank });
        self.notify_dead_of_leaving(rank);
        let runs: Vec<u64> = self
            .fetches
            .runs
            .iter()
            .filter(|(_, run)| run.home == rank)
            .map(|(number, _)| *number)
            .collect();
        for number in runs {
            self.give_up_run(number, pages);
        }
        let doing = Doing::Target.to_string();
        self.fail_targets(&CoherenceError::NodeDead { doing, rank }, Some(rank));
        self.collective_death(rank);
        self.gather_death();
        self.lock_death(rank, pages);
    }

    /// Posts a message without a body to a node that counts as dead here. No layer
    /// learns the outcome.
    pub(crate) fn post_to_dead(&mut self, dead: Rank, class: Class, head: Headline) {
        let (head, body, token) = (head.write(), Body::Empty, Token::NONE);
        self.out.push_back((
            dead,
            Message { class, urgent: false, charge: Charge::Nothing, head, body, token },
        ));
    }

    /// Called when a message was refused, or a message to this node itself made no sense. Shared
    /// memory cannot go on. Every pending and later synchronisation of this node fails, and takes
    /// part in collectives only to make them fail everywhere (COH-8.4).
    pub(crate) fn break_down(
        &mut self,
        doing: Doing,
        rank: Rank,
        refusal: Refusal,
        pages: &mut dyn Pages,
    ) {
        self.break_with(CoherenceError::Refused { doing: doing.to_string(), rank, refusal }, pages);
    }

    /// Breaks shared memory on this node if the machine could not make a change (COH-8.5).
    pub(crate) fn look_at_machine(&mut self, pages: &mut dyn Pages) {
        if self.broken.is_none()
            && let Some(why) = pages.failure()
        {
            let error = CoherenceError::Machine(why.into());
            self.break_with(error, pages);
        }
    }

    fn break_with(&mut self, error: CoherenceError, pages: &mut dyn Pages) {
        if self.left || self.broken.is_some() {
            return;
        }
        self.broken = Some(error.clone());
        self.fail_collectives(&error);
        self.fail_locks(&error, pages);
        self.fail_targets(&error, None);
    }

    /// Called when a message of this node is settled.
    pub(crate) fn message_settled(&mut self, number: u64) {
        if let Some(Posted { to, purpose }) = self.posted.remove(&number) {
            match purpose {
                Purpose::Diff => self.releases.settled(number, to),
                Purpose::LastDeparture => self.end_leaving(),
                Purpose::Pages(_) | Purpose::Grant(_) | Purpose::Reply | Purpose::Answer => {
                    self.answered(to)
                }
                Purpose::Fetch { .. }
                | Purpose::Arrival { .. }
                | Purpose::Update(_)
                | Purpose::Departure { .. }
                | Purpose::Control(_) => {}
            }
        }
    }

    /// Called when a message of this node was refused.
    pub(crate) fn message_refused(&mut self, number: u64, refusal: Refusal, pages: &mut dyn Pages) {
        let Some(Posted { to, purpose }) = self.posted.remove(&number) else { return };
        if matches!(refusal, Refusal::Malformed | Refusal::UnknownObject)
            && !matches!(purpose, Purpose::Pages(_))
        {
            self.contradicts(to, Nonsense::RefusedShared { refusal });
        }
        match purpose {
            Purpose::Diff => {
                self.releases.settled(number, to);
                self.break_down(Doing::Diff, to, refusal, pages);
            }
            Purpose::Fetch { first, end } => {
                (first..end).for_each(|run| self.give_up_run(run, pages));
                self.break_down(Doing::Fetch, to, refusal, pages);
            }
            Purpose::LastDeparture => self.end_leaving(),
            Purpose::Update(_) => self.break_down(Doing::Update, to, refusal, pages),
            Purpose::Pages(_) | Purpose::Reply | Purpose::Answer => self.answered(to),
            Purpose::Grant(lock) => {
                self.answered(to);
                self.break_down(Doing::Lock(lock), to, refusal, pages);
            }
            Purpose::Arrival { doing, says_why, epoch, ranks } => {
                self.break_down(doing, to, refusal, pages);
                self.arrival_refused(to, epoch, ranks, says_why);
            }
            Purpose::Departure { doing, .. } | Purpose::Control(doing) => {
                self.break_down(doing, to, refusal, pages)
            }
        }
    }
}
