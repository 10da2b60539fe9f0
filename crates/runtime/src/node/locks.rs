//! Locks of the job. Nodes of one machine take them in the arena (COH-16.10), and otherwise from
//! their managers (COH-7). A node that has arrays of pages takes both, because the manager tells
//! what others wrote to them.

use super::driver::WakeSource;
use super::parts::Node;
use super::waits::{WaitSubject, Waits};
use crate::error::Result;
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::shm::{Arena, LockEntry, LockLoss, LockState, LockTicket, LockWaiter};
use oikaze_protocol::coherence::{CoherenceError, LockMode};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lock that this node holds.
#[derive(Debug)]
#[must_use = "the lock is held until it is given back"]
pub struct AcquiredLock {
    number: u64,
    reads: bool,
    /// Number of the taking in the list of waits.
    taking: u64,
    /// Its request in the arena, if it has an entry there.
    ticket: Option<LockTicket>,
    /// Its manager has granted it.
    by_manager: bool,
}

/// Name of a lock in texts, looked up only when it is displayed.
struct LockName<'n> {
    waits: &'n Waits,
    lock: u64,
}

impl fmt::Display for LockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.waits.lock_text(self.lock))
    }
}

/// Request of a thread for a lock in the arena, or the lock itself. Ends when it is dropped, also
/// by a panic.
struct LockRequest<'a> {
    node: &'a Node,
    arena: &'a Arena,
    lock: u64,
    entry: LockEntry,
    reads: bool,
    /// `None` while there is no room in the queue.
    ticket: Option<LockTicket>,
    /// Is `true` once this thread has the lock.
    has_lock: bool,
    /// Note that this thread waits.
    noted: Option<LockWaiter>,
}

impl Node {
    #[inline]
    fn has_pages(&self) -> bool {
        self.coherence.locks.may_have_pages()
            && self.with_engine(|engine| engine.coherence().has_pages())
    }

    /// Acquires a lock within `limit`, alone or for reading (COH-7.14). A request that tries
    /// (COH-7.12) waits for nobody but the lock's manager, and returns `None` if another thread or
    /// node has the lock.
    ///
    /// # Errors
    /// The lock is lost with a node; the time limit passed, or the wait was interrupted; a guard
    /// that this thread took is alive, or it holds the lock already.
    #[track_caller]
    pub fn acquire_lock(
        &self,
        lock: u64,
        mode: LockMode,
        limit: Option<Duration>,
    ) -> Result<Option<AcquiredLock>> {
        self.check_lock_is_permitted(lock)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut entry = None;
        if let Some((arena, place)) = self.lock_entry(lock)? {
            let mut request = LockRequest::of(self, arena, (lock, place), mode.reads);
            if !request.acquire(mode.tries, limit)? {
                return Ok(None);
            }
            entry = Some(request);
        }
        let by_manager = entry.is_none() || self.has_pages();
        if by_manager {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Nobody who writes asks the manager while this thread has the entry, but what the last
            // holder told it may be on its way.
            let mode = LockMode { tries: mode.tries && entry.is_none(), ..mode };
            if let Value::LockTaken = acquire_from_manager(self, lock, mode, left)? {
                return Ok(None);
            }
        }
        if !by_manager {
            self.coherence.locks.note_taken();
        }
        let ticket = entry.and_then(LockRequest::keep);
        let (reads, taking) = (mode.reads, self.waits.took_lock(lock));
        self.coherence.segments.took_lock();
        Ok(Some(AcquiredLock { number: lock, reads, taking, ticket, by_manager }))
    }

    /// Checks that the calling thread may take a lock (COH-7.7, COH-7.8).
    fn check_lock_is_permitted(&self, lock: u64) -> Result<()> {
        self.coherence.handlers.check_if_due(|| self.now());
        self.coherence.check_no_guard_of_this_thread(self, || self.waits.lock_text(lock))?;
        self.waits.check_lock_is_not_mine(lock)
    }

    /// Returns the entry of a lock in the arena, if it has one there.
    fn lock_entry(&self, lock: u64) -> Result<Option<(&Arena, LockEntry)>> {
        let Some(arena) = self.coherence.calls.arena() else { return Ok(None) };
        self.check_process(|| self.waits.lock_text(lock))?;
        if let Some(over) = self.departures.over() {
            return Err(self.departures.failure(&LockName { waits: &self.waits, lock }, over));
        }
        Ok(arena.locks().entry(lock).map(|place| (&**arena, place)))
    }

