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
    /// `None` while there is no room in the queue.
    ticket: Option<LockTicket>,
    /// Note that this thread waits.
    noted: Option<LockWaiter>,
}

impl Node {
    #[inline]
    fn has_pages(&self) -> bool {
        self.coherence.locks.may_have_pages()
            && self.with_engine(|engine| engine.coherence().has_pages())
    }

    /// Acquires a lock within `limit`.
    ///
    /// # Errors
    /// The lock is lost with a node; the time limit passed, or the wait was interrupted; a guard
    /// that this thread took is alive, or it holds the lock already.
    #[track_caller]
    pub fn acquire_lock(&self, lock: u64, limit: Option<Duration>) -> Result<AcquiredLock> {
        self.check_lock_is_permitted(lock)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut entry = None;
        if let Some((arena, place)) = self.lock_entry(lock)? {
            let mut request = LockRequest::new(self, arena, (lock, place));
            request.acquire(limit)?;
            entry = Some(request);
        }
        let by_manager = entry.is_none() || self.has_pages();
        if by_manager {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            acquire_from_manager(self, lock, LockMode::default(), left)?;
        }
        Ok(self.note_lock(lock, entry, by_manager))
    }

    /// Acquires a lock if no other thread or node has it (COH-7.12). `limit` is for the answer of
    /// the lock's manager.
    ///
    /// # Errors
    /// As [`Node::acquire_lock`].
    #[track_caller]
    pub fn try_lock(&self, lock: u64, limit: Option<Duration>) -> Result<Option<AcquiredLock>> {
        self.check_lock_is_permitted(lock)?;
        let mut entry = None;
        if let Some((arena, place)) = self.lock_entry(lock)? {
            let mut request = LockRequest::of(self, arena, (lock, place));
            if !request.try_acquire()? {
                return Ok(None);
            }
            entry = Some(request);
        }
        let by_manager = entry.is_none() || self.has_pages();
        // Nobody else asks the manager while this thread has the entry, but what the last holder
        // told it may be on its way.
        let mode = LockMode { tries: entry.is_none(), ..LockMode::default() };
        if by_manager {
            let answer = acquire_from_manager(self, lock, mode, limit)?;
            if matches!(answer, Value::LockTaken) {
                return Ok(None);
            }
        }
        Ok(Some(self.note_lock(lock, entry, by_manager)))
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

    /// Notes that the calling thread has got a lock.
    #[track_caller]
    fn note_lock(
        &self,
        lock: u64,
        entry: Option<LockRequest<'_>>,
        by_manager: bool,
    ) -> AcquiredLock {
        if !by_manager {
            self.coherence.locks.note_taken();
        }
        let ticket = entry.and_then(LockRequest::keep);
        self.waits.took_lock(lock);
        self.coherence.segments.took_lock();
        AcquiredLock { number: lock, ticket, by_manager }
    }

    /// Gives a lock back within `limit`, and waits for the result.
    ///
    /// # Errors
    /// A node that the lock needs is lost, or the time limit passed. The lock is given back in
    /// these cases, too. In a child of fork, it is not.
    #[track_caller]
    pub fn give_lock_back(&self, held: AcquiredLock, limit: Option<Duration>) -> Result<()> {
        let AcquiredLock { number: lock, ticket, by_manager } = held;
        let name = LockName { waits: &self.waits, lock };
        self.check_process(|| format!("giving back {name}"))?;
        self.waits.gave_lock_back(lock);
        self.coherence.segments.gave_lock_back();
        // Given back at the end, behind the manager's part.
        let arena = self.coherence.calls.arena();
        let entry = arena.zip(ticket).map(|(arena, ticket)| LockRequest {
            ticket: Some(ticket),
            ..LockRequest::of(self, arena, (lock, ticket.lock_entry()))
        });
        // An array may have been declared meanwhile, and the next holder asks for what was written
        // to it. Nobody else asks the manager now.
        if !by_manager && self.has_pages() {
            let mode = LockMode::default();
            if let Err(error) = acquire_from_manager(self, lock, mode, limit) {
                if let Some(entry) = &entry {
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
    fn of(node: &'a Node, arena: &'a Arena, (lock, entry): (u64, LockEntry)) -> LockRequest<'a> {
        LockRequest { node, arena, lock, entry, ticket: None, noted: None }
    }

    /// Requests a lock.
    fn new(node: &'a Node, arena: &'a Arena, place: (u64, LockEntry)) -> LockRequest<'a> {
        let ticket = arena.locks().request(place.1, node);
        LockRequest { ticket, ..LockRequest::of(node, arena, place) }
    }

    /// Returns the ticket of the lock that this thread has got, and keeps the lock.
    fn keep(mut self) -> Option<LockTicket> {
        self.forget();
        self.ticket.take()
    }

    #[inline]
    fn has_lock(&self) -> bool {
        self.ticket.is_some_and(|ticket| self.arena.locks().look(ticket) == LockState::Holds)
    }

    /// Takes the lock if no other request has it or waits for it. Returns `true` if it did.
    #[track_caller]
    fn try_acquire(&mut self) -> Result<bool> {
        let name = LockName { waits: &self.node.waits, lock: self.lock };
        if let Some(failure) = self.impediment() {
            return Err(self.node.departures.failure(&name, failure));
        }
        self.ticket = self.arena.locks().try_request(self.entry, self.node);
        Ok(self.ticket.is_some())
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

    /// Waits for the lock. After an error, this thread does not have it.
    #[track_caller]
    fn acquire(&mut self, limit: Option<Duration>) -> Result<()> {
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
            Err(error) if error.is_timeout() && self.has_lock() => Ok(()),
            Err(error) => Err(node.waits.explain_timeout(error, &subject())),
        }
    }

    /// Returns the outcome of the wait, if it is known.
    fn outcome(&mut self) -> Option<std::result::Result<Value, Failure>> {
        if let Some(failure) = self.impediment() {
            return Some(Err(failure));
        }
        let locks = self.arena.locks();
        if self.has_lock() {
            return Some(Ok(Value::Done));
        }
        match self.ticket {
            // Others took this node for dead, or there was no room.
            None => self.ticket = locks.request(self.entry, self.node),
            Some(ticket) if locks.look(ticket) == LockState::Done => self.ticket = None,
            // A node may have ended before it could hand the lock over.
            Some(ticket) => locks.hand_over(ticket, self.node),
        }
        let waiter = LockWaiter { entry: self.entry, ticket: self.ticket };
        if self.noted != Some(waiter) {
            self.forget();
            self.noted = Some(waiter);
            self.arena.begin_lock_wait(waiter);
        }
        if self.has_lock() { Some(Ok(Value::Done)) } else { self.node.departures.over().map(Err) }
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
        if let (Some(ticket), Some(node)) = (self.ticket, self.node.enter()) {
            self.arena.locks().end(ticket, node);
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
