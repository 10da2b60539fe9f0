//! A node's part as the manager of locks (COH-7): one queue per lock, first come, first served
//! (COH-7.1). The manager tells each entry of a queue which entry comes next, and a holder grants
//! the lock to that one directly (COH-7.9).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::{Headline, Wait};
use crate::coherence::failing::doing::Doing;
use crate::coherence::locking::written::{Written, WrittenCounts, WrittenLists};
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::types::LockMode;
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Refusal};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of requests that wait for one lock.
const QUEUE_MAX: usize = 1 << 16;

/// Maximum number of idle locks with a vector time of their own. Further idle locks share one
/// (COH-7.6).
const IDLE_LOCKS_MAX: usize = 1 << 12;

/// Maximum number of locks that are held or waited for.
const LOCKS_MAX: usize = 1 << 20;

/// Request for a lock: its node, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct LockRequest {
    pub rank: Rank,
    pub request: u64,
}

/// Request in the queue, and the node's vector time when it asked.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Waiting {
    pub of: LockRequest,
    pub reads: bool,
    /// No thread waits for it, as its node has told (COH-7.15).
    pub abandoned: bool,
    pub vector: Vector,
}

/// Request that has the lock, or gets it by a grant on its way.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Holder {
    of: LockRequest,
    /// Node whose grant may be on its way, if another node than the manager has granted the lock.
    giver: Option<Rank>,
}

/// Vector time of a lock's last holders, the number of collectives that they had passed, and how
/// many intervals have written under the lock.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Past {
    pub vector: Vector,
    pub epoch: u64,
    pub counts: WrittenCounts,
}

/// State of one lock.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Lock {
    holder: Option<Holder>,
    /// Requests that have the lock for reading (COH-7.14). There is no holder meanwhile.
    readers: Vec<LockRequest>,
    queue: VecDeque<Waiting>,
    /// Earlier holders that have passed the lock on, as the message of a later holder has shown.
    /// Their own messages are on their way (COH-7.10).
    passed: Vec<LockRequest>,
    /// Request that was asked whether it has got the lock (COH-7.11).
    asked: Option<LockRequest>,
    /// Knowledge of the last holder that gave the lock back to the manager.
    past: Past,
    /// Set if the data that the lock protects may be half changed.
    broken: Option<Broken>,
}

/// Reason why a lock cannot be acquired any more.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
enum Broken {
    /// This node died while it held the lock.
    Died(Rank),
    /// This node held the lock and cannot go on. Its writes are perhaps not at their homes
    /// (COH-8.4).
    Unfit(Rank),
}

/// Reason why a request does not get a lock.
#[derive(Clone, Copy, Debug)]
enum RefusedLock {
    Broken(Broken),
    /// Another request has the lock, and this one does not wait (COH-7.12).
    Taken,
}

/// State of one lock, as its manager knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockView {
    /// Node that the lock was granted to.
    pub holder: Option<Rank>,
    /// Node whose request is the oldest that a thread waits for.
    pub first: Option<Rank>,
    /// Number of requests that wait.
    pub waiting: usize,
    /// Number of requests that keep their places, and that no thread waits for any longer
    /// (COH-7.5). A manager does not know of those that read.
    pub abandoned: usize,
}

/// Locks that this node manages.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Managed {
    locks: BTreeMap<u64, Lock>,
    /// Joined past of all locks that are not kept apart.
    forgotten: Past,
    /// Number of kept locks at which the idle ones are forgotten.
    forget_at: usize,
    /// Number of requests in all queues.
    waiting: usize,
    /// Changes under locks, for grants of this node as a manager or as a holder.
    pub written: WrittenLists,
}

impl Past {
    fn new(nodes: u32) -> Past {
        Past { vector: Vector::new(nodes), epoch: 0, counts: WrittenCounts::default() }
    }

    fn merge(&mut self, other: &Past) {
        self.vector.merge(&other.vector);
        self.epoch = self.epoch.max(other.epoch);
        // Positions never begin again, so that what nodes keep of a lock stays in order.
        self.counts.all = self.counts.all.max(other.counts.all);
        self.counts.told = self.counts.all;
    }
}

