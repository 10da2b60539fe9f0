//! Questions about waits that last (COH-13): a request that was acknowledged and is not known, or
//! whose answer got lost, is found out.
//!
//! An acknowledgement says that a datagram came, and a checksum that nothing was damaged by
//! accident. A datagram that was forged on the way can pass for either. Who waits for an answer
//! therefore asks now and then whether it is still owed.

use super::codec::{Headline, Wait};
use super::failure::Doing;
use super::post::{Posted, Purpose};
use super::{Coherence, CoherenceEvent};
use crate::Rank;
use crate::limits::VAIN_QUESTIONS_MAX;
use crate::time::Time;
use crate::wind::{Class, Nonsense, Refusal};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

/// Waits of this node for others.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Time of the next round of questions, while this node waits for anything.
    next: Option<Time>,
    asked: BTreeMap<(Rank, Wait), Asked>,
}

/// One wait, and the questions about it.
#[derive(Debug, Default)]
struct Asked {
    /// Number of the latest question.
    posted: Option<u64>,
    /// Questions in a row after which the other node did not say that it owes an answer.
    vain: u32,
}

impl Coherence {
    /// Asks about waits that have lasted for `every` (COH-13.1). Call it again at
    /// [`Self::next_question`].
    pub fn ask(&mut self, now: Time, every: Duration) {
        if !self.may_wait() {
            if self.questions.next.take().is_some() {
                self.questions.asked.clear();
            }
            return;
        }
        match self.questions.next {
            Some(next) if next > now => {}
            Some(_) => {
                self.questions.next = Some(now + every);
                self.ask_about_all();
            }
            None => self.questions.next = Some(now + every),
        }
    }

    /// Time at which [`Self::ask`] has something to do, if ever.
    #[must_use]
    pub fn next_question(&self) -> Option<Time> {
        self.questions.next
    }

    /// Cheap, as each turn asks it; false where nothing is waited for.
    fn may_wait(&self) -> bool {
        let waits = self.collective.current.is_some()
            || !self.locks.requests.is_empty()
            || !self.fetches.runs.is_empty()
            || self.managed.has_waiting();
        waits && !self.left && self.dead.len() + 1 < self.nodes as usize
    }

    /// Everything that another living node owes to this one.
    fn waits(&self) -> BTreeSet<(Rank, Wait)> {
        let collective = self.collective.current.as_ref().filter(|current| current.arrived);
        let collective = collective.map(|_| (0, Wait::Collective { epoch: self.epoch }));
        let locks = self
            .locks
            .waiting()
            .map(|(lock, request)| (self.manager(lock), Wait::Lock { lock, request }));
        let pages = self.fetches.runs.iter().map(|(id, run)| (run.home, Wait::Pages { id: *id }));
        let holders = self
            .managed
            .holders_waited_for()
            .map(|(rank, lock, request)| (rank, Wait::Holder { lock, request }));
        let all = collective.into_iter().chain(locks).chain(pages).chain(holders);
        all.filter(|(rank, _)| *rank != self.me && !self.dead.contains(rank)).collect()
    }

    fn ask_about_all(&mut self) {
        let waits = self.waits();
        self.questions.asked.retain(|wait, _| waits.contains(wait));
        for (rank, wait) in waits {
            let number = self.next_token;
            let Some(asked) = self.questions.asked.get_mut(&(rank, wait)) else {
                // It has not lasted yet.
                self.questions.asked.insert((rank, wait), Asked::default());
                continue;
            };
            // What is on its way is watched over by Wind (WIND-7.6).
            if asked.posted.is_some_and(|posted| self.posted.contains_key(&posted)) {
                continue;
            }
            if asked.vain == VAIN_QUESTIONS_MAX {
                self.contradicts(rank, Nonsense::Forgotten);
                continue;
            }
            asked.vain += 1;
            asked.posted = Some(number);
            // Ordered: behind the request, or the unlock, that it is about.
            self.post(
                rank,
                Class::Ordered,
                Headline::Question { wait },
                Vec::new(),
                Purpose::Control(Doing::Message),
            );
        }
    }

    /// What this node believes of another contradicts what that one believes (COH-8.9).
    pub(super) fn contradicts(&mut self, rank: Rank, nonsense: Nonsense) {
        self.events.push_back(CoherenceEvent::Contradiction { rank, nonsense });
    }

    /// Another node asks.
    pub(super) fn take_question(&mut self, from: Rank, wait: Wait) -> Result<(), Refusal> {
        let is_mine = match wait {
            Wait::Collective { .. } => self.me == 0,
            Wait::Lock { lock, .. } => self.manager(lock) == self.me,
            Wait::Pages { .. } => true,
            Wait::Holder { lock, .. } => self.manager(lock) == from,
        };
        if !is_mine {
            return Err(Refusal::Malformed);
        }
        self.owe(from)?;
        let head = Headline::Reply { wait, owed: self.owes_to(from, wait) };
        self.post(from, Class::Unordered, head, Vec::new(), Purpose::Reply);
        Ok(())
    }

    /// Does this node owe that, or is it on its way (COH-13.2)?
    fn owes_to(&self, to: Rank, wait: Wait) -> bool {
        let known = match wait {
            Wait::Collective { epoch } => self.is_gathered(to, epoch),
            Wait::Lock { lock, request } => self.managed.is_queued(to, lock, request),
            Wait::Pages { .. } => false,
            Wait::Holder { lock, request } => {
                self.locks.knows(lock, request) || self.releases.will_unlock(lock, request)
            }
        };
        let answers = |purpose: &Purpose| match (wait, purpose) {
            (
                Wait::Collective { .. },
                Purpose::LastDeparture | Purpose::Control(Doing::Barrier | Doing::Reduce),
            ) => true,
            (Wait::Collective { .. }, Purpose::Control(Doing::Declare(_) | Doing::Leave)) => true,
            (Wait::Lock { lock, .. }, Purpose::Grant(granted)) => lock == *granted,
            (Wait::Pages { .. }, Purpose::Pages) => true,
            (Wait::Holder { lock, .. }, Purpose::Control(Doing::Unlock(unlocked))) => {
                lock == *unlocked
            }
            _ => false,
        };
        known
            || self
                .posted
                .values()
                .any(|Posted { to: rank, purpose }| *rank == to && answers(purpose))
    }

    /// Another node replies.
    pub(super) fn take_reply(&mut self, from: Rank, wait: Wait, owed: bool) {
        // What this node does not wait for any more was answered meanwhile.
        if let Some(asked) = self.questions.asked.get_mut(&(from, wait)).filter(|_| owed) {
            asked.vain = 0;
        }
    }
}
