//! Questions about long waits (COH-13). They detect a request that was acknowledged and is not
//! known, and an answer that got lost.
//!
//! An acknowledgement says that a datagram came, and a checksum that no accident damaged it. A
//! datagram that was forged on the way can pass for either. A node that waits for an answer
//! therefore asks periodically whether the answer is still owed.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::codec::{Headline, Wait};
use crate::coherence::failing::doing::Doing;
use crate::coherence::fetching::runs::Fetches;
use crate::coherence::fetching::targets::Targets;
use crate::coherence::gathering::state::Collectives;
use crate::coherence::locking::lock_manager::LockRequest;
use crate::coherence::locking::state::Locking;
use crate::coherence::mailbox::Purpose;
use crate::coherence::updating::receive::UpdateReceiver;
use crate::limits::VAIN_QUESTIONS_MAX;
use crate::time::{Rounds, Time};
use crate::wind::{Body, Class, Nonsense, Refusal};
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// Questions about the waits of this node for others.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Questions {
    /// Rounds of questions, while this node waits for anything.
    pub rounds: Rounds,
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

/// Parts of this node that wait for answers, or owe them.
pub(crate) struct Waits<'c> {
    pub locking: &'c Locking,
    pub fetches: &'c Fetches,
    pub targets: &'c Targets,
    pub collectives: &'c mut Collectives,
    pub receiving: &'c UpdateReceiver,
    pub base: Base<'c>,
}

impl Questions {
    /// Asks about waits that have lasted for `every` (COH-13.1).
    pub fn ask(&mut self, now: Time, every: Duration, waits: &mut Waits<'_>) {
        let may_wait = waits.may_wait();
        if !may_wait {
            self.asked.clear();
        }
        if self.rounds.is_due(may_wait, now, every) {
            self.ask_about_all(waits);
        }
        waits.collectives.report_incomplete(now, every, &mut waits.base);
    }

    fn ask_about_all(&mut self, waits: &mut Waits<'_>) {
        let all = waits.all();
        let mail = &mut *waits.base.mail;
        self.asked.retain(|wait, _| all.contains(wait));
        for (rank, wait) in all {
            let number = mail.next();
            let Some(asked) = self.asked.get_mut(&(rank, wait)) else {
                // The wait has not lasted yet.
                self.asked.insert((rank, wait), OpenQuestion::default());
                continue;
            };
            // Wind watches over a question that is on its way (WIND-7.6).
            if asked.posted.is_some_and(|posted| mail.posted(posted).is_some()) {
                continue;
            }
            if asked.vain == VAIN_QUESTIONS_MAX {
                mail.contradict(rank, Nonsense::Forgotten);
                continue;
            }
            asked.vain += 1;
            asked.posted = Some(number);
            // The class is ordered, so that the question follows the request or unlock that it is
            // about.
            let (head, purpose) = (Headline::Question { wait }, Purpose::Control(Doing::Message));
            mail.post(rank, Class::Ordered, head, Body::Empty, purpose);
        }
    }

    /// Takes a reply of another node.
    pub fn take_reply(&mut self, from: Rank, wait: Wait, owed: bool) {
        // A wait that this node no longer has was answered meanwhile.
        if let Some(asked) = self.asked.get_mut(&(from, wait)).filter(|_| owed) {
            asked.vain = 0;
        }
    }
}