impl Lock {
    fn is_idle(&self) -> bool {
        let is_held = self.holder.is_some() || !self.readers.is_empty();
        let is_used = is_held || !self.queue.is_empty() || !self.passed.is_empty();
        !is_used && self.broken.is_none()
    }

    /// Returns `true` if a request of this mode can have the lock at once.
    fn is_free_for(&self, mode: LockMode) -> bool {
        let may_read = self.readers.is_empty() || mode.reads;
        self.holder.is_none() && self.queue.iter().all(|one| one.abandoned) && may_read
    }

    /// Returns the place in the queue of the request that can have the lock next. That is the first
    /// one, and one that writes waits for all that read. One that reads passes by those that no
    /// thread waits for (COH-7.15).
    fn next_place(&self) -> Option<usize> {
        let awaited = |one: &Waiting| !one.abandoned || planted(Bug::AwaitAbandoned);
        let reader = self.queue.iter().position(awaited);
        let reader = reader.filter(|place| self.queue.get(*place).is_some_and(|one| one.reads));
        let is_drained = self.readers.is_empty() || planted(Bug::GrantBesideReaders);
        let first = || (is_drained && !self.queue.is_empty()).then_some(0);
        reader.or_else(first).filter(|_| self.holder.is_none())
    }

    /// Takes a request away that has the lock for reading. Returns `true` if there was one.
    fn end_reader(&mut self, of: LockRequest) -> bool {
        let place = self.readers.iter().position(|one| *one == of);
        place.map(|place| self.readers.swap_remove(place)).is_some()
    }

    /// Returns the requests that have the lock.
    fn holders(&self) -> impl Iterator<Item = LockRequest> {
        let writer = self.holder.iter().map(|holder| holder.of);
        writer.chain(self.readers.iter().copied())
    }

    /// Returns the place of a request among the holder and those behind it.
    fn place(&self, of: LockRequest) -> Option<usize> {
        let holder = self.holder.iter().map(|holder| holder.of);
        holder.chain(self.queue.iter().map(|waiting| waiting.of)).position(|one| one == of)
    }

    /// Returns the first living request, if a death makes it doubtful which one has the lock. That
    /// is so if the holder is dead, or the node that may not have granted it the lock.
    fn doubtful(&self, mail: &Mailbox) -> Option<Option<LockRequest>> {
        let Holder { of, giver } = self.holder?;
        let is_dead = mail.is_dead(of.rank);
        let by_dead = giver.is_some_and(|giver| mail.is_dead(giver));
        let first = if is_dead { self.queue.front().map(|waiting| waiting.of) } else { Some(of) };
        (is_dead || (by_dead && !planted(Bug::TrustDeadGiver))).then_some(first)
    }

    /// Returns `true` if a later holder has shown that this request has the lock no more. Its own
    /// message has come now (COH-7.10).
    fn take_passed(&mut self, of: LockRequest) -> bool {
        let place = self.passed.iter().position(|one| *one == of);
        place.map(|place| self.passed.swap_remove(place)).is_some()
    }

    /// Checks that this request can have had the lock alone. The messages of one node are in order,
    /// so no earlier request of it has the lock or waits.
    fn check_end(&self, of: LockRequest) -> Result<usize, Refusal> {
        let holder = self.holder.iter().map(|holder| holder.of);
        let mut all = holder.chain(self.queue.iter().map(|waiting| waiting.of));
        let first = all.position(|one| one.rank == of.rank);
        let place = self.place(of).filter(|place| first == Some(*place));
        let place = place.ok_or(Refusal::Malformed)?;
        // The manager alone grants the lock to requests that read, and after them.
        let reads = |one: &Waiting| one.reads;
        if self.holder.is_none() || self.queue.iter().take(place).any(reads) {
            return Err(Refusal::Malformed);
        }
        if self.passed.len() + place > QUEUE_MAX {
            return Err(Refusal::NoRoom);
        }
        Ok(place)
    }

