//! Barriers of teams (COH-15): a release by each member, and an acquire from all others. The
//! members exchange what they know by other means, as bytes.

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
use crate::coherence::writes::Writes;
use crate::wind::{Refusal, Token};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Acquires that wait for a departure, because another member has passed more collectives.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct TeamAcquires(Vec<TeamAcquire>);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct TeamAcquire {
    token: Token,
    grants: Vec<TeamGrant>,
}

/// Knowledge of one member.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct TeamGrant {
    grant: AcquireGrant,
    /// Intervals that the member has left out, because this node was told them before.
    low: Vector,
    stable: Stable,
}

/// Leaves out what only says when intervals are forgotten.
#[cfg(test)]
impl core::hash::Hash for TeamGrant {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (&self.grant, &self.low).hash(state);
    }
}

impl TeamAcquires {
    pub fn cancel(&mut self, token: Token) {
        // The node still learns the intervals, which other threads may rely on.
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
        let grants: Result<Vec<TeamGrant>, Refusal> =
            bodies.iter().map(|body| read_grant(body, &w.base)).collect();
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

    /// Takes the acquires whose epochs this node has reached. With a dead node the epoch may never
    /// come.
    pub fn take_ready(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        if self.0.is_empty() {
            return;
        }
        let hopeless = !w.base.mail.dead().is_empty();
        let epoch = w.base.clock.epoch;
        let is_ready = |one: &TeamAcquire| one.grants.iter().all(|one| one.grant.epoch <= epoch);
        let (ready, waiting) =
            core::mem::take(&mut self.0).into_iter().partition(|one| is_ready(one) || hopeless);
        self.0 = waiting;
        let ready: Vec<TeamAcquire> = ready;
        for TeamAcquire { token, mut grants } in ready {
            grants.retain(|one| one.grant.epoch <= epoch);
            let vector = &w.base.clock.knowledge.vector;
            let has_missed = grants.iter().any(|one| !vector.covers(&one.low));
            if !has_missed {
                for one in grants {
                    one.grant.learn(w, pages);
                    w.base.clock.knowledge.hear(&one.stable);
                }
            }
            w.base.failing.check_machine(pages);
            match w.base.collective_impediment(&Doing::TeamBarrier) {
                Some(error) => w.base.mail.fail(token, error),
                None if has_missed => w.base.mail.fail(token, CoherenceError::MissedNotification),
                None => w.base.mail.done(token, Value::None),
            }
        }
    }
}

fn read_grant(body: &[u8], base: &Base<'_>) -> Result<TeamGrant, Refusal> {
    let mut reader = ByteReader(body);
    let epoch = reader.u64()?;
    let vector = base.clock.knowledge.read_vector(&mut reader)?;
    let low = base.clock.knowledge.read_vector(&mut reader)?;
    let intervals = base.clock.knowledge.read_intervals(&mut reader, base.arrays)?;
    let stable = Stable::read(&mut reader, &base.clock.knowledge.vector)?;
    reader.end()?;
    // A member is ahead by no more than the collective in which this node waits (COH-7.4).
    if epoch > base.epoch_possible() {
        return Err(Refusal::Malformed);
    }
    Ok(TeamGrant { grant: AcquireGrant { epoch, vector, intervals }, low, stable })
}

/// Ends the release of a team barrier, now that the writes are at their homes.
pub(crate) fn report_to_team(token: Token, vector: &Vector, base: &mut Base<'_>) {
    report(token, vector, base, |knowledge, body| {
        knowledge.report_above(&knowledge.base, vector, None, body);
    });
}

/// Ends the release of a notification, now that the writes are at their homes. It leaves out what
/// the receiver was `told` before (COH-15.5).
pub(crate) fn report_to_node(
    token: Token,
    (to, told): (Rank, &Vector),
    vector: &Vector,
    base: &mut Base<'_>,
) {
    report(token, vector, base, |knowledge, body| {
        knowledge.report_above(told, vector, Some(to), body);
    });
}

/// Returns to the caller the number of collectives, the vector clock, what `write` adds, and what
/// all nodes know. `write` adds which intervals are left out, and then all others.
fn report(
    token: Token,
    vector: &Vector,
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
