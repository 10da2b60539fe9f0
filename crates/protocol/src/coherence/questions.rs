//! Questions about long waits (COH-13). They detect a request that was acknowledged and is not
//! known, and an answer that got lost.
//!
//! An acknowledgement says that a datagram came, and a checksum that no accident damaged it. A
//! datagram that was forged on the way can pass for either. A node that waits for an answer
//! therefore asks periodically whether the answer is still owed.

use crate::Rank;
use crate::coherence::Coherence;
use crate::coherence::codec::{Headline, Wait};
use crate::coherence::failure::Doing;
use crate::coherence::mailbox::{Posted, Purpose};
use crate::coherence::types::CoherenceEvent;
use crate::limits::VAIN_QUESTIONS_MAX;
use crate::time::{Rounds, Time};
use crate::wind::{Class, Nonsense, Refusal};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

/// Questions about the waits of this node for others.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Questions {
    /// Rounds of questions, while this node waits for anything.
    rounds: Rounds,
    asked: BTreeMap<(Rank, Wait), OpenQuestion>,
}

/// One wait, and the questions about it.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct OpenQuestion {
    /// Token number of the latest question.
    posted: Option<u64>,
    /// Number of consecutive questions to which the other node did not confirm that it owes an
    /// answer.
    vain: u32,
}

impl Coherence {
    /// Asks about waits that have lasted for `every` (COH-13.1). Call it again at
    /// [`Self::next_question`].
    pub fn ask(&mut self, now: Time, every: Duration) {
        let waits = self.may_wait();
        if !waits {
            self.questions.asked.clear();
        }
        if self.questions.rounds.is_due(waits, now, every) {
            self.ask_about_all();
        }
        self.report_incomplete(now, every);
    }

    /// Returns the time at which [`Self::ask`] has something to do, if ever.
    #[must_use]
    pub fn next_question(&self) -> Option<Time> {
        let (questions, reports) = (self.questions.rounds.next, self.gather.reports.next);
        questions.into_iter().chain(reports).min()
    }

    /// Returns `false` if this node waits for nothing. It is cheap because each turn calls it.
    fn may_wait(&self) -> bool {
        let waits = self.collective.current.is_some()
            || !self.locks.requests.is_empty()
            || !self.fetches.runs.is_empty()
            || self.targets.waiting().next().is_some()
            || self.managed.has_waiting();
        waits && !self.left && self.dead.len() + 1 < self.nodes as usize
    }

    /// Returns everything that another living node owes to this one.
    fn waits(&self) -> BTreeSet<(Rank, Wait)> {
        let collective = self.waits_for_collective();
        let locks = self
            .locks
            .waiting()
            .map(|(lock, request)| (self.manager(lock), Wait::Lock { lock, request }));
        let pages = self.fetches.runs.iter().map(|(id, run)| (run.home, Wait::Pages { id: *id }));
        let holders = self
            .managed
            .holders_waited_for()
            .map(|(rank, lock, request)| (rank, Wait::Holder { lock, request }));
        let updates = self
            .writers_waited_for()
            .into_iter()
            .map(|writer| (writer, Wait::Updates { epoch: self.epoch }));
        let targets = self.targets.waiting().map(|(home, id)| (home, Wait::Target { id }));
        let all = collective.into_iter().chain(locks).chain(pages).chain(holders).chain(updates);
        let all = all.chain(targets);
        all.filter(|(rank, _)| *rank != self.me && !self.dead.contains(rank)).collect()
    }

    /// Returns the node that owes an arrival or a departure to this one. A node asks its parent
    /// about the departure once it has told an arrival. In a pair, each node asks the other one.
    fn waits_for_collective(&self) -> Option<(Rank, Wait)> {
        let current = self.collective.current.as_ref()?;
        let (epoch, place) = (self.epoch, &self.gather.place);
        let told = if place.is_pair { 1 } else { self.gather.told(epoch) as u64 };
        let waits = current.arrived && current.departure.is_none() && told > 0;
        place.asked().filter(|_| waits).map(|asked| (asked, Wait::Collective { epoch, told }))
    }