    /// Takes the holder away, and all before this request, which has the lock no more. Returns how
    /// many requests this takes out of the queue.
    fn end_until(&mut self, of: LockRequest, mail: &mut Mailbox) -> usize {
        let Some(place) = self.place(of) else { return 0 };
        debug_assert!(place == 0 || !planted(Bug::ExpectOrderedPasses), "a later holder is first");
        let before = self.holder.take().map(|holder| holder.of);
        let gone: Vec<LockRequest> = self.queue.drain(..place).map(|waiting| waiting.of).collect();
        for one in &gone {
            mail.owe_less(one.rank);
        }
        let earlier = before.into_iter().chain(gone.iter().copied());
        self.passed.extend(earlier.filter(|one| *one != of && !mail.is_dead(one.rank)));
        gone.len()
    }

    /// Makes the first request of the queue the holder, which another node has granted the lock.
    fn take_first(&mut self, giver: Option<Rank>, mail: &mut Mailbox) {
        if let Some(first) = self.queue.pop_front() {
            mail.owe_less(first.of.rank);
            self.holder = Some(Holder { of: first.of, giver });
        }
    }
}

impl Managed {
    pub fn new(nodes: u32) -> Managed {
        Managed {
            locks: BTreeMap::new(),
            forgotten: Past::new(nodes),
            forget_at: IDLE_LOCKS_MAX,
            waiting: 0,
            written: WrittenLists::default(),
        }
    }

    /// Returns the lock of this number, and creates it if nobody has used it yet.
    fn entry(&mut self, number: u64) -> Result<&mut Lock, Refusal> {
        if self.locks.len() >= self.forget_at && !self.locks.contains_key(&number) {
            self.forget(|_| true);
            if self.locks.len() >= LOCKS_MAX {
                return Err(Refusal::NoRoom);
            }
        }
        let Managed { locks, forgotten, .. } = self;
        Ok(locks.entry(number).or_insert_with(|| Lock {
            holder: None,
            readers: Vec::new(),
            queue: VecDeque::new(),
            passed: Vec::new(),
            asked: None,
            past: forgotten.clone(),
            broken: None,
        }))
    }

    /// Returns `true` if any request waits for a lock.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Returns lock and request of each holder of a lock that somebody waits for.
    pub fn holders_waited_for(&self) -> impl Iterator<Item = (u64, LockRequest)> {
        // The search of all locks is skipped while nobody waits.
        let locks = self.has_waiting().then_some(&self.locks).into_iter().flatten();
        locks
            .filter(|(_, lock)| !lock.queue.is_empty())
            .flat_map(|(number, lock)| lock.holders().map(|of| (*number, of)))
    }

    /// Returns lock and request of each question that is not answered (COH-7.11).
    pub fn asked(&self) -> impl Iterator<Item = (u64, LockRequest)> {
        let locks = self.has_waiting().then_some(&self.locks).into_iter().flatten();
        locks.filter_map(|(number, lock)| Some((*number, lock.asked?)))
    }

    /// Returns `true` if this request waits.
    pub fn is_queued(&self, of: LockRequest, lock: u64) -> bool {
        let known = self.locks.get(&lock);
        known.is_some_and(|lock| lock.queue.iter().any(|waiting| waiting.of == of))
    }

    /// Returns the node that has passed a lock on to this request.
    pub fn giver(&self, lock: u64, of: LockRequest) -> Option<Rank> {
        self.locks.get(&lock)?.holder.filter(|holder| holder.of == of)?.giver
    }

    /// Learns that the grant of a holder is on its way to this request of another node, which waits
    /// for it and has asked this node.
    pub fn take_reply_of_giver(
        &mut self,
        from: Rank,
        (lock, request): (u64, u64),
        base: &mut Base<'_>,
    ) {
        let holder = self.locks.get(&lock).and_then(|lock| lock.holder);
        let is_of = |holder: &Holder| holder.of.request == request && holder.giver == Some(from);
        let Some(Holder { of, .. }) = holder.filter(is_of) else { return };
        if base.mail.owe(of.rank, 1).is_ok() {
            let head = Headline::Reply { wait: Wait::Lock { lock, request }, owed: true };
            base.mail.post(of.rank, Class::Unordered, head, Body::Empty, Purpose::Reply);
        }
    }

