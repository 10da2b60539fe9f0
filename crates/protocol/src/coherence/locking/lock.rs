//! Locks (COH-7), as seen by a node that acquires them. A lock's manager is its number modulo the
//! number of nodes.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::locking::grant::AcquireGrant;
use crate::coherence::locking::lock_manager::{LockRequest, Past, Waiting, grant};
use crate::coherence::locking::written::{Written, WrittenCounts, WrittenLists};
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::machine::Pages;
use crate::coherence::releasing::release::{AfterRelease, PageChanges};
use crate::coherence::types::{CoherenceError, LockMode, Value};
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Refusal, Token};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Request of this node for a lock, until the lock is given back.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Request {
    lock: u64,
    mode: LockMode,
    /// Token of the operation; `None` if nobody waits any longer.
    token: Option<Token>,
    stage: RequestStage,
    /// Request that gets the lock next (COH-7.9).
    next: Option<Waiting>,
}

impl Request {
    /// Returns `true` if no thread waits for this request, and another one can.
    fn is_abandoned(&self) -> bool {
        let waits = matches!(self.stage, RequestStage::Waits | RequestStage::Deferred(..));
        self.token.is_none() && waits && !self.mode.tries
    }

    /// Tells the manager whether a thread waits for this request. Others that read pass by a
    /// request that writes for nobody (COH-7.15).
    fn tell_manager(&self, request: u64, abandoned: bool, base: &mut Base<'_>) {
        if !matches!(self.stage, RequestStage::Waits) || self.mode.reads {
            return;
        }
        let (lock, manager) = (self.lock, base.mail.manager(self.lock));
        let head = Headline::Abandon { lock, request, abandoned };
        let purpose = Purpose::Control(Doing::Lock(lock));
        base.mail.post(manager, Class::Ordered, head, Body::Empty, purpose);
    }
}

/// How far a request has come.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
enum RequestStage {
    Waits,
    /// Its grant is as of an epoch that this node has not reached (COH-7.4).
    Deferred(AcquireGrant, WrittenCounts),
    /// The lock is held, or about to be given back.
    Granted(WrittenCounts),
    /// The lock is about to be given back. This node has not learnt what the grant tells, and hands
    /// it on.
    Unlearnt(AcquireGrant, WrittenCounts),
}

/// Locks that this node waits for or holds.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Locks {
    next: u64,
    requests: BTreeMap<u64, Request>,
    /// Numbers of the requests that acquired each held lock, by lock. Several may read.
    held: BTreeMap<u64, Vec<u64>>,
    /// Numbers of requests whose threads have stopped waiting. Some may be over.
    abandoned: Vec<u64>,
}

impl Locks {
    pub fn cancel(&mut self, token: Token, base: &mut Base<'_>) {
        let mut requests = self.requests.iter_mut();
        let found = requests.find(|(_, one)| one.token == Some(token));
        let Some((number, request)) = found else { return };
        request.token = None;
        if request.is_abandoned() {
            self.abandoned.push(*number);
            request.tell_manager(*number, true, base);
        }
    }

    /// Takes a request for this lock and of this mode whose thread has stopped waiting.
    fn take_abandoned(&mut self, lock: u64, mode: LockMode) -> Option<(u64, &mut Request)> {
        let Locks { requests, abandoned, .. } = self;
        // An answer to a request that tries is on its way, and says nothing of a later moment.
        abandoned.retain(|number| requests.get(number).is_some_and(Request::is_abandoned));
        let is_alike = |number: &u64| {
            requests.get(number).is_some_and(|one| (one.lock, one.mode) == (lock, mode))
        };
        let place = abandoned.iter().position(is_alike)?;
        let number = abandoned.swap_remove(place);
        requests.get_mut(&number).map(|request| (number, request))
    }

