//! A node's part as the manager of locks (COH-7): one queue per lock, first come, first served
//! (COH-7.1).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::mailbox::Purpose;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of requests that wait for one lock.
const QUEUE_MAX: usize = 1 << 16;

/// Maximum number of idle locks with a vector time of their own. Further idle locks share one
/// (COH-7.6).
const IDLE_LOCKS_MAX: usize = 1 << 12;

/// Maximum number of locks that are held or waited for.
const LOCKS_MAX: usize = 1 << 20;

/// One request: its node, its number there, and the node's vector time when it asked.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Waiting {
    rank: Rank,
    request: u64,
    vector: Vector,
}

/// Vector time of a lock's last holders, and the number of collectives that they had passed.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Past {
    vector: Vector,
    epoch: u64,
}

/// State of one lock.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Lock {
    holder: Option<(Rank, u64)>,
    queue: VecDeque<Waiting>,
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

/// State of one lock, as its manager knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockView {
    /// Node that the lock was granted to.
    pub holder: Option<Rank>,
    /// Node whose request is the oldest.
    pub first: Option<Rank>,
    /// Number of requests that wait.
    pub waiting: usize,
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
}

impl Past {
    fn merge(&mut self, vector: &Vector, epoch: u64) {
        self.vector.merge(vector);
        self.epoch = self.epoch.max(epoch);
    }
}

impl Lock {
    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty() && self.broken.is_none()
    }
}