    /// Merges idle locks whose past satisfies `may_be` into the shared past. A node that acquires
    /// one of them learns more than necessary, never less.
    fn forget(&mut self, may_be: impl Fn(&Past) -> bool) {
        let Managed { locks, forgotten, .. } = self;
        locks.retain(|_, lock| {
            let keeps = !lock.is_idle() || !may_be(&lock.past);
            if !keeps {
                forgotten.merge(&lock.past);
            }
            keeps
        });
        self.forget_at = (self.locks.len() * 2).clamp(IDLE_LOCKS_MAX, LOCKS_MAX);
    }

    pub fn acquire(
        &mut self,
        from: Rank,
        (lock, request, mode): (u64, u64, LockMode),
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let vector = base.clock.knowledge.read_vector(&mut reader)?;
        reader.end()?;
        if base.mail.manager(lock) != base.mail.me {
            return Err(Refusal::UnknownObject);
        }
        let managed = self.entry(lock)?;
        let is_refused = mode.tries && !managed.is_free_for(mode) && !planted(Bug::QueueTries);
        let is_full = managed.queue.len() >= QUEUE_MAX || managed.readers.len() >= QUEUE_MAX;
        if is_full && !is_refused {
            return Err(Refusal::NoRoom);
        }
        base.mail.owe(from, 1)?;
        let of = LockRequest { rank: from, request };
        let managed = self.entry(lock)?;
        if is_refused {
            refuse(lock, of, RefusedLock::Taken, Purpose::Grant(lock), base);
            return Ok(());
        }
        let last = match managed.queue.back() {
            Some(waiting) => Some(waiting.of).filter(|_| !waiting.reads),
            None => managed.holder.map(|holder| holder.of),
        };
        if let Some(last) = last.filter(|_| !mode.reads) {
            tell_next(lock, last, of, &vector, base.mail);
        }
        managed.queue.push_back(Waiting { of, reads: mode.reads, abandoned: false, vector });
        self.waiting += 1;
        if planted(Bug::GrantLockTwice)
            && let Some(managed) = self.locks.get_mut(&lock)
        {
            managed.holder = None;
        }
        self.grant_next(lock, base);
        Ok(())
    }

    /// Learns whether a thread waits for a request. The message may cross the grant.
    pub fn abandon(
        &mut self,
        from: Rank,
        (lock, request): (u64, u64),
        abandoned: bool,
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        if base.mail.manager(lock) != base.mail.me {
            return Err(Refusal::UnknownObject);
        }
        let of = LockRequest { rank: from, request };
        let queue = self.locks.get_mut(&lock).into_iter().flat_map(|lock| &mut lock.queue);
        queue.filter(|one| one.of == of && !one.reads).for_each(|one| one.abandoned = abandoned);
        self.grant_next(lock, base);
        Ok(())
    }

    /// Takes a lock back.
    pub fn unlock(
        &mut self,
        from: Rank,
        (lock, request, epoch): (u64, u64, u64),
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let reported = match reader.u8()? {
            0 => {
                let (vector, intervals) = base.clock.knowledge.read(&mut reader, base.arrays)?;
                let counts = WrittenCounts { all: reader.leb128()?, told: 0 };
                let written = Written::read_all(&mut reader, base.mail.nodes, base.arrays)?;
                Some((Past { vector, epoch, counts }, intervals, written))
            }
            1 => None,
            _ => return Err(Refusal::Malformed),
        };
        reader.end()?;
        let epoch_possible = base.epoch_possible();
        let managed = self.locks.get_mut(&lock).ok_or(Refusal::UnknownObject)?;
        let of = LockRequest { rank: from, request };
        if epoch > epoch_possible {
            return Err(Refusal::Malformed);
        }
        let was_reader = managed.end_reader(of);
        if !was_reader && !managed.take_passed(of) {
            if !planted(Bug::GrantLockTwice) {
                managed.check_end(of)?;
            }
            self.waiting -= managed.end_until(of, base.mail);
        }
        match reported {
            Some((past, intervals, written)) => {
                managed.past.merge(&past);
                self.written.add(lock, written);
                intervals.into_iter().for_each(|interval| base.clock.knowledge.insert(interval));
            }
            None if was_reader => {}
            None => managed.broken = Some(Broken::Unfit(from)),
        }
        self.grant_next(lock, base);
        Ok(())
    }

