//! Barriers of teams, and notifications (COH-15): a release by each member, and an acquire from all
//! others, or from the notifier. The nodes exchange what they know by other means, as bytes.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::knowledge::Knowledge;
use crate::coherence::clock::stable::Stable;
use crate::coherence::clock::vector::Vector;
use crate::coherence::failing::doing::Doing;
use crate::coherence::locking::grant::AcquireGrant;
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::AfterRelease;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::updating::receive::UpdateReceiver;
use crate::coherence::updating::send::CountedUpdates;
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use crate::wind::{Refusal, Token};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// Acquires that wait for a departure, because another member has passed more collectives, or for
/// updates that a notification counts.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct TeamAcquires(Vec<TeamAcquire>);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct TeamAcquire {
    token: Token,
    grants: Vec<TeamGrant>,
}

/// Knowledge of one member, or of a notifier.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct TeamGrant {
    grant: AcquireGrant,
    /// Intervals that the member has left out, because this node was told them before.
    low: Vector,
    stable: Stable,
    /// Notifier, and the number of its updates to this node.
    notifier: Option<(Rank, CountedUpdates)>,
}

/// Updates of a notifier, as far as they have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedUpdates {
    /// All are here, applied or dropped.
    Here,
    Missing,
    /// They cannot be counted, or no barrier may have counted them. Notices tell what was written.
    Unknown,
}

impl TeamGrant {
    /// Returns whether the updates that the notification counts are here (COH-15.7).
    fn updates(&self, receiving: &UpdateReceiver, base: &Base<'_>) -> NotifiedUpdates {
        let Some((from, counted)) = self.notifier else { return NotifiedUpdates::Unknown };
        let is_over = counted.epoch < base.clock.epoch && planted(Bug::CountOldEpoch);
        if counted.epoch != base.clock.epoch && !is_over {
            return NotifiedUpdates::Unknown;
        }
        let last = self.grant.vector.get(from);
        match receiving.arrived_until(base.clock.epoch, from, last) {
            Some(count) if count >= counted.count => NotifiedUpdates::Here,
            Some(_) if planted(Bug::LearnUncounted) => NotifiedUpdates::Here,
            Some(_) => NotifiedUpdates::Missing,
            None => NotifiedUpdates::Unknown,
        }
    }

    fn learn(self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let updates = self.updates(&w.updates.receiving, &w.base);
        let TeamGrant { grant, stable, notifier, .. } = self;
        if let Some((from, _)) = notifier {
            let known = grant.vector.get(w.base.mail.me);
            w.updates.sending.forget_known_to(from, known);
        }
        match notifier.filter(|_| updates == NotifiedUpdates::Here) {
            Some((from, _)) => grant.learn_with_updates(from, w, pages),
            None => grant.learn(w, pages),
        }
        w.base.clock.knowledge.hear(&stable);
    }
}

/// Leaves out what only says when intervals are forgotten.
#[cfg(test)]
impl core::hash::Hash for TeamGrant {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (&self.grant, &self.low, &self.notifier).hash(state);
    }
}

impl TeamAcquires {
    pub fn cancel(&mut self, token: Token) {
        // A notification is left to the next wait for it. What a barrier of a team has told is
        // still learnt, because other threads may rely on it.
        let is_notified = |one: &TeamAcquire| one.grants.iter().any(|one| one.notifier.is_some());
        self.0.retain(|one| one.token != token || !is_notified(one));
        self.0.iter_mut().filter(|one| one.token == token).for_each(|one| one.token = Token::NONE);
    }

    /// Learns what other members of a team know, as [`release_to_team`] has returned it
    /// there.
    pub fn acquire(
        &mut self,
        bodies: &[Vec<u8>],
        token: Token,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let grants = bodies.iter().map(|body| read_grant(body, None, &w.base)).collect();
        self.begin(grants, token, w, pages);
    }