    fn ask_about_all(&mut self) {
        let waits = self.waits();
        self.questions.asked.retain(|wait, _| waits.contains(wait));
        for (rank, wait) in waits {
            let number = self.next_token;
            let Some(asked) = self.questions.asked.get_mut(&(rank, wait)) else {
                // The wait has not lasted yet.
                self.questions.asked.insert((rank, wait), OpenQuestion::default());
                continue;
            };
            // Wind watches over a question that is on its way (WIND-7.6).
            if asked.posted.is_some_and(|posted| self.posted.contains_key(&posted)) {
                continue;
            }
            if asked.vain == VAIN_QUESTIONS_MAX {
                self.contradicts(rank, Nonsense::Forgotten);
                continue;
            }
            asked.vain += 1;
            asked.posted = Some(number);
            // The class is ordered, so that the question follows the request or unlock that it is
            // about.
            self.post(
                rank,
                Class::Ordered,
                Headline::Question { wait },
                Vec::new(),
                Purpose::Control(Doing::Message),
            );
        }
    }

    /// Reports that another node contradicts what this node knows (COH-8.9).
    pub(crate) fn contradicts(&mut self, rank: Rank, nonsense: Nonsense) {
        self.events.push_back(CoherenceEvent::Contradiction { rank, nonsense });
    }

    /// Takes a question of another node.
    pub(crate) fn take_question(&mut self, from: Rank, wait: Wait) -> Result<(), Refusal> {
        let is_mine = match wait {
            Wait::Collective { .. } => self.gather.place.told_by(from).is_some(),
            Wait::Lock { lock, .. } => self.manager(lock) == self.me,
            Wait::Pages { .. } | Wait::Updates { .. } | Wait::Target { .. } => true,
            Wait::Holder { lock, .. } => self.manager(lock) == from,
        };
        if !is_mine {
            return Err(Refusal::Malformed);
        }
        self.owe(from, 1)?;
        let head = Headline::Reply { wait, owed: self.owes_to(from, wait) };
        self.post(from, Class::Unordered, head, Vec::new(), Purpose::Reply);
        Ok(())
    }

    /// Returns `true` if this node owes that answer, or the answer is on its way (COH-13.2).
    fn owes_to(&self, to: Rank, wait: Wait) -> bool {
        let known = match wait {
            Wait::Collective { epoch, told } => self.owes_collective(to, epoch, told),
            Wait::Lock { lock, request } => self.managed.is_queued(to, lock, request),
            Wait::Pages { .. } | Wait::Updates { .. } | Wait::Target { .. } => false,
            Wait::Holder { lock, request } => {
                self.locks.knows(lock, request) || self.releases.will_unlock(lock, request)
            }
        };
        let answers = |purpose: &Purpose| match (wait, purpose) {
            (Wait::Collective { .. }, Purpose::LastDeparture) => true,
            (
                Wait::Collective { epoch, .. },
                Purpose::Arrival { epoch: told, .. } | Purpose::Departure { epoch: told, .. },
            ) => epoch == *told,
            (Wait::Lock { lock, .. }, Purpose::Grant(granted)) => lock == *granted,
            (Wait::Pages { .. }, Purpose::Pages(_)) => true,
            (Wait::Updates { .. }, Purpose::Update(_)) => true,
            (Wait::Target { .. }, Purpose::Answer) => true,
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

    /// Returns `true` if the end of a collective waits for something else than this node's answer.
    fn owes_collective(&self, to: Rank, epoch: u64, told: u64) -> bool {
        let arrivals = self.gather.known_of(to, epoch) as u64;
        if !self.gather.place.is_pair {
            return told > 0 && arrivals >= told;
        }
        // The other node is at most one collective ahead. This node owes its arrival until it has
        // arrived.
        let current = self.collective.current.as_ref();
        let has_arrived = current.is_some_and(|current| current.arrived);
        epoch == self.epoch.saturating_add(1) || (epoch == self.epoch && !has_arrived)
    }

    /// Takes a reply of another node.
    pub(crate) fn take_reply(&mut self, from: Rank, wait: Wait, owed: bool) {
        // A wait that this node no longer has was answered meanwhile.
        if let Some(asked) = self.questions.asked.get_mut(&(from, wait)).filter(|_| owed) {
            asked.vain = 0;
        }
    }
}