    /// Learns that a holder has granted the lock to the next request (COH-7.9).
    pub fn passed(
        &mut self,
        from: Rank,
        (lock, request): (u64, u64),
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let to = LockRequest { rank: reader.leb128_u32()?, request: reader.leb128()? };
        reader.end()?;
        let of = LockRequest { rank: from, request };
        let managed = self.locks.get_mut(&lock).ok_or(Refusal::UnknownObject)?;
        if managed.take_passed(of) {
            return Ok(());
        }
        let place = managed.check_end(of)?;
        let is_next = managed.place(to) == Some(place + 1);
        if is_next && managed.queue.get(place).is_some_and(|next| next.reads) {
            return Err(Refusal::Malformed);
        }
        // A request of a dead node is in the queue no more.
        if !is_next && !base.mail.is_dead(to.rank) {
            return Err(Refusal::Malformed);
        }
        self.waiting -= managed.end_until(of, base.mail);
        managed.holder = Some(Holder { of: to, giver: Some(from) });
        if is_next {
            managed.take_first(Some(from), base.mail);
            self.waiting -= 1;
        }
        self.find_holder(lock, base);
        Ok(())
    }

    /// Finds out which request has the lock, if a death has made that doubtful. The first living
    /// request knows, once it has noted the deaths: no grant of a dead node comes after that
    /// (COH-7.11).
    fn find_holder(&mut self, lock: u64, base: &mut Base<'_>) {
        let Some(managed) = self.locks.get_mut(&lock) else { return };
        let Some(first) = managed.doubtful(base.mail) else { return };
        let Some(first) = first.filter(|_| !planted(Bug::BreakPassedLock)) else {
            return self.break_lock(lock, base);
        };
        if managed.asked.replace(first) == Some(first) {
            return;
        }
        let purpose = || Purpose::Control(Doing::Message);
        for dead in base.mail.dead().to_vec() {
            let head = Headline::Died { rank: dead };
            base.mail.post(first.rank, Class::Ordered, head, Body::Empty, purpose());
        }
        let wait = Wait::Granted { lock, request: first.request };
        let head = Headline::Question { wait };
        base.mail.post(first.rank, Class::Ordered, head, Body::Empty, purpose());
    }

    /// Learns whether a request has got the lock.
    pub fn take_reply(
        &mut self,
        from: Rank,
        (lock, request): (u64, u64),
        has_lock: bool,
        base: &mut Base<'_>,
    ) {
        let of = LockRequest { rank: from, request };
        let Some(managed) = self.locks.get_mut(&lock) else { return };
        if managed.asked != Some(of) {
            return;
        }
        managed.asked = None;
        let is_doubtful = managed.doubtful(base.mail).is_some();
        match managed.place(of) {
            Some(_) if !is_doubtful => {}
            Some(_) if !has_lock => self.break_lock(lock, base),
            Some(0) => managed.holder = Some(Holder { of, giver: None }),
            Some(_) => {
                managed.take_first(None, base.mail);
                self.waiting -= 1;
            }
            None => self.find_holder(lock, base),
        }
    }