    /// Gives a lock back within `limit`, and waits for the result.
    ///
    /// # Errors
    /// A node that the lock needs is lost, or the time limit passed. The lock is given back in
    /// these cases, too. In a child of fork, it is not.
    #[track_caller]
    pub fn give_lock_back(&self, held: AcquiredLock, limit: Option<Duration>) -> Result<()> {
        let AcquiredLock { number: lock, reads, taking, ticket, by_manager } = held;
        let name = LockName { waits: &self.waits, lock };
        self.check_process(|| format!("giving back {name}"))?;
        self.waits.gave_lock_back(taking);
        self.coherence.segments.gave_lock_back();
        // Given back at the end, behind the manager's part.
        let arena = self.coherence.calls.arena();
        let entry = arena.zip(ticket).map(|(arena, ticket)| LockRequest {
            ticket: Some(ticket),
            has_lock: true,
            ..LockRequest::of(self, arena, (lock, ticket.lock_entry()), reads)
        });
        // An array may have been declared meanwhile, and the next holder asks for what was written
        // to it. Nobody who writes asks the manager now.
        if !by_manager && self.has_pages() {
            let mode = LockMode { reads, tries: false };
            if let Err(error) = acquire_from_manager(self, lock, mode, limit) {
                // Those that read have changed nothing that others rely on (COH-7.14).
                if let Some(entry) = entry.as_ref().filter(|_| !reads) {
                    entry.arena.locks().lose(entry.entry);
                }
                return Err(error);
            }
            self.coherence.locks.note_acquired_late();
            give_manager_back(self, lock, limit)?;
        } else if by_manager {
            give_manager_back(self, lock, limit)?;
        }
        drop(entry);
        match self.departures.over() {
            Some(over) => Err(self.departures.failure(&format_args!("giving back {name}"), over)),
            None => Ok(()),
        }
    }
}

