//! Barriers of teams (COH-15): a release by each member, and an acquire from all others. The
//! members exchange what they know by other means, as bytes.

use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::failure::Doing;
use crate::coherence::machine::Pages;
use crate::coherence::sync::lock::AcquireGrant;
use crate::coherence::sync::release::Then;
use crate::coherence::types::{CoherenceError, Value};
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
    grants: Vec<AcquireGrant>,
}

impl TeamAcquires {
    pub fn cancel(&mut self, token: Token) {
        // The node still learns the intervals, which other threads may rely on.
        self.0.iter_mut().filter(|one| one.token == token).for_each(|one| one.token = Token::NONE);
    }
}

impl Coherence {
    /// Brings all writes of this node home, and returns what it knows for the other members of a
    /// team ([`Value::Knowledge`]).
    pub fn release_to_team(&mut self, token: Token, pages: &mut dyn Pages) {
        match self.collective_impediment(&Doing::TeamBarrier) {
            Some(error) => self.fail(token, error),
            None => self.begin_release(Then::TellTeam { token }, pages),
        }
        self.settle(pages);
    }

    /// Learns what other members of a team know, as [`Coherence::release_to_team`] has returned it
    /// there.
    pub fn acquire_from_team(&mut self, told: &[Vec<u8>], token: Token, pages: &mut dyn Pages) {
        let grants: Result<Vec<AcquireGrant>, Refusal> =
            told.iter().map(|body| self.read_team_grant(body)).collect();
        match (self.collective_impediment(&Doing::TeamBarrier), grants) {
            (Some(error), _) => self.fail(token, error),
            (None, Err(_)) => self.fail(
                token,
                CoherenceError::Mismatch(
                    "team barrier or notification: a member tells of arrays or writes that cannot be; do all nodes run the same version?"
                        .to_string(),
                ),
            ),
            (None, Ok(grants)) => {
                self.team_acquires.0.push(TeamAcquire { token, grants });
                self.take_team_acquires(pages);
            }
        }
        self.settle(pages);
    }

    fn read_team_grant(&self, body: &[u8]) -> Result<AcquireGrant, Refusal> {
        let mut reader = ByteReader(body);
        let epoch = reader.u64()?;
        let (vector, intervals) = self.knowledge.read(&mut reader, &self.arrays)?;
        reader.end()?;
        // A member is ahead by no more than the collective in which this node waits (COH-7.4).
        if epoch > self.epoch_possible() {
            return Err(Refusal::Malformed);
        }
        Ok(AcquireGrant { epoch, vector, intervals })
    }

    /// Ends the release of a team barrier, now that the writes are at their homes.
    pub(crate) fn tell_team(&mut self, token: Token, vector: &Vector) {
        let lost = self
            .lost_diff
            .map(|rank| CoherenceError::NodeDead { doing: Doing::TeamBarrier.to_string(), rank });
        if let Some(error) = self.collective_impediment(&Doing::TeamBarrier).or(lost) {
            return self.fail(token, error);
        }
        let mut body = Vec::new();
        body.put_u64(self.epoch);
        vector.write(&mut body);
        let base = &self.knowledge.base;
        Interval::write_all(self.knowledge.between(base, vector), &mut body);
        self.done(token, Value::Knowledge(body));
    }

    /// Takes the acquires whose epochs this node has reached. With a dead node the epoch may never
    /// come.
    pub(crate) fn take_team_acquires(&mut self, pages: &mut dyn Pages) {
        let hopeless = !self.dead.is_empty();
        let epoch = self.epoch;
        let is_ready = |one: &TeamAcquire| one.grants.iter().all(|grant| grant.epoch <= epoch);
        let (ready, waiting) = core::mem::take(&mut self.team_acquires.0)
            .into_iter()
            .partition(|one| is_ready(one) || hopeless);
        self.team_acquires.0 = waiting;
        let ready: Vec<TeamAcquire> = ready;
        for TeamAcquire { token, grants } in ready {
            for grant in grants.into_iter().filter(|grant| grant.epoch <= epoch) {
                self.learn(grant, pages);
            }
            self.look_at_machine(pages);
            match self.collective_impediment(&Doing::TeamBarrier) {
                Some(error) => self.fail(token, error),
                None => self.done(token, Value::None),
            }
        }
    }
}