    /// Returns lock and number of each request that is not answered.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, u64)> {
        self.requests
            .iter()
            .filter(|(_, request)| matches!(request.stage, RequestStage::Waits))
            .map(|(number, request)| (request.lock, *number))
    }

    /// Returns `true` if this node waits for the lock by this request, or has not given it back.
    pub fn knows(&self, lock: u64, request: u64) -> bool {
        self.requests.get(&request).is_some_and(|known| known.lock == lock)
    }

    /// Returns `true` if this request has got its lock. A request that is over has got it.
    pub fn was_granted(&self, request: u64) -> bool {
        let known = self.requests.get(&request);
        known.is_none_or(|request| !matches!(request.stage, RequestStage::Waits))
    }

    /// Returns the locks that this node holds, each as often as requests have it.
    pub fn held(&self) -> Vec<u64> {
        let requests = self.held.iter().flat_map(|(lock, requests)| requests.iter().map(|_| *lock));
        requests.collect()
    }

    pub fn acquire(&mut self, lock: u64, mode: LockMode, token: Token, base: &mut Base<'_>) {
        if let Some(error) = base.lock_impediment(&Doing::Lock(lock), lock) {
            return base.mail.fail(token, error);
        }
        // Otherwise the requests of a thread that asks in a loop would fill the queue (COH-7.5).
        let abandoned = self.take_abandoned(lock, mode).filter(|_| !planted(Bug::AskTwice));
        if let Some((number, request)) = abandoned {
            request.token = Some(token);
            return request.tell_manager(number, false, base);
        }
        let request = self.next;
        self.next += 1;
        let stage = RequestStage::Waits;
        self.requests
            .insert(request, Request { lock, mode, token: Some(token), stage, next: None });
        let mut body = Vec::new();
        base.clock.knowledge.vector.write(&mut body);
        let purpose = Purpose::Control(Doing::Lock(lock));
        let (manager, head) = (base.mail.manager(lock), Headline::Acquire { lock, request, mode });
        base.mail.post(manager, Class::Ordered, head, body.into(), purpose);
    }

    pub fn release(&mut self, lock: u64, token: Token, w: &mut Writes<'_>, pages: &mut dyn Pages) {
        let held = self.held.get_mut(&lock).and_then(Vec::pop);
        self.held.retain(|_, requests| !requests.is_empty());
        w.base.arrays.holds_locks = !self.held.is_empty();
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
        lists: &mut WrittenLists,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let manager = w.base.mail.manager(lock);
        // The request has failed with its manager.
        if w.base.mail.is_dead(manager) {
            return Ok(());
        }
        let mut reader = ByteReader(body);
        let epoch_possible = w.base.epoch_possible();
        let known = self
            .requests
            .get_mut(&request)
            .filter(|known| known.lock == lock && matches!(known.stage, RequestStage::Waits));
        let code = reader.u8()?;
        // An earlier holder may grant the lock, and only the manager refuses it (COH-7.9).
        let Some(known) = known.filter(|_| code == 0 || manager == from) else {
            return Err(Refusal::UnknownObject);
        };
        if code == 3 && known.mode.tries {
            reader.end()?;
            let token = known.token;
            self.requests.remove(&request);
            token.into_iter().for_each(|token| w.base.mail.done(token, Value::LockTaken));
            return Ok(());
        }
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
        let counts = WrittenCounts { all: reader.leb128()?, told: reader.leb128()? };
        let written = Written::read_all(&mut reader, w.base.mail.nodes, w.base.arrays)?;
        reader.end()?;
        // A deferred grant waits for a departure, which must be on its way (COH-7.4).
        if epoch > epoch_possible {
            return Err(Refusal::Malformed);
        }
        let grant = AcquireGrant { epoch, vector, intervals, written };
        known.stage = RequestStage::Deferred(grant, counts);
        self.take_deferred_grants(lists, w, pages);
        Ok(())
    }

    /// Learns from the manager which request gets a lock after this node's request.
    pub fn take_next(
        &mut self,
        from: Rank,
        (lock, request): (u64, u64),
        body: &[u8],
        base: &Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let of = LockRequest { rank: reader.leb128_u32()?, request: reader.leb128()? };
        let vector = base.clock.knowledge.read_vector(&mut reader)?;
        reader.end()?;
        if base.mail.manager(lock) != from || of.rank >= base.mail.nodes {
            return Err(Refusal::Malformed);
        }
        // The lock may be on its way back to the manager.
        let known = self.requests.get_mut(&request).filter(|known| known.lock == lock);
        if let Some(known) = known {
            if known.mode.reads {
                return Err(Refusal::Malformed); // others may read, too (COH-7.14)
            }
            known.next = Some(Waiting { of, reads: false, abandoned: false, vector });
        }
        Ok(())
    }

    /// Takes every grant whose epoch this node has reached. With a dead node the epoch may never
    /// come, so deferred grants fail then.
    pub fn take_deferred_grants(
        &mut self,
        lists: &mut WrittenLists,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        if w.base.clock.moves_homes {
            return; // (COH-11.3)
        }
        let hopeless = w.base.mail.first_dead();
        let epoch = w.base.clock.epoch;
        let ready = |request: &Request| {
            matches!(&request.stage, RequestStage::Deferred(grant, _)
                if grant.epoch <= epoch || hopeless.is_some())
        };
        let ready: Vec<u64> =
            self.requests.iter().filter(|(_, r)| ready(r)).map(|(number, _)| *number).collect();
        for number in ready {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            let stage = core::mem::replace(&mut request.stage, RequestStage::Waits);
            let RequestStage::Deferred(mut grant, counts) = stage else { continue };
            let (lock, token) = (request.lock, request.token.take());
            let in_time = grant.epoch <= w.base.clock.epoch;
            if in_time {
                request.stage = RequestStage::Granted(counts);
                grant.learn(w, pages);
                lists.add(lock, grant.written);
                w.base.failing.check_machine(pages);
            } else {
                request.stage = RequestStage::Unlearnt(grant, counts);
            }
            match (token, hopeless) {
                (Some(token), _) if in_time && w.base.failing.broken().is_none() => {
                    w.base.statistics.locks += 1;
                    self.held.entry(lock).or_default().push(number);
                    w.releasing.guards.under_lock = true;
                    w.base.arrays.holds_locks = true;
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
            .filter(|(_, r)| matches!(r.stage, RequestStage::Waits | RequestStage::Deferred(..)))
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
    pub fn fail(&mut self, error: &CoherenceError, base: &mut Base<'_>) {
        for (number, request) in &mut self.requests {
            let Some(token) = request.token.take() else { continue };
            base.mail.fail(token, error.clone());
            if request.is_abandoned() {
                request.tell_manager(*number, true, base);
            }
        }
    }

    /// Returns the request to which this node will grant a lock itself, if it knows one that can
    /// have it (COH-7.9).
    pub fn receiver(&self, (lock, request): (u64, u64), base: &Base<'_>) -> Option<&Waiting> {
        let next = self.requests.get(&request)?.next.as_ref()?;
        let lives = |rank| !base.mail.is_dead(rank);
        let is_able = base.failing.broken().is_none() && lives(base.mail.manager(lock));
        (is_able && lives(next.of.rank)).then_some(next)
    }

    /// Gives a lock away: to the request that comes next if this node knows one, and otherwise to
    /// the manager (COH-7.9). This node's diffs are at their homes, except those to that node
    /// (COH-5.6).
    pub fn give_back(
        &mut self,
        (lock, request): (u64, u64),
        token: Token,
        (vector, changes): (Vector, PageChanges),
        lists: &mut WrittenLists,
        base: &mut Base<'_>,
    ) {
        let manager = base.mail.manager(lock);
        let mut past = Past { vector, epoch: base.clock.epoch, counts: WrittenCounts::default() };
        let reads = self.requests.get(&request).is_some_and(|known| known.mode.reads);
        if let Some(known) = self.requests.get_mut(&request) {
            match core::mem::replace(&mut known.stage, RequestStage::Waits) {
                RequestStage::Granted(counts) => past.counts = counts,
                RequestStage::Unlearnt(grant, counts) => {
                    past.counts = counts;
                    past.vector.merge(&grant.vector);
                    past.epoch = past.epoch.max(grant.epoch);
                    let intervals = grant.intervals.into_iter();
                    intervals.for_each(|interval| base.clock.knowledge.insert(interval));
                    lists.add(lock, grant.written);
                }
                RequestStage::Waits | RequestStage::Deferred(..) => {}
            }
        }
        // Others that read have the same position.
        if !changes.is_empty() && !reads {
            let (writer, interval) = (base.mail.me, past.vector.get(base.mail.me));
            let position = past.counts.all;
            lists.add(lock, [Written { position, writer, interval, changes }].into());
            past.counts.all = past.counts.all.saturating_add(1);
        }
        match self.receiver((lock, request), base) {
            Some(next) => {
                let body = base.mail.body(|out| {
                    out.put_leb128(u64::from(next.of.rank)).put_leb128(next.of.request);
                });
                let (head, purpose) = (Headline::Passed { lock, request }, Doing::Unlock(lock));
                base.mail.post(manager, Class::Ordered, head, body, Purpose::Control(purpose));
                let purpose = Purpose::Control(Doing::Lock(lock));
                grant(lock, next, &past, purpose, lists, base);
            }
            None => unlock((lock, request), &past, lists, base),
        }
        self.requests.remove(&request);
        // The lock is given back in any case, so that other nodes get it or their own error.
        let error = base.lock_impediment(&Doing::Unlock(lock), lock);
        base.end(token, error.map_or(Ok(Value::None), Err));
    }
}

/// Gives a lock back to its manager. The unlock tells what the next holder may not know (COH-7.2).
fn unlock((lock, request): (u64, u64), past: &Past, lists: &WrittenLists, base: &mut Base<'_>) {
    let manager = base.mail.manager(lock);
    let mut body = Vec::new();
    // Intervals whose changes did not reach their homes are not told (COH-5.4).
    if base.failing.broken().is_some() {
        body.put_u8(1);
    } else {
        body.put_u8(0);
        past.vector.write(&mut body);
        base.clock.knowledge.report(manager, &past.vector, &mut body);
        body.put_leb128(past.counts.all);
        Written::write_all(lists.since(lock, past.counts.told), &mut body);
    }
    let head = Headline::Unlock { lock, request, epoch: past.epoch };
    // The class is ordered because the next unlock to this manager leaves out what this one
    // tells.
    base.mail.post(
        manager,
        Class::Ordered,
        head,
        body.into(),
        Purpose::Control(Doing::Unlock(lock)),
    );
}