impl Managed {
    pub fn new(nodes: u32) -> Managed {
        Managed {
            locks: BTreeMap::new(),
            forgotten: Past { vector: Vector::new(nodes), epoch: 0 },
            forget_at: IDLE_LOCKS_MAX,
            waiting: 0,
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
            queue: VecDeque::new(),
            past: forgotten.clone(),
            broken: None,
        }))
    }

    /// Returns `true` if any request waits for a lock.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Returns rank, lock and request of each holder of a lock that somebody waits for.
    pub fn holders_waited_for(&self) -> impl Iterator<Item = (Rank, u64, u64)> {
        // The search of all locks is skipped while nobody waits.
        let locks = self.has_waiting().then_some(&self.locks).into_iter().flatten();
        locks.filter(|(_, lock)| !lock.queue.is_empty()).filter_map(|(number, lock)| {
            let (rank, request) = lock.holder?;
            Some((rank, *number, request))
        })
    }

    /// Returns `true` if this request waits.
    pub fn is_queued(&self, rank: Rank, lock: u64, request: u64) -> bool {
        let known = self.locks.get(&lock);
        known.is_some_and(|lock| {
            lock.queue.iter().any(|waiting| (waiting.rank, waiting.request) == (rank, request))
        })
    }

    /// Merges idle locks whose past satisfies `may_be` into the shared past. A node that acquires
    /// one of them learns more than necessary, never less.
    fn forget(&mut self, may_be: impl Fn(&Past) -> bool) {
        let Managed { locks, forgotten, .. } = self;
        locks.retain(|_, lock| {
            let keeps = !lock.is_idle() || !may_be(&lock.past);
            if !keeps {
                forgotten.merge(&lock.past.vector, lock.past.epoch);
            }
            keeps
        });
        self.forget_at = (self.locks.len() * 2).clamp(IDLE_LOCKS_MAX, LOCKS_MAX);
    }

    pub fn acquire(
        &mut self,
        from: Rank,
        lock: u64,
        request: u64,
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let vector = base.clock.knowledge.read_vector(&mut reader)?;
        reader.end()?;
        if base.mail.manager(lock) != base.mail.me {
            return Err(Refusal::UnknownObject);
        }
        if self.entry(lock)?.queue.len() >= QUEUE_MAX {
            return Err(Refusal::NoRoom);
        }
        base.mail.owe(from, 1)?;
        let managed = self.entry(lock)?;
        managed.queue.push_back(Waiting { rank: from, request, vector });
        self.waiting += 1;
        if planted(Bug::GrantLockTwice)
            && let Some(managed) = self.locks.get_mut(&lock)
        {
            managed.holder = None;
        }
        self.grant_next(lock, base);
        Ok(())
    }

    pub fn unlock(
        &mut self,
        from: Rank,
        (lock, request, epoch): (u64, u64, u64),
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let reported = match reader.u8()? {
            0 => Some(base.clock.knowledge.read(&mut reader, base.arrays)?),
            1 => None,
            _ => return Err(Refusal::Malformed),
        };
        reader.end()?;
        let epoch_possible = base.epoch_possible();
        let managed = self.locks.get_mut(&lock).ok_or(Refusal::UnknownObject)?;
        let is_holder = managed.holder == Some((from, request)) || planted(Bug::GrantLockTwice);
        if !is_holder || epoch > epoch_possible {
            return Err(Refusal::Malformed);
        }
        managed.holder = None;
        match reported {
            Some((vector, intervals)) => {
                managed.past.merge(&vector, epoch);
                intervals.into_iter().for_each(|interval| base.clock.knowledge.insert(interval));
            }
            None => managed.broken = Some(Broken::Unfit(from)),
        }
        self.grant_next(lock, base);
        Ok(())
    }

    /// Gives a free lock to the first request in its queue, with the intervals that the acquirer
    /// lacks. The acquirer knows what this node has forgotten since a barrier only after it has
    /// passed that barrier. So the grant names its epoch (COH-7.4).
    fn grant_next(&mut self, lock: u64, base: &mut Base<'_>) {
        while let Some(managed) = self.locks.get_mut(&lock) {
            if managed.holder.is_some() {
                return;
            }
            let Some(next) = managed.queue.pop_front() else { return };
            self.waiting = self.waiting.saturating_sub(1);
            if base.mail.is_dead(next.rank) {
                continue;
            }
            let mut body = Vec::new();
            let epoch = managed.past.epoch.max(base.clock.epoch);
            match managed.broken {
                Some(broken) => {
                    let (code, rank) = match broken {
                        Broken::Died(rank) => (1, rank),
                        Broken::Unfit(rank) => (2, rank),
                    };
                    body.put_u8(code);
                    body.put_leb128(u64::from(rank));
                }
                None => {
                    managed.holder = Some((next.rank, next.request));
                    body.put_u8(0);
                    managed.past.vector.write(&mut body);
                    Interval::write_all(
                        base.clock.knowledge.between(&next.vector, &managed.past.vector),
                        &mut body,
                    );
                }
            }
            let head = Headline::Grant { lock, request: next.request, epoch };
            base.mail.post(next.rank, Class::Unordered, head, body.into(), Purpose::Grant(lock));
        }
    }

    /// Describes a lock that this node manages.
    pub fn view(&self, lock: u64) -> LockView {
        let view = |lock: &Lock| LockView {
            holder: lock.holder.map(|(rank, _)| rank),
            first: lock.queue.front().map(|waiting| waiting.rank),
            waiting: lock.queue.len(),
        };
        self.locks.get(&lock).map(view).unwrap_or_default()
    }

    /// Forgets idle locks after a collective. No lock needs to tell a past that every node knows
    /// (COH-7.6).
    pub fn forget_known(&mut self, base: &Vector) {
        self.forget(|past| base.covers(&past.vector));
    }

    /// Breaks the locks that a dead node held.
    pub fn free_from(&mut self, dead: Rank, base: &mut Base<'_>) {
        let (mut freed, mut dropped) = (alloc::vec::Vec::new(), 0);
        for (lock, managed) in &mut self.locks {
            let before = managed.queue.len();
            managed.queue.retain(|waiting| waiting.rank != dead);
            dropped += before - managed.queue.len();
            if managed.holder.is_some_and(|(rank, _)| rank == dead) {
                managed.holder = None;
                managed.broken = Some(Broken::Died(dead));
                freed.push(*lock);
            }
        }
        self.waiting = self.waiting.saturating_sub(dropped);
        freed.into_iter().for_each(|lock| self.grant_next(lock, base));
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_LOCKS_MAX, LOCKS_MAX, Managed};
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
            managed.entry(number).unwrap().past.merge(&vector(number), number / 100);
        }
        assert!(managed.locks.len() <= IDLE_LOCKS_MAX);
        let first = managed.entry(0).unwrap();
        assert!(first.past.vector.get(0) >= IDLE_LOCKS_MAX as u64);
        assert!(first.past.epoch >= IDLE_LOCKS_MAX as u64 / 100);
        let base = vector(u64::MAX);
        managed.forget(|past| base.covers(&past.vector));
        assert!(managed.locks.is_empty());
    }

    /// COH-9.1: held locks are not forgotten, and their number is bounded.
    #[test]
    fn locks_in_use_are_kept_up_to_a_limit() {
        let mut managed = Managed::new(2);
        for number in 0..LOCKS_MAX as u64 {
            managed.entry(number).unwrap().holder = Some((1, number));
        }
        for number in LOCKS_MAX as u64..LOCKS_MAX as u64 + 9 {
            assert_eq!(managed.entry(number).err(), Some(Refusal::NoRoom));
        }
        assert_eq!(managed.entry(7).unwrap().holder, Some((1, 7)));
        managed.entry(7).unwrap().holder = None;
        assert!(managed.entry(u64::MAX).is_ok(), "one is idle again");
    }
}
