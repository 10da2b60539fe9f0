//! One node's side of the locks in an arena: what its threads wait for, and whom they wake.

use super::locks::{LockLoss, LockState, LockTicket, Locks};
use super::words::Words;
use crate::processes::signals::{Locked, locked};
use crate::shm::control_socket::ControlSocket;
use crate::shm::memory::{Ordering, fence};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::LockView;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};
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
    members: u32,
    /// Control sockets to the other members, by which sleepers are woken.
    lines: BTreeMap<Rank, Arc<ControlSocket>>,
    /// Locks for which threads of this node wait.
    waiting: Mutex<Vec<LockWaiter>>,
    /// Their number, for readers that need no lock.
    count: AtomicUsize,
    /// Is `true` once this node leaves, and takes no lock any more.
    is_leaving: AtomicBool,
}

/// Lock that has an entry in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEntry(usize);

#[cfg(test)]
impl LockEntry {
    /// Returns the place of the entry among all.
    pub(super) fn place(self) -> usize {
        self.0
    }
}

/// Thread of this node that waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    /// Lock that it waits for.
    pub entry: LockEntry,
    /// Its request, or `None` while there is no room for it.
    pub ticket: Option<LockTicket>,
}

impl LockTicket {
    /// Returns the entry of the lock that was requested.
    #[must_use]
    pub fn lock_entry(self) -> LockEntry {
        LockEntry(self.entry())
    }
}

