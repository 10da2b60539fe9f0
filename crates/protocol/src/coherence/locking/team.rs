//! Barriers of teams (COH-15.1 to 15.3): a release by each member, and an acquire from all others.
//! The members exchange what they know by other means, as bytes.

use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Interval;
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
    stable: Stable,
}

/// Leaves out what only says when intervals are forgotten.
#[cfg(test)]
impl core::hash::Hash for TeamGrant {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.grant.hash(state);
    }
}

impl TeamAcquires {
    /// Called when nobody waits for this operation any longer. What a barrier of a team has told is
    /// still learnt, because other threads may rely on it.
    pub fn cancel(&mut self, token: Token) {
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
        let grants: Result<_, Refusal> =
            bodies.iter().map(|body| read_grant(body, &w.base)).collect();
        match (w.base.collective_impediment(&Doing::TeamBarrier), grants) {
            (Some(error), _) => w.base.mail.fail(token, error),
            (None, Err(_)) => w.base.mail.fail(
                token,
                CoherenceError::Mismatch(
                    "team barrier: a member reports arrays or writes that do not exist; do all nodes run the same version?"
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
    /// come. Returns `true` if there were any.
    pub fn take_ready(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) -> bool {
        if self.0.is_empty() || w.base.clock.moves_homes {
            return false;
        }
        let hopeless = !w.base.mail.dead().is_empty();
        let epoch = w.base.clock.epoch;
        let is_ready =
            |one: &TeamAcquire| hopeless || one.grants.iter().all(|one| one.grant.epoch <= epoch);
        let (ready, waiting) = core::mem::take(&mut self.0).into_iter().partition(is_ready);
        self.0 = waiting;
        let ready: Vec<TeamAcquire> = ready;
        let are_any = !ready.is_empty();
        for TeamAcquire { token, grants } in ready {
            for mut one in grants.into_iter().filter(|one| one.grant.epoch <= epoch) {
                one.grant.learn(w, pages);
                w.base.clock.knowledge.hear(&one.stable);
            }
            w.base.failing.check_machine(pages);
            let ended = w.base.collective_impediment(&Doing::TeamBarrier);
            w.base.end(token, ended.map_or(Ok(Value::None), Err));
        }
        are_any
    }
}

/// Reads what a member of a team knows.
fn read_grant(body: &[u8], base: &Base<'_>) -> Result<TeamGrant, Refusal> {
    let mut reader = ByteReader(body);
    let epoch = reader.u64()?;
    let (vector, intervals) = base.clock.knowledge.read(&mut reader, base.arrays)?;
    let stable = Stable::read(&mut reader, &base.clock.knowledge.vector)?;
    reader.end()?;
    // A member is ahead by no more than the collective in which this node waits (COH-7.4).
    if epoch > base.epoch_possible() {
        return Err(Refusal::Malformed);
    }
    let written = Vec::new();
    Ok(TeamGrant { grant: AcquireGrant { epoch, vector, intervals, written }, stable })
}

/// Ends the release of a team barrier, now that the writes are at their homes. Returns to the
/// caller the number of collectives, the vector clock, the intervals since the last collective, and
/// what all nodes know.
pub(crate) fn report_to_team(token: Token, vector: &Vector, base: &mut Base<'_>) {
    let doing = Doing::TeamBarrier;
    let lost = base.failing.lost_diff();
    let lost = lost.map(|rank| CoherenceError::NodeDead { doing: doing.to_string(), rank });
    if let Some(error) = base.collective_impediment(&doing).or(lost) {
        return base.mail.fail(token, error);
    }
    let knowledge = &base.clock.knowledge;
    let mut body = Vec::new();
    body.put_u64(base.clock.epoch);
    vector.write(&mut body);
    Interval::write_all(knowledge.between(&knowledge.base, vector), &mut body);
    knowledge.stable.write(&mut body);
    base.statistics.knowledge_bytes += body.len() as u64;
    base.mail.done(token, Value::Knowledge(body));
}

/// Brings all writes of this node home, and returns what it knows for the other members of a
/// team ([`Value::Knowledge`]).
pub(crate) fn release_to_team(token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
    match w.base.collective_impediment(&Doing::TeamBarrier) {
        Some(error) => w.base.mail.fail(token, error),
        None => w.release(AfterRelease::ReportToTeam { token }, pages),
    }
}