impl Waits<'_> {
    /// Returns `false` if this node waits for nothing. It is cheap because each turn calls it.
    fn may_wait(&self) -> bool {
        let waits = self.collectives.current.is_some()
            || self.locking.locks.waiting().next().is_some()
            || !self.fetches.runs.is_empty()
            || self.targets.waiting().next().is_some()
            || self.locking.managed.has_waiting()
            || self.locking.notifications.may_wait();
        let mail = &self.base.mail;
        waits && !self.base.failing.left && mail.dead().len() + 1 < mail.nodes as usize
    }

    /// Returns everything that another living node owes to this one.
    fn all(&self) -> BTreeSet<(Rank, Wait)> {
        let mail = &self.base.mail;
        let collective = self.for_collective();
        let locks = self.locking.locks.waiting();
        let locks = locks.map(|(lock, request)| (mail.manager(lock), Wait::Lock { lock, request }));
        // A run that its home has refused as moved is nobody's to bring (COH-11.5).
        let is_left = |id: &u64| self.fetches.moved.iter().any(|runs| runs.contains(id));
        let pages = self.fetches.runs.iter().filter(|(id, _)| !is_left(id));
        let pages = pages.map(|(id, run)| (run.home, Wait::Pages { id: *id }));
        let holders = self.locking.managed.holders_waited_for();
        let holders =
            holders.map(|(lock, of)| (of.rank, Wait::Holder { lock, request: of.request }));
        let asked = self.locking.managed.asked();
        let asked = asked.map(|(lock, of)| (of.rank, Wait::Granted { lock, request: of.request }));
        let epoch = self.base.clock.epoch;
        let updates = self.collectives.writers_waited_for(self.receiving, &self.base);
        let notifiers = self.locking.notifications.writers_waited_for(self.receiving, &self.base);
        let updates = updates.chain(notifiers).map(|writer| (writer, Wait::Updates { epoch }));
        let targets = self.targets.waiting().map(|(home, id)| (home, Wait::Target { id }));
        let all = collective.into_iter().chain(locks).chain(pages).chain(holders).chain(updates);
        let all = all.chain(targets).chain(asked);
        all.filter(|(rank, _)| *rank != mail.me && !mail.is_dead(*rank)).collect()
    }

    /// Returns the node that owes an arrival or a departure to this one. A node asks its parent
    /// about the departure once it has told an arrival. In a pair, each node asks the other one.
    fn for_collective(&self) -> Option<(Rank, Wait)> {
        let (epoch, gather) = (self.base.clock.epoch, &self.collectives.gather);
        let reported = if gather.place.is_pair { 1 } else { gather.reported(epoch) as u64 };
        let waits = self.collectives.waits_for_departure(self.base.clock) && reported > 0;
        gather
            .place
            .asked()
            .filter(|_| waits)
            .map(|asked| (asked, Wait::Collective { epoch, reported }))
    }

    /// Takes a question of another node.
    pub fn take_question(&mut self, from: Rank, wait: Wait) -> Result<(), Refusal> {
        let mail = &self.base.mail;
        let is_mine = match wait {
            Wait::Collective { .. } => self.collectives.gather.place.subtree_of(from).is_some(),
            Wait::Lock { lock, .. } => mail.manager(lock) == mail.me,
            Wait::Pages { .. } | Wait::Updates { .. } | Wait::Target { .. } => true,
            Wait::Holder { lock, .. } | Wait::Granted { lock, .. } | Wait::Sent { lock, .. } => {
                mail.manager(lock) == from
            }
        };
        if !is_mine {
            return Err(Refusal::Malformed);
        }
        self.base.mail.owe(from, 1)?;
        let head = Headline::Reply { wait, owed: self.owes_to(from, wait) };
        self.base.mail.post(from, Class::Unordered, head, Body::Empty, Purpose::Reply);
        if let Wait::Lock { lock, request } = wait {
            self.ask_giver(lock, LockRequest { rank: from, request });
        }
        Ok(())
    }

    /// Asks the holder that has passed a lock on to this request whether its grant is on its way.
    fn ask_giver(&mut self, lock: u64, of: LockRequest) {
        let Some(giver) = self.locking.managed.giver(lock, of) else { return };
        let is_question = |purpose: &Purpose| matches!(purpose, Purpose::Control(Doing::Message));
        if self.base.mail.has_posted(|one| one.to == giver && is_question(&one.purpose)) {
            return; // (COH-13.1)
        }
        let head = Headline::Question { wait: Wait::Sent { lock, request: of.request } };
        let purpose = Purpose::Control(Doing::Message);
        self.base.mail.post(giver, Class::Ordered, head, Body::Empty, purpose);
    }

    /// Returns `true` if this node owes that answer, or the answer is on its way (COH-13.2).
    fn owes_to(&self, to: Rank, wait: Wait) -> bool {
        let known = match wait {
            Wait::Collective { epoch, reported } => self.owes_collective(to, epoch, reported),
            Wait::Lock { lock, request } => {
                self.locking.managed.is_queued(LockRequest { rank: to, request }, lock)
            }
            Wait::Pages { .. } | Wait::Updates { .. } | Wait::Target { .. } | Wait::Sent { .. } => {
                false
            }
            Wait::Holder { lock, request } => self.locking.locks.knows(lock, request),
            Wait::Granted { request, .. } => self.locking.locks.was_granted(request),
        };
        let answers = |purpose: &Purpose| match (wait, purpose) {
            (Wait::Collective { .. }, Purpose::LastDeparture) => true,
            (
                Wait::Collective { epoch, .. },
                Purpose::Arrival { epoch: reported, .. }
                | Purpose::Departure { epoch: reported, .. },
            ) => epoch == *reported,
            (
                Wait::Lock { lock, .. } | Wait::Sent { lock, .. },
                Purpose::Grant(granted) | Purpose::Control(Doing::Lock(granted)),
            ) => lock == *granted,
            (Wait::Pages { .. }, Purpose::Pages(_)) => true,
            (Wait::Updates { .. }, Purpose::Update(_)) => true,
            (Wait::Target { .. }, Purpose::Answer) => true,
            (Wait::Holder { lock, .. }, Purpose::Control(Doing::Unlock(unlocked))) => {
                lock == *unlocked
            }
            _ => false,
        };
        // A holder's grant goes to another node than the manager, which asks.
        let is_asker = !matches!(wait, Wait::Sent { .. });
        known
            || self.base.mail.has_posted(|one| (one.to == to) == is_asker && answers(&one.purpose))
    }

    /// Returns `true` if the end of a collective waits for something else than this node's answer.
    fn owes_collective(&self, to: Rank, epoch: u64, reported: u64) -> bool {
        let (gather, clock) = (&self.collectives.gather, &self.base.clock);
        if !gather.place.is_pair {
            return reported > 0 && gather.known_of(to, epoch) as u64 >= reported;
        }
        // The other node is at most one collective ahead. This node owes its arrival until it has
        // arrived.
        epoch == clock.epoch.saturating_add(1) || (epoch == clock.epoch && !clock.has_arrived())
    }
}
