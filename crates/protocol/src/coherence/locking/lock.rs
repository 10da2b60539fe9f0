//! Locks (COH-7), as seen by a node that acquires them. A lock's manager is its number modulo the
//! number of nodes.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::machine::Pages;
use crate::coherence::mailbox::Purpose;
use crate::coherence::sync::release::Then;
use crate::coherence::types::{CoherenceError, Value};
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Knowledge that an acquirer gets, by a lock's grant or from a member of its team.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct AcquireGrant {
    /// Number of collectives that the acquirer must have passed.
    pub epoch: u64,
    pub vector: Vector,
    pub intervals: Vec<Interval>,
}

/// A lock that a thread of this node waits for.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Request {
    lock: u64,
    /// Token of the operation; `None` if nobody waits any longer.
    token: Option<Token>,
    /// Grant as of an epoch that this node has not reached (COH-7.4).
    early: Option<AcquireGrant>,
}

/// Locks that this node waits for or holds.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Locks {
    next: u64,
    pub requests: BTreeMap<u64, Request>,
    /// Number of the request that acquired each held lock, by lock.
    held: BTreeMap<u64, u64>,
}

impl Locks {
    pub fn cancel(&mut self, token: Token) {
        for request in self.requests.values_mut().filter(|request| request.token == Some(token)) {
            request.token = None;
        }
    }
}

impl Locks {
    /// Returns `true` if this node holds a lock.
    pub fn are_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns lock and number of each request that is not answered.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, u64)> {
        self.requests
            .iter()
            .filter(|(_, request)| request.early.is_none())
            .map(|(number, request)| (request.lock, *number))
    }

    /// Returns `true` if this node waits for the lock by this request, or holds it.
    pub fn knows(&self, lock: u64, request: u64) -> bool {
        let wants = self.requests.get(&request).is_some_and(|known| known.lock == lock);
        wants || self.held.get(&lock) == Some(&request)
    }
}

impl Coherence {
    /// Returns the rank of the node that manages this lock.
    #[must_use]
    pub fn manager(&self, lock: u64) -> Rank {
        (lock % u64::from(self.nodes.max(1))) as Rank
    }

    /// Returns the locks that this node holds.
    pub(crate) fn held_locks(&self) -> Vec<u64> {
        self.locks.held.keys().copied().collect()
    }

    pub(crate) fn acquire(&mut self, lock: u64, token: Token) {
        if let Some(error) = self.lock_impediment(Doing::Lock(lock), lock) {
            return self.fail(token, error);
        }
        let request = self.locks.next;
        self.locks.next += 1;
        self.locks.requests.insert(request, Request { lock, token: Some(token), early: None });
        let mut body = Vec::new();
        self.knowledge.vector.write(&mut body);
        let purpose = Purpose::Control(Doing::Lock(lock));
        self.post(
            self.manager(lock),
            Class::Ordered,
            Headline::Acquire { lock, request },
            body,
            purpose,
        );
    }

    pub(crate) fn release_lock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {
        match self.locks.held.remove(&lock) {
            Some(request) => self.begin_release(Then::Unlock { lock, request, token }, pages),
            None => self.fail(token, CoherenceError::NotHeld { lock }),
        }
    }

    /// Gives the lock back, now that this node's diffs are at their homes. The unlock tells what
    /// the next holder may not know (COH-7.2).
    pub(crate) fn give_back(&mut self, lock: u64, request: u64, vector: &Vector) {
        let manager = self.manager(lock);
        let mut body = Vec::new();
        // Intervals whose changes did not reach their homes are not told (COH-5.4).
        if self.broken.is_some() {
            body.put_u8(1);
        } else {
            body.put_u8(0);
            vector.write(&mut body);
            self.knowledge.tell(manager, vector, &mut body);
        }
        let head = Headline::Unlock { lock, request, epoch: self.epoch };
        // The class is ordered because the next unlock to this manager leaves out what this one
        // tells.
        self.post(manager, Class::Ordered, head, body, Purpose::Control(Doing::Unlock(lock)));
    }

