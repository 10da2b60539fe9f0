//! Locks (COH-7), as seen by a node that acquires them. A lock's manager is its number modulo the
//! number of nodes.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::locking::grant::AcquireGrant;
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::AfterRelease;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::writes::Writes;
use crate::wind::{Class, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

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

    /// Returns the locks that this node holds.
    pub fn held(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    pub fn acquire(&mut self, lock: u64, token: Token, base: &mut Base<'_>) {
        if let Some(error) = base.lock_impediment(&Doing::Lock(lock), lock) {
            return base.mail.fail(token, error);
        }
        let request = self.next;
        self.next += 1;
        self.requests.insert(request, Request { lock, token: Some(token), early: None });
        let mut body = Vec::new();
        base.clock.knowledge.vector.write(&mut body);
        let purpose = Purpose::Control(Doing::Lock(lock));
        let (manager, head) = (base.mail.manager(lock), Headline::Acquire { lock, request });
        base.mail.post(manager, Class::Ordered, head, body.into(), purpose);
    }

    pub fn release(&mut self, lock: u64, token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let held = self.held.remove(&lock);
        w.releasing.guards.holds_locks = !self.held.is_empty();
        match held {
            Some(request) => w.release(AfterRelease::Unlock { lock, request, token }, pages),
            None => w.base.mail.fail(token, CoherenceError::NotHeld { lock }),
        }
    }

    pub fn take_grant(
        &mut self,
        from: Rank,
        (lock, request, epoch): (u64, u64, u64),
        body: &[u8],
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let epoch_possible = w.base.epoch_possible();
        let known = self
            .requests
            .get_mut(&request)
            .filter(|known| known.lock == lock && known.early.is_none());
        let Some(known) = known.filter(|_| w.base.mail.manager(lock) == from) else {
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
            self.requests.remove(&request);
            token.into_iter().for_each(|token| w.base.mail.fail(token, error.clone()));
            return Ok(());
        }
        let (vector, intervals) = w.base.clock.knowledge.read(&mut reader, w.base.arrays)?;
        reader.end()?;
        // A deferred grant waits for a departure, which must be on its way (COH-7.4).
        if epoch > epoch_possible {
            return Err(Refusal::Malformed);
        }
        known.early = Some(AcquireGrant { epoch, vector, intervals });
        self.take_deferred_grants(w, pages);
        Ok(())
    }

    /// Takes every grant whose epoch this node has reached. With a dead node the epoch may never
    /// come, so deferred grants fail then.
    pub fn take_deferred_grants(&mut self, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let hopeless = w.base.mail.first_dead();
        let epoch = w.base.clock.epoch;
        let ready = |request: &Request| {
            request.early.as_ref().is_some_and(|g| g.epoch <= epoch || hopeless.is_some())
        };
        let ready: Vec<u64> =
            self.requests.iter().filter(|(_, r)| ready(r)).map(|(number, _)| *number).collect();
        for number in ready {
            let Some(Request { lock, token, early: Some(grant) }) = self.requests.remove(&number)
            else {
                continue;
            };
            let in_time = grant.epoch <= w.base.clock.epoch;
            if in_time {
                grant.learn(w, pages);
                w.base.failing.check_machine(pages);
            }
            match (token, hopeless) {
                (Some(token), _) if in_time && w.base.failing.broken().is_none() => {
                    w.base.statistics.locks += 1;
                    self.held.insert(lock, number);
                    w.releasing.guards.under_lock = true;
                    w.releasing.guards.holds_locks = true;
                    w.base.mail.done(token, Value::None);
                }
                (token, rank) => {
                    let doing = Doing::Lock(lock).to_string();
                    let dead = rank.map(|rank| CoherenceError::NodeDead { doing, rank });
                    let error = w.base.failing.broken().cloned().or(dead);
                    token
                        .into_iter()
                        .zip(error)
                        .for_each(|(token, error)| w.base.mail.fail(token, error));
                    w.release(
                        AfterRelease::Unlock { lock, request: number, token: Token::NONE },
                        pages,
                    );
                }
            }
        }
    }

    /// Fails the requests for locks that a dead node managed.
    pub fn fail_managed_by(&mut self, rank: Rank, mail: &mut Mailbox) {
        let lost: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, r)| mail.manager(r.lock) == rank)
            .map(|(n, _)| *n)
            .collect();
        for number in lost {
            if let Some(Request { lock, token: Some(token), .. }) = self.requests.remove(&number) {
                let doing = Doing::Lock(lock).to_string();
                mail.fail(token, CoherenceError::NodeDead { doing, rank });
            }
        }
    }

    /// Fails all waiting requests. A lock that is granted later goes directly back.
    pub fn fail(&mut self, error: &CoherenceError, mail: &mut Mailbox) {
        let tokens: Vec<Token> =
            self.requests.values_mut().filter_map(|request| request.token.take()).collect();
        tokens.into_iter().for_each(|token| mail.fail(token, error.clone()));
    }
}

/// Gives the lock back, now that this node's diffs are at their homes. The unlock tells what
/// the next holder may not know (COH-7.2).
pub(crate) fn give_back(
    (lock, request): (u64, u64),
    token: Token,
    vector: &Vector,
    base: &mut Base<'_>,
) {
    let manager = base.mail.manager(lock);
    let mut body = Vec::new();
    // Intervals whose changes did not reach their homes are not told (COH-5.4).
    if base.failing.broken().is_some() {
        body.put_u8(1);
    } else {
        body.put_u8(0);
        vector.write(&mut body);
        base.clock.knowledge.report(manager, vector, &mut body);
    }
    let head = Headline::Unlock { lock, request, epoch: base.clock.epoch };
    // The class is ordered because the next unlock to this manager leaves out what this one
    // tells.
    base.mail.post(
        manager,
        Class::Ordered,
        head,
        body.into(),
        Purpose::Control(Doing::Unlock(lock)),
    );
    // The lock is given back in any case, so that other nodes get it or their own error.
    let error = base.lock_impediment(&Doing::Unlock(lock), lock);
    base.end(token, error.map_or(Ok(Value::None), Err));
}