    /// Gives a lock up, because a node has died that may have had it.
    fn break_lock(&mut self, lock: u64, base: &mut Base<'_>) {
        let Some(managed) = self.locks.get_mut(&lock) else { return };
        let Some(Holder { of, giver }) = managed.holder.take() else { return };
        managed.asked = None;
        let is_dead = base.mail.is_dead(of.rank);
        let dead = if is_dead { of.rank } else { giver.unwrap_or(of.rank) };
        managed.broken = Some(Broken::Died(dead));
        if !is_dead {
            // The holder's grant was not owed by this node, so nor is this answer.
            let purpose = Purpose::Control(Doing::Lock(lock));
            refuse(lock, of, RefusedLock::Broken(Broken::Died(dead)), purpose, base);
        }
        self.grant_next(lock, base);
    }

    /// Gives a free lock to the first request in its queue, with the intervals that the acquirer
    /// lacks.
    fn grant_next(&mut self, lock: u64, base: &mut Base<'_>) {
        while let Some(managed) = self.locks.get_mut(&lock) {
            let place = managed.next_place();
            let Some(next) = place.and_then(|place| managed.queue.remove(place)) else { return };
            let of = next.of;
            self.waiting -= 1;
            if base.mail.is_dead(of.rank) {
                continue;
            }
            if let Some(broken) = managed.broken {
                refuse(lock, of, RefusedLock::Broken(broken), Purpose::Grant(lock), base);
                continue;
            }
            match next.reads {
                true => managed.readers.push(of),
                false => managed.holder = Some(Holder { of, giver: None }),
            }
            grant(lock, &next, &managed.past, Purpose::Grant(lock), &self.written, base);
        }
    }

    /// Describes a lock that this node manages.
    pub fn view(&self, lock: u64) -> LockView {
        let view = |lock: &Lock| {
            let waiting = || lock.queue.iter().filter(|one| !one.abandoned);
            LockView {
                holder: lock.holders().next().map(|holder| holder.rank),
                first: waiting().next().map(|one| one.of.rank),
                waiting: waiting().count(),
                abandoned: lock.queue.len() - waiting().count(),
            }
        };
        self.locks.get(&lock).map(view).unwrap_or_default()
    }

    /// Forgets idle locks after a collective. No lock needs to tell a past that every node knows
    /// (COH-7.6).
    pub fn forget_known(&mut self, base: &Vector) {
        self.forget(|past| base.covers(&past.vector));
    }

    /// Takes a dead node out of all queues, and finds out who has the locks that it may have had. A
    /// node that only read leaves nothing half changed.
    pub fn free_from(&mut self, dead: Rank, base: &mut Base<'_>) {
        let (mut doubtful, mut free, mut dropped) = (Vec::new(), Vec::new(), 0);
        for (lock, managed) in &mut self.locks {
            let before = managed.queue.len();
            managed.queue.retain(|waiting| waiting.of.rank != dead);
            managed.passed.retain(|one| one.rank != dead);
            managed.readers.retain(|one| one.rank != dead);
            dropped += before - managed.queue.len();
            if managed.doubtful(base.mail).is_some() {
                doubtful.push(*lock);
            } else if managed.next_place().is_some() {
                free.push(*lock);
            }
        }
        self.waiting -= dropped;
        doubtful.into_iter().for_each(|lock| self.find_holder(lock, base));
        free.into_iter().for_each(|lock| self.grant_next(lock, base));
    }
}

/// Tells the last request in a queue which one comes next.
fn tell_next(lock: u64, last: LockRequest, next: LockRequest, vector: &Vector, mail: &mut Mailbox) {
    let body = mail.body(|out| {
        out.put_leb128(u64::from(next.rank)).put_leb128(next.request);
        vector.write(out);
    });
    let head = Headline::Next { lock, request: last.request };
    mail.post(last.rank, Class::Ordered, head, body, Purpose::Control(Doing::Lock(lock)));
}