impl<'a> LockRequest<'a> {
    /// Makes the request of a lock, without a ticket.
    fn of(
        node: &'a Node,
        arena: &'a Arena,
        (lock, entry): (u64, LockEntry),
        reads: bool,
    ) -> LockRequest<'a> {
        let (ticket, has_lock, noted) = (None, false, None);
        LockRequest { node, arena, lock, entry, reads, ticket, has_lock, noted }
    }

    /// Returns the ticket of the lock that this thread has got, and keeps the lock.
    fn keep(mut self) -> Option<LockTicket> {
        self.forget();
        self.ticket.take()
    }

    /// Takes the lock if it was granted. Returns `true` if this thread has it.
    #[inline]
    fn has_lock(&mut self) -> bool {
        let (locks, node) = (self.arena.locks(), self.node);
        let look = |ticket| locks.look(ticket, node) == LockState::Holds;
        self.has_lock = self.has_lock || self.ticket.is_some_and(look);
        self.has_lock
    }

    /// Returns `true` if this thread has the lock, and the failure if nobody gets it any more. A
    /// lock that is lost goes on to the next request, so the loss is looked at behind the lock.
    #[inline]
    fn state(&mut self) -> std::result::Result<bool, Failure> {
        let has_lock = self.has_lock();
        self.impediment().map_or(Ok(has_lock), Err)
    }

    /// Takes the lock. Waits for it within `limit`, or, if it `tries`, returns `false` if another
    /// request has the lock or waits for it. After an error, this thread does not have it.
    #[track_caller]
    fn acquire(&mut self, tries: bool, limit: Option<Duration>) -> Result<bool> {
        let name = LockName { waits: &self.node.waits, lock: self.lock };
        if tries {
            self.ticket = self.arena.locks().try_request(self.entry, self.reads, self.node);
            self.has_lock = self.ticket.is_some();
            return self.state().map_err(|failure| self.node.departures.failure(&name, failure));
        }
        self.ticket = self.arena.locks().request(self.entry, self.reads, self.node);
        self.wait(limit).map(|()| true)
    }

    /// Returns why nobody of this node gets the lock any more, if so.
    fn impediment(&self) -> Option<Failure> {
        let locks = self.arena.locks();
        let doing = || format!("lock {}", self.lock);
        if let Some(loss) = locks.loss(self.entry, self.node) {
            return Some(Failure::Coherence(match loss {
                LockLoss::Died(rank) => CoherenceError::NodeDead { doing: doing(), rank },
                LockLoss::Unfit(rank) => CoherenceError::LockBroken { doing: doing(), rank },
            }));
        }
        locks.is_leaving().then_some(Failure::Left)
    }

    #[track_caller]
    fn wait(&mut self, limit: Option<Duration>) -> Result<()> {
        let (node, lock) = (self.node, self.lock);
        let mut polls = node.word_polls();
        while !self.has_lock() && polls.wait() {}
        let subject = || WaitSubject::Lock { number: lock, text: node.waits.lock_text(lock) };
        let name = LockName { waits: &node.waits, lock };
        let outcome =
            node.outcome_from(WakeSource::Arena, &subject, &name, || self.outcome(), limit);
        match outcome {
            Ok(_) => Ok(()),
            // The lock was granted just now.
            Err(error) if error.is_timeout() && self.state() == Ok(true) => Ok(()),
            Err(error) => Err(node.waits.explain_timeout(error, &subject())),
        }
    }

    /// Returns the outcome of the wait, if it is known.
    fn outcome(&mut self) -> Option<std::result::Result<Value, Failure>> {
        let done = |state| match state {
            Ok(has_lock) => bool::then(has_lock, || Ok(Value::Done)),
            Err(failure) => Some(Err(failure)),
        };
        if let Some(outcome) = done(self.state()) {
            return Some(outcome);
        }
        let locks = self.arena.locks();
        match self.ticket {
            // Others took this node for dead, or there was no room.
            None => self.ticket = locks.request(self.entry, self.reads, self.node),
            Some(ticket) if locks.is_over(ticket) => self.ticket = None,
            // A node may have ended before it could hand the lock over.
            Some(ticket) => locks.hand_over(ticket, self.node),
        }
        let waiter = LockWaiter { entry: self.entry, ticket: self.ticket };
        if self.noted != Some(waiter) {
            self.forget();
            self.noted = Some(waiter);
            self.arena.begin_lock_wait(waiter);
        }
        done(self.state()).or_else(|| self.node.departures.over().map(Err))
    }

    fn forget(&mut self) {
        if let Some(waiter) = self.noted.take() {
            self.arena.locks().end_wait(waiter);
        }
    }
}

impl Drop for LockRequest<'_> {
    fn drop(&mut self) {
        self.forget();
        let (locks, has_lock) = (self.arena.locks(), self.has_lock);
        match (self.ticket, self.node.enter()) {
            (Some(ticket), Some(node)) if has_lock => locks.give_back(ticket, node),
            (Some(ticket), Some(node)) => locks.end(ticket, node),
            _ => {}
        }
    }
}

/// Acquires a lock from its manager. Returns its answer, which may be that the lock is taken.
#[track_caller]
fn acquire_from_manager(
    node: &Node,
    lock: u64,
    mode: LockMode,
    limit: Option<Duration>,
) -> Result<Value> {
    let completion = node.submit(Request::Lock(lock, mode), None);
    let subject = || WaitSubject::Lock { number: lock, text: node.waits.lock_text(lock) };
    let name = LockName { waits: &node.waits, lock };
    match node.outcome_of(&subject, &name, || completion.outcome(), limit) {
        Err(error) if error.is_timeout() => {
            let error = node.waits.explain_timeout(error, &subject());
            // No thread waits for the lock any longer, so a lock that is granted later is given
            // back at once. If the lock was granted just now, this thread holds it. The next turn
            // reports one or the other.
            node.tell(Request::Cancel { completion: Arc::clone(&completion) });
            match node.wait(None, || completion.outcome()) {
                Some(Ok(answer)) => Ok(answer),
                _ => Err(error),
            }
        }
        answer => answer,
    }
}

/// Gives a lock back to its manager.
#[track_caller]
fn give_manager_back(node: &Node, lock: u64, limit: Option<Duration>) -> Result<()> {
    let completion = node.submit(Request::Unlock(lock), None);
    let name = LockName { waits: &node.waits, lock };
    node.outcome(&format_args!("giving back {name}"), &completion, limit).map(drop)
}