impl JobLocks {
    pub(super) fn new(
        locks: Locks,
        words: Words,
        (me, members): (Rank, u32),
        lines: BTreeMap<Rank, Arc<ControlSocket>>,
    ) -> JobLocks {
        JobLocks {
            locks,
            words,
            me,
            members,
            lines,
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// Returns the memory of the locks.
    #[cfg(test)]
    pub(super) fn memory(&self) -> crate::shm::memory::Memory {
        self.locks.memory()
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
    pub fn view(&self, lock: u64, host: &impl LockHost) -> Option<LockView> {
        let is_dead = |rank| self.is_dead(rank, host);
        self.locks.known_entry(lock).map(|entry| self.locks.view(entry, &is_dead))
    }

    /// Requests a lock, alone or for reading. Returns `None` while there is no room for the
    /// request, and once this node leaves. The caller [looks](JobLocks::look) whether it has the
    /// lock.
    #[inline]
    #[must_use]
    pub fn request(
        &self,
        LockEntry(entry): LockEntry,
        reads: bool,
        host: &impl LockHost,
    ) -> Option<LockTicket> {
        if self.is_leaving() {
            return None;
        }
        let ticket = self.locks.take_ticket(entry, reads);
        let ticket = ticket.or_else(|| self.request_room(entry, reads, host))?;
        self.hand_over(ticket, host);
        Some(ticket)
    }

    /// Takes a lock if no request has it or waits for it, except for those that read together with
    /// this one. Returns `None` if there is one, and once this node leaves.
    #[must_use]
    pub fn try_request(
        &self,
        LockEntry(entry): LockEntry,
        reads: bool,
        host: &impl LockHost,
    ) -> Option<LockTicket> {
        if self.is_leaving() {
            return None;
        }
        // Tickets that are over may be at the head of the queue. A ticket of this request may only
        // join a queue in which it need not wait, because it would keep its place there.
        self.hand_over(LockTicket::of_nobody(entry), host);
        if self.locks.is_taken(entry, reads, &|rank| self.is_dead(rank, host)) {
            return None;
        }
        let ticket = self.locks.take_ticket(entry, reads)?;
        self.hand_over(ticket, host);
        // Another request may have been quicker, or another thread may have given all locks of this
        // node back without seeing this ticket.
        match self.look(ticket, host) {
            LockState::Holds if !self.is_leaving() => return Some(ticket),
            LockState::Holds => self.give_back(ticket, host),
            _ => self.end(ticket, host),
        }
        None
    }

    #[cold]
    fn request_room(&self, entry: usize, reads: bool, host: &impl LockHost) -> Option<LockTicket> {
        // Tickets that are over may fill the queue, and nobody else may look at them.
        self.hand_over(LockTicket::of_nobody(entry), host);
        self.locks.ask_for_room(entry);
        self.locks.take_ticket(entry, reads)
    }

    /// Returns the state of a request of this node, which takes the lock if it was granted. A
    /// request that reads holds the lock only once, and is over the next time.
    #[inline]
    #[must_use]
    pub fn look(&self, ticket: LockTicket, host: &impl LockHost) -> LockState {
        let state = self.locks.look(ticket, &|rank| self.is_dead(rank, host));
        if ticket.reads() && state == LockState::Holds {
            // Its ticket is over, and the next one may be at the head of the queue.
            self.hand_over(LockTicket::of_nobody(ticket.entry()), host);
        }
        if ticket.reads() && state == LockState::Done {
            // A writer may have seen a reader that was counted in vain.
            self.wake_writer(self.locks.writer_to_wake(ticket.entry()), host);
        }
        state
    }

    /// Returns `true` if a request of this node is over. It waits no longer, and has no lock but
    /// one that its node has seen.
    #[must_use]
    pub fn is_over(&self, ticket: LockTicket) -> bool {
        self.locks.is_over(ticket)
    }

    /// Gives the lock to the next request that waits, if it is free. Another node may have ended
    /// before it could. The caller looks at the ticket afterwards.
    #[inline]
    pub fn hand_over(&self, ticket: LockTicket, host: &impl LockHost) {
        while let Some((rank, may_be_more)) =
            self.locks.advance(ticket, &|rank| self.is_dead(rank, host))
        {
            self.wake_member(rank, host);
            if !may_be_more {
                break;
            }
        }
        if self.locks.gives_room(ticket.entry()) {
            self.wake_all(host);
        }
    }

    /// Wakes threads of a member, which may be this one.
    fn wake_member(&self, rank: Rank, host: &impl LockHost) {
        if rank == self.me {
            host.wake_waiting();
            self.words.wake_own();
        } else {
            self.wake(rank);
        }
    }

    /// Returns `true` if a node is dead, or there is none of this rank.
    fn is_dead(&self, rank: Rank, host: &impl LockHost) -> bool {
        rank >= self.members || host.is_dead(rank)
    }

    /// Wakes another member that sleeps, after something has changed for which it waits.
    fn wake(&self, rank: Rank) {
        // Either this node sees that the member sleeps, or the member sees the change
        // (`Words::fall_asleep`).
        fence(Ordering::SeqCst);
        let member = rank as usize;
        if self.words.take_sleeper(member)
            && let Some(line) = self.lines.get(&rank)
        {
            line.wake();
        }
        self.words.wake(self.words.take_word_sleeper_of_lock(member));
    }

    #[cold]
    fn wake_all(&self, host: &impl LockHost) {
        (0..self.members).filter(|rank| *rank != self.me).for_each(|rank| self.wake(rank));
        host.wake_waiting();
        self.words.wake_own();
    }

    /// Returns why nobody gets a lock any more, if so: its holder is dead, or was unfit.
    #[inline]
    #[must_use]
    pub fn loss(&self, LockEntry(entry): LockEntry, host: &impl LockHost) -> Option<LockLoss> {
        if let Some((rank, LockState::Holds)) = self.locks.holder(entry)
            && self.is_dead(rank, host)
        {
            // The node may go on later, and give the lock back.
            self.locks.lose(entry, LockLoss::Died(rank));
        }
        self.locks.loss(entry)
    }

    /// Lets nobody get a lock any more, because this node cannot tell what it wrote under it.
    pub fn lose(&self, LockEntry(entry): LockEntry) {
        self.locks.lose(entry, LockLoss::Unfit(self.me));
    }

    /// Ends a request that has no lock, or not that this node knows. The ticket may be over
    /// already, because this node leaves.
    #[inline]
    pub fn end(&self, ticket: LockTicket, host: &impl LockHost) {
        self.locks.end(ticket);
        // Another thread of this node may use the ticket from now on.
        self.hand_over(LockTicket::of_nobody(ticket.entry()), host);
    }

    /// Gives back a lock that this request holds.
    #[inline]
    pub fn give_back(&self, ticket: LockTicket, host: &impl LockHost) {
        if ticket.reads() {
            self.end_reading(ticket.entry(), false, host);
        } else {
            self.end(ticket, host);
        }
    }

    fn end_reading(&self, entry: usize, all: bool, host: &impl LockHost) {
        self.wake_writer(self.locks.end_reading(entry, all), host);
    }

    /// Wakes the member that waits for readers to end, if there is one.
    fn wake_writer(&self, rank: Option<Rank>, host: &impl LockHost) {
        if let Some(rank) = rank {
            self.wake_member(rank, host);
        }
    }

    /// Gives back all locks that this node has, because it leaves. It takes none any more.
    pub fn give_all_back(&self, host: &impl LockHost) {
        self.is_leaving.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for entry in self.locks.taken_entries() {
            while let Some(ticket) = self.locks.own_ticket(entry) {
                self.end(ticket, host);
            }
            self.end_reading(entry, true, host);
        }
    }

    /// Returns `true` once this node leaves, and takes no lock any more.
    #[inline]
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> Locked<MutexGuard<'_, Vec<LockWaiter>>> {
        // Turns look at the list, and a handler of this thread may wait for one.
        locked(|| self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that a thread of this node waits.
    pub(super) fn begin_wait(&self, waiter: LockWaiter) {
        let mut waiting = self.waiting();
        waiting.push(waiter);
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Notes that a thread of this node has waited.
    pub fn end_wait(&self, waiter: LockWaiter) {
        let mut waiting = self.waiting();
        if let Some(at) = waiting.iter().position(|other| *other == waiter) {
            waiting.swap_remove(at);
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// Returns `true` if threads of this node wait for locks.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Returns `true` if a thread of this node that waits has got its lock, or has room for its
    /// request now.
    #[inline]
    #[must_use]
    pub fn is_over_here(&self) -> bool {
        let is_over = |waiter: &LockWaiter| match waiter.ticket {
            Some(ticket) => self.locks.has_lock(ticket),
            None => self.locks.has_room(waiter.entry.0),
        };
        self.has_waits() && self.waiting().iter().any(is_over)
    }
}
