//! A node as the manager of locks (COH-7): one queue per lock, first come, first served (COH-7.1).

use super::Coherence;
use super::codec::{Headline, Reader, Writer};
use super::failure::Doing;
use super::knowledge::Vector;
use super::notices::Interval;
use super::post::Purpose;
use crate::Rank;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal};
use alloc::collections::VecDeque;

/// Requests waiting for one lock.
const QUEUE_MAX: usize = 1 << 16;

/// One request: who, its number there, and what it knew when it asked.
#[derive(Debug)]
struct Waiting {
    rank: Rank,
    request: u64,
    vector: Vector,
}

/// One lock.
#[derive(Debug)]
pub(super) struct Managed {
    holder: Option<(Rank, u64)>,
    queue: VecDeque<Waiting>,
    /// What its last holders knew.
    vector: Vector,
    /// How many collectives they had passed.
    epoch: u64,
    /// Somebody died holding it: what it protects may be half changed.
    broken: Option<Rank>,
}

impl Coherence {
    pub(super) fn manage_acquire(&mut self, from: Rank, lock: u64, request: u64, body: &[u8]) -> Result<(), Refusal> {
        let mut reader = Reader(body);
        let vector = Vector::read(&mut reader, self.nodes)?;
        reader.end()?;
        if self.manager(lock) != self.me {
            return Err(Refusal::UnknownObject);
        }
        let nodes = self.nodes;
        let managed = self.managed.entry(lock).or_insert_with(|| Managed {
            holder: None,
            queue: VecDeque::new(),
            vector: Vector::new(nodes),
            epoch: 0,
            broken: None,
        });
        if managed.queue.len() >= QUEUE_MAX {
            return Err(Refusal::NoRoom);
        }
        managed.queue.push_back(Waiting { rank: from, request, vector });
        if planted(Bug::GrantLockTwice) {
            managed.holder = None;
        }
        self.grant_next(lock);
        Ok(())
    }

    pub(super) fn manage_unlock(&mut self, from: Rank, lock: u64, request: u64, epoch: u64, body: &[u8]) -> Result<(), Refusal> {
        let mut reader = Reader(body);
        let vector = Vector::read(&mut reader, self.nodes)?;
        let intervals = Interval::read_all(&mut reader, self.nodes, &self.arrays)?;
        reader.end()?;
        let managed = self.managed.get_mut(&lock).ok_or(Refusal::UnknownObject)?;
        let is_holder = managed.holder == Some((from, request)) || planted(Bug::GrantLockTwice);
        if !is_holder || epoch > self.epoch.saturating_add(1) {
            return Err(Refusal::Malformed);
        }
        managed.holder = None;
        managed.vector.merge(&vector);
        managed.epoch = managed.epoch.max(epoch);
        intervals.into_iter().for_each(|interval| self.knowledge.insert(interval));
        self.grant_next(lock);
        Ok(())
    }

    /// Give a free lock to the first in its queue, with the intervals that it lacks. What this node has forgotten since a barrier,
    /// the acquirer knows when it has passed that barrier: so the grant says as of which epoch it is (COH-7.4).
    fn grant_next(&mut self, lock: u64) {
        while let Some(managed) = self.managed.get_mut(&lock) {
            if managed.holder.is_some() {
                return;
            }
            let Some(next) = managed.queue.pop_front() else { return };
            if self.dead.contains(&next.rank) {
                continue;
            }
            let mut body = Writer::default();
            let epoch = managed.epoch.max(self.epoch);
            match managed.broken {
                Some(rank) => {
                    body.byte(1);
                    body.number(u64::from(rank));
                }
                None => {
                    managed.holder = Some((next.rank, next.request));
                    body.byte(0);
                    managed.vector.write(&mut body);
                    Interval::write_all(self.knowledge.between(&next.vector, &managed.vector), &mut body);
                }
            }
            let head = Headline::Grant { lock, request: next.request, epoch };
            self.post(next.rank, Class::Unordered, head, body.0, Purpose::Control(Doing::Lock(lock)));
        }
    }

    /// A node is dead: locks that it held are broken.
    pub(super) fn manager_death(&mut self, dead: Rank) {
        let mut freed = alloc::vec::Vec::new();
        for (lock, managed) in &mut self.managed {
            managed.queue.retain(|waiting| waiting.rank != dead);
            if managed.holder.is_some_and(|(rank, _)| rank == dead) {
                managed.holder = None;
                managed.broken = Some(dead);
                freed.push(*lock);
            }
        }
        freed.into_iter().for_each(|lock| self.grant_next(lock));
    }
}
