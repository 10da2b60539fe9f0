//! One node's side of the locks in an arena: what its threads wait for, and whom they wake.

use super::locks::{LockState, LockTicket, Locks};
use super::words::Words;
use crate::shm::control_socket::ControlSocket;
use crate::shm::memory::{Ordering, fence};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockView;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Node whose threads take locks.
pub trait LockHost {
    /// Returns `true` if a node has died, as far as this one knows.
    fn is_dead(&self, rank: Rank) -> bool;
    /// Wakes threads of this node that wait, because one of them has got a lock.
    fn wake_waiting(&self);
}

/// Locks of a job that have room in its arena.
#[derive(Debug)]
pub struct JobLocks {
    locks: Locks,
    words: Words,
    me: Rank,
    /// Control sockets to the other members, by which sleepers are woken.
    lines: BTreeMap<Rank, Arc<ControlSocket>>,
    /// Tickets for which threads of this node wait.
    waiting: Mutex<Vec<LockTicket>>,
    /// Their number, for readers that need no lock.
    count: AtomicUsize,
}

/// Lock that has an entry in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry(usize);

impl JobLocks {
    pub(super) fn new(
        locks: Locks,
        words: Words,
        me: Rank,
        lines: BTreeMap<Rank, Arc<ControlSocket>>,
    ) -> JobLocks {
        JobLocks { locks, words, me, lines, waiting: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// Returns the entry of a lock, or `None` if the lock belongs to its manager (COH-7), which all
    /// nodes find alike.
    #[inline]
    #[must_use]
    pub fn entry(&self, lock: u64) -> Option<LockEntry> {
        self.locks.entry(lock).map(LockEntry)
    }

    /// Describes a lock, if it has an entry.
    #[must_use]
    pub fn view(&self, lock: u64) -> Option<LockView> {
        self.locks.known_entry(lock).map(|entry| self.locks.view(entry))
    }

    /// Requests a lock. Returns `None` while as many requests wait as there is room for. The caller
    /// [looks](JobLocks::look) whether it has the lock.
    #[inline]
    #[must_use]
    pub fn request(&self, LockEntry(entry): LockEntry, host: &impl LockHost) -> Option<LockTicket> {
        let ticket = self.locks.take_ticket(entry)?;
        self.hand_over(ticket, host);
        Some(ticket)
    }

    /// Returns the state of a request of this node, which takes the lock if it was granted.
    #[inline]
    #[must_use]
    pub fn look(&self, ticket: LockTicket) -> LockState {
        self.locks.look(ticket)
    }

    /// Gives the lock to the next request that waits, if it is free. Another node may have ended
    /// before it could.
    #[inline]
    pub fn hand_over(&self, ticket: LockTicket, host: &impl LockHost) {
        match self.locks.advance(ticket, &|rank| host.is_dead(rank)) {
            None => {}
            Some(rank) if rank == self.me => host.wake_waiting(),
            Some(rank) => self.wake(rank),
        }
    }

    /// Wakes a member that sleeps, after its ticket was granted.
    fn wake(&self, rank: Rank) {
        // Either this node sees that the member sleeps, or the member sees the grant
        // (`Words::fall_asleep`).
        fence(Ordering::SeqCst);
        let Ok(member) = usize::try_from(rank) else { return };
        if let Some(line) = self.lines.get(&rank)
            && self.words.take_sleeper(member)
        {
            line.wake();
        }
        self.words.wake(self.words.take_word_sleeper_of_lock(member));
    }

    /// Returns the node that has a lock and knows it, if it is dead. Nobody gets the lock any more.
    #[must_use]
    pub fn dead_holder(&self, LockEntry(entry): LockEntry, host: &impl LockHost) -> Option<Rank> {
        match self.locks.holder(entry)? {
            (rank, LockState::Holds) if host.is_dead(rank) => Some(rank),
            _ => None,
        }
    }

    /// Ends a request that no thread waits for any longer. Returns `false` if it has the lock.
    #[must_use]
    pub fn cancel(&self, ticket: LockTicket) -> bool {
        self.locks.cancel(ticket)
    }

    /// Gives a lock back. The ticket may have been given back before, when the node left.
    #[inline]
    pub fn give_back(&self, ticket: LockTicket, host: &impl LockHost) {
        if self.locks.give_back(ticket) {
            self.hand_over(ticket, host);
        }
    }

    /// Gives back all locks that this node has, because it leaves.
    pub fn give_all_back(&self, host: &impl LockHost) {
        for entry in self.locks.taken_entries() {
            while let Some(ticket) = self.locks.own_ticket(entry) {
                // A thread that was granted it has not looked yet.
                let _ = self.locks.look(ticket);
                self.give_back(ticket, host);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<LockTicket>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a thread of this node waits for this request.
    pub(super) fn begin_wait(&self, ticket: LockTicket) {
        let mut waiting = self.waiting();
        waiting.push(ticket);
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Notes that no thread waits for this request any more.
    pub fn end_wait(&self, ticket: LockTicket) {
        let mut waiting = self.waiting();
        waiting.retain(|other| *other != ticket);
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Returns the number of requests for which threads of this node wait.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns `true` if a lock was granted to a thread of this node that has not looked yet.
    #[inline]
    #[must_use]
    pub fn is_granted_here(&self) -> bool {
        self.waits() > 0 && self.waiting().iter().any(|ticket| self.locks.is_granted(*ticket))
    }
}