    pub(crate) fn take_grant(
        &mut self,
        from: Rank,
        lock: u64,
        request: u64,
        epoch: u64,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let epoch_possible = self.epoch_possible();
        let known = self
            .locks
            .requests
            .get_mut(&request)
            .filter(|known| known.lock == lock && known.early.is_none());
        let Some(known) = known.filter(|_| lock % u64::from(self.nodes.max(1)) == u64::from(from))
        else {
            return Err(Refusal::UnknownObject);
        };
        let code = reader.u8()?;
        if code != 0 {
            let rank = reader.leb128_u32()?;
            reader.end()?;
            let doing = Doing::Lock(lock).to_string();
            let error = match code {
                1 => CoherenceError::NodeDead { doing, rank },
                2 => CoherenceError::LockBroken { doing, rank },
                _ => return Err(Refusal::Malformed),
            };
            let token = known.token;
            self.locks.requests.remove(&request);
            token.into_iter().for_each(|token| self.fail(token, error.clone()));
            return Ok(());
        }
        let (vector, intervals) = self.knowledge.read(&mut reader, &self.arrays)?;
        reader.end()?;
        // A deferred grant waits for a departure, which must be on its way (COH-7.4).
        if epoch > epoch_possible {
            return Err(Refusal::Malformed);
        }
        known.early = Some(AcquireGrant { epoch, vector, intervals });
        self.take_deferred_grants(pages);
        Ok(())
    }

    /// Takes every grant whose epoch this node has reached. With a dead node the epoch may never
    /// come, so deferred grants fail then.
    pub(crate) fn take_deferred_grants(&mut self, pages: &mut dyn Pages) {
        let hopeless = self.dead.first().copied();
        let ready = |request: &Request| {
            request.early.as_ref().is_some_and(|g| g.epoch <= self.epoch || hopeless.is_some())
        };
        let ready: Vec<u64> = self
            .locks
            .requests
            .iter()
            .filter(|(_, r)| ready(r))
            .map(|(number, _)| *number)
            .collect();
        for number in ready {
            let Some(Request { lock, token, early: Some(grant) }) =
                self.locks.requests.remove(&number)
            else {
                continue;
            };
            let in_time = grant.epoch <= self.epoch;
            if in_time {
                self.learn(grant, pages);
                self.look_at_machine(pages);
            }
            match (token, hopeless) {
                (Some(token), _) if in_time && self.broken.is_none() => {
                    self.statistics.locks += 1;
                    self.locks.held.insert(lock, number);
                    self.guards.under_lock = true;
                    self.done(token, Value::None);
                }
                (token, rank) => {
                    let doing = Doing::Lock(lock).to_string();
                    let dead = rank.map(|rank| CoherenceError::NodeDead { doing, rank });
                    let error = self.broken.clone().or(dead);
                    token.into_iter().zip(error).for_each(|(token, error)| self.fail(token, error));
                    self.begin_release(
                        Then::Unlock { lock, request: number, token: Token::NONE },
                        pages,
                    );
                }
            }
        }
    }

    /// COH-7.3: this node learns everything that happened before a release.
    pub(crate) fn learn(&mut self, grant: AcquireGrant, pages: &mut dyn Pages) {
        let vector = &self.knowledge.vector;
        let news =
            grant.intervals.iter().filter(|i| i.writer != self.me && i.last > vector.get(i.writer));
        let runs = Runs::union(news.map(|interval| &interval.runs));
        if !planted(Bug::SkipInvalidation) {
            self.invalidate(&runs, pages);
        }
        for interval in grant.intervals {
            self.knowledge.insert(interval);
        }
        for rank in (0..self.nodes).filter(|rank| *rank != self.me) {
            self.knowledge.vector.raise(rank, grant.vector.get(rank));
        }
    }

    /// Fails requests and breaks locks that a dead node managed, held or waited for.
    pub(crate) fn lock_death(&mut self, rank: Rank, pages: &mut dyn Pages) {
        let nodes = u64::from(self.nodes.max(1));
        let lost: Vec<u64> = self
            .locks
            .requests
            .iter()
            .filter(|(_, r)| r.lock % nodes == u64::from(rank))
            .map(|(n, _)| *n)
            .collect();
        for number in lost {
            if let Some(Request { lock, token: Some(token), .. }) =
                self.locks.requests.remove(&number)
            {
                self.fail(
                    token,
                    CoherenceError::NodeDead { doing: Doing::Lock(lock).to_string(), rank },
                );
            }
        }
        self.take_deferred_grants(pages);
        self.take_team_acquires(pages);
        self.manager_death(rank);
    }

    /// Fails all waiting requests. A lock that is granted later goes directly back.
    pub(crate) fn fail_locks(&mut self, error: &CoherenceError, _pages: &mut dyn Pages) {
        let tokens: Vec<Token> =
            self.locks.requests.values_mut().filter_map(|request| request.token.take()).collect();
        tokens.into_iter().for_each(|token| self.fail(token, error.clone()));
    }
}