/// Grants a lock to a request, with the intervals and the changes that the acquirer lacks. The
/// acquirer knows what this node has forgotten since a barrier only after it has passed that
/// barrier. So the grant names its epoch (COH-7.4). A page homed at the acquirer has the changes of
/// this node when the grant has come, because the grant is behind them (COH-5.6).
pub(crate) fn grant(
    lock: u64,
    to: &Waiting,
    past: &Past,
    purpose: Purpose,
    lists: &WrittenLists,
    base: &mut Base<'_>,
) {
    let Waiting { of: LockRequest { rank, request }, vector: known, .. } = to;
    let mut body = Vec::new();
    body.put_u8(0);
    past.vector.write(&mut body);
    Interval::write_all(base.clock.knowledge.between(known, &past.vector), &mut body);
    body.put_leb128(past.counts.all).put_leb128(past.counts.told);
    let news = lists.news(lock, *rank, known, &past.vector);
    Written::write_all(news.iter().copied(), &mut body);
    let epoch = past.epoch.max(base.clock.epoch);
    let head = Headline::Grant { lock, request: *request, epoch };
    let is_behind = base.mail.diffs.has_any_to(*rank) && !planted(Bug::GrantAheadOfDiffs);
    let class = if is_behind { Class::Ordered } else { Class::Unordered };
    base.mail.post(*rank, class, head, body.into(), purpose);
}

/// Tells a request that it does not get the lock.
fn refuse(lock: u64, to: LockRequest, why: RefusedLock, purpose: Purpose, base: &mut Base<'_>) {
    let (code, rank) = match why {
        RefusedLock::Broken(Broken::Died(rank)) => (1, Some(rank)),
        RefusedLock::Broken(Broken::Unfit(rank)) => (2, Some(rank)),
        RefusedLock::Taken => (3, None),
    };
    let body = base.mail.body(|out| {
        out.put_u8(code);
        rank.into_iter().for_each(|rank| {
            out.put_leb128(u64::from(rank));
        });
    });
    let head = Headline::Grant { lock, request: to.request, epoch: base.clock.epoch };
    base.mail.post(to.rank, Class::Unordered, head, body, purpose);
}

#[cfg(test)]
mod tests {
    use super::{Holder, IDLE_LOCKS_MAX, LOCKS_MAX, LockRequest, Managed, Past};
    use crate::coherence::clock::vector::Vector;
    use crate::wind::Refusal;

    fn vector(first: u64) -> Vector {
        let mut vector = Vector::new(2);
        vector.raise(0, first);
        vector
    }

    /// COH-7.6: locks that were used once cost nothing for ever, and no past is lost.
    #[test]
    fn idle_locks_are_kept_within_bounds_and_their_past_is_not_lost() {
        let mut managed = Managed::new(2);
        for number in 0..3 * IDLE_LOCKS_MAX as u64 {
            let past = Past { vector: vector(number), epoch: number / 100, ..Past::new(2) };
            managed.entry(number).unwrap().past.merge(&past);
        }
        assert!(managed.locks.len() <= IDLE_LOCKS_MAX);
        let first = managed.entry(0).unwrap();
        assert!(first.past.vector.get(0) >= IDLE_LOCKS_MAX as u64);
        assert!(first.past.epoch >= IDLE_LOCKS_MAX as u64 / 100);
        let base = vector(u64::MAX);
        managed.forget(|past| base.covers(&past.vector));
        assert!(managed.locks.is_empty());
    }

    fn held(request: u64) -> Option<Holder> {
        Some(Holder { of: LockRequest { rank: 1, request }, giver: None })
    }

    /// COH-9.1: held locks are not forgotten, and their number is bounded.
    #[test]
    fn locks_in_use_are_kept_up_to_a_limit() {
        let mut managed = Managed::new(2);
        for number in 0..LOCKS_MAX as u64 {
            managed.entry(number).unwrap().holder = held(number);
        }
        for number in LOCKS_MAX as u64..LOCKS_MAX as u64 + 9 {
            assert_eq!(managed.entry(number).err(), Some(Refusal::NoRoom));
        }
        assert_eq!(managed.entry(7).unwrap().holder.unwrap().of.request, 7);
        managed.entry(7).unwrap().holder = None;
        assert!(managed.entry(u64::MAX).is_ok(), "one is idle again");
    }
}