    /// Learns what a notifier knows, as [`release_to_node`] has returned it there.
    pub fn acquire_from_node(
        &mut self,
        from: Rank,
        told: &[u8],
        token: Token,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let grant = read_grant(told, Some(from), &w.base);
        self.begin(grant.map(|grant| vec![grant]), token, w, pages);
    }

    fn begin(
        &mut self,
        grants: Result<Vec<TeamGrant>, Refusal>,
        token: Token,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        match (w.base.collective_impediment(&Doing::TeamBarrier), grants) {
            (Some(error), _) => w.base.mail.fail(token, error),
            (None, Err(_)) => w.base.mail.fail(
                token,
                CoherenceError::Mismatch(
                    "team barrier or notification: a member reports arrays or writes that do not exist; do all nodes run the same version?"
                        .to_string(),
                ),
            ),
            (None, Ok(grants)) => {
                self.0.push(TeamAcquire { token, grants });
                self.take_ready(w, pages);
            }
        }
    }

    /// Returns `true` if any acquire waits.
    pub fn are_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the notifiers whose updates are missing.
    pub fn writers_waited_for<'a>(
        &'a self,
        receiving: &'a UpdateReceiver,
        base: &'a Base<'_>,
    ) -> impl Iterator<Item = Rank> + 'a {
        let grants = self.0.iter().flat_map(|one| &one.grants);
        let missing = grants
            .filter(|grant| grant.updates(receiving, base) == NotifiedUpdates::Missing)
            .filter_map(|grant| grant.notifier);
        missing.map(|(from, _)| from)
    }

    /// Takes the acquires whose epochs this node has reached, and whose updates are here. With a
    /// dead node the epoch or the updates may never come. Returns `true` if there were any.
    pub fn take_ready(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let hopeless = !w.base.mail.dead().is_empty();
        let epoch = w.base.clock.epoch;
        let receiving = &w.updates.receiving;
        let is_ready = |one: &TeamGrant| {
            one.grant.epoch <= epoch && one.updates(receiving, &w.base) != NotifiedUpdates::Missing
        };
        let are_ready = |one: &TeamAcquire| hopeless || one.grants.iter().all(is_ready);
        let (ready, waiting) = core::mem::take(&mut self.0).into_iter().partition(are_ready);
        self.0 = waiting;
        let ready: Vec<TeamAcquire> = ready;
        let are_any = !ready.is_empty();
        for TeamAcquire { token, mut grants } in ready {
            grants.retain(|one| one.grant.epoch <= epoch);
            let vector = &w.base.clock.knowledge.vector;
            let has_missed = grants.iter().any(|one| !vector.covers(&one.low));
            if !has_missed {
                grants.into_iter().for_each(|one| one.learn(w, pages));
            }
            w.base.failing.check_machine(pages);
            match w.base.collective_impediment(&Doing::TeamBarrier) {
                Some(error) => w.base.mail.fail(token, error),
                None if has_missed => w.base.mail.fail(token, CoherenceError::MissedNotification),
                None => w.base.mail.done(token, Value::None),
            }
        }
        are_any
    }
}

/// Reads what a member of a team knows, or what a notifier tells.
fn read_grant(body: &[u8], notifier: Option<Rank>, base: &Base<'_>) -> Result<TeamGrant, Refusal> {
    let mut reader = ByteReader(body);
    let epoch = reader.u64()?;
    let vector = base.clock.knowledge.read_vector(&mut reader)?;
    let low = base.clock.knowledge.read_vector(&mut reader)?;
    let intervals = base.clock.knowledge.read_intervals(&mut reader, base.arrays)?;
    let stable = Stable::read(&mut reader, &base.clock.knowledge.vector)?;
    let notifier = match notifier {
        Some(from) if from == base.mail.me || from >= base.mail.nodes => {
            return Err(Refusal::Malformed);
        }
        Some(from) => {
            Some((from, CountedUpdates { epoch: reader.leb128()?, count: reader.leb128()? }))
        }
        None => None,
    };
    reader.end()?;
    // A notifier in a collective counts updates of the epoch after it (COH-10.3).
    let epoch_max = epoch.saturating_add(1);
    if notifier.is_some_and(|(_, updates)| updates.epoch > epoch_max) {
        return Err(Refusal::Malformed);
    }
    // A member is ahead by no more than the collective in which this node waits (COH-7.4).
    if epoch > base.epoch_possible() {
        return Err(Refusal::Malformed);
    }
    Ok(TeamGrant { grant: AcquireGrant { epoch, vector, intervals }, low, stable, notifier })
}

/// Ends the release of a team barrier, now that the writes are at their homes.
pub(crate) fn report_to_team(token: Token, vector: &Vector, base: &mut Base<'_>) {
    report(token, vector, None, base, |knowledge, body| {
        knowledge.report_above(&knowledge.base, vector, None, body);
    });
}

/// Ends the release of a notification, now that the writes are at their homes. It leaves out what
/// the receiver was `told` before (COH-15.5), and counts the updates to the receiver (COH-15.7).
pub(crate) fn report_to_node(
    token: Token,
    (to, told): (Rank, &Vector),
    (vector, updates): (&Vector, CountedUpdates),
    base: &mut Base<'_>,
) {
    report(token, vector, Some(updates), base, |knowledge, body| {
        knowledge.report_above(told, vector, Some(to), body);
    });
}

/// Returns to the caller the number of collectives, the vector clock, what `write` adds, what all
/// nodes know, and the updates that a notification counts. `write` adds which intervals are left
/// out, and then all others.
fn report(
    token: Token,
    vector: &Vector,
    updates: Option<CountedUpdates>,
    base: &mut Base<'_>,
    write: impl FnOnce(&Knowledge, &mut Vec<u8>),
) {
    let lost = base
        .failing
        .lost_diff()
        .map(|rank| CoherenceError::NodeDead { doing: Doing::TeamBarrier.to_string(), rank });
    if let Some(error) = base.collective_impediment(&Doing::TeamBarrier).or(lost) {
        return base.mail.fail(token, error);
    }
    let mut body = Vec::new();
    body.put_u64(base.clock.epoch);
    vector.write(&mut body);
    write(&base.clock.knowledge, &mut body);
    base.clock.knowledge.stable.write(&mut body);
    if let Some(CountedUpdates { epoch, count }) = updates {
        body.put_leb128(epoch).put_leb128(count);
    }
    base.statistics.knowledge_bytes += body.len() as u64;
    base.mail.done(token, Value::Knowledge(body));
}

/// Returns the part of what a release has returned that says which intervals it tells, for a job of
/// this many nodes. A later release to the same node takes it ([`release_to_node`]).
#[must_use]
pub fn told_by(body: &[u8], nodes: u32) -> Vec<u8> {
    let mut reader = ByteReader(body);
    let mut told = Vec::new();
    if let Ok(vector) = reader.u64().and_then(|_| Vector::read(&mut reader, nodes)) {
        vector.write(&mut told);
    }
    told
}

/// Brings all writes of this node home, and returns what it knows for the other members of a
/// team ([`Value::Knowledge`]).
pub(crate) fn release_to_team(token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
    release(AfterRelease::ReportToTeam { token }, token, w, pages);
}

/// Brings all writes of this node home, and returns what it knows for the node `to`, beyond what
/// that node was `told` before (empty: nothing).
pub(crate) fn release_to_node(
    to: Rank,
    told: &[u8],
    token: Token,
    w: &mut Writes<'_>,
    pages: &mut dyn Pages,
) {
    let nodes = w.base.mail.nodes;
    let told = Vector::read(&mut ByteReader(told), nodes);
    let told = told.unwrap_or_else(|_| Vector::new(nodes));
    release(AfterRelease::ReportToNode { token, to, told }, token, w, pages);
}

fn release(then: AfterRelease, token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
    match w.base.collective_impediment(&Doing::TeamBarrier) {
        Some(error) => w.base.mail.fail(token, error),
        None => w.release(then, pages),
    }
}
