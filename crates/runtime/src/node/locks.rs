//! Locks of the job. Nodes of one machine take them in the arena (COH-16.10), and otherwise from
//! their managers (COH-7). A node that has arrays of pages takes both, because the manager tells
//! what others wrote to them.

use super::driver::WakeSource;
use super::parts::Node;
use super::waits::{WaitSubject, Waits};
use crate::error::Result;
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::shm::{Arena, LockEntry, LockLoss, LockState, LockTicket, LockWaiter};
use oikaze_protocol::coherence::CoherenceError;
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
        self.coherence.handlers.check_if_due(|| self.now());
        self.coherence.check_no_guard_of_this_thread(self, || self.waits.lock_text(lock))?;
        self.waits.check_lock_is_not_mine(lock)?;
        let mut held = AcquiredLock { number: lock, ticket: None, by_manager: false };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut entry = None;
        if let Some(arena) = self.coherence.calls.arena() {
            self.check_process(|| self.waits.lock_text(lock))?;
            if let Some(over) = self.departures.over() {
                return Err(self.departures.failure(&LockName { waits: &self.waits, lock }, over));
            }
            if let Some(place) = arena.locks().entry(lock) {
                let mut request = LockRequest::new(self, arena, (lock, place));
                request.acquire(limit)?;
                entry = Some(request);
            }
        }
        if entry.is_none() || self.has_pages() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            acquire_from_manager(self, lock, left)?;
            held.by_manager = true;
        } else {
            self.coherence.locks.note_taken();
        }
        held.ticket = entry.and_then(LockRequest::keep);
        self.waits.took_lock(lock);
        self.coherence.segments.took_lock();
        Ok(held)
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
            if let Err(error) = acquire_from_manager(self, lock, limit) {
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
        let locks = self.arena.locks();
        let doing = || format!("lock {}", self.lock);
        if let Some(loss) = locks.loss(self.entry, self.node) {
            return Some(Err(Failure::Coherence(match loss {
                LockLoss::Died(rank) => CoherenceError::NodeDead { doing: doing(), rank },
                LockLoss::Unfit(rank) => CoherenceError::LockBroken { doing: doing(), rank },
            })));
        }
        if locks.is_leaving() {
            return Some(Err(Failure::Left));
        }
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

/// Acquires a lock from its manager.
#[track_caller]
fn acquire_from_manager(node: &Node, lock: u64, limit: Option<Duration>) -> Result<()> {
    let completion = node.submit(Request::Lock(lock), None);
    let subject = || WaitSubject::Lock { number: lock, text: node.waits.lock_text(lock) };
    let name = LockName { waits: &node.waits, lock };
    let outcome = node.outcome_of(&subject, &name, || completion.outcome(), limit);
    if let Err(error) = outcome {
        if !error.is_timeout() {
            return Err(error);
        }
        let error = node.waits.explain_timeout(error, &subject());
        // No thread waits for the lock any longer, so a lock that is granted later is given back at
        // once. If the lock was granted just now, this thread holds it. The next turn reports one
        // or the other.
        node.tell(Request::Cancel { completion: Arc::clone(&completion) });
        if !matches!(node.wait(None, || completion.outcome()), Some(Ok(_))) {
            return Err(error);
        }
    }
    Ok(())
}

/// Gives a lock back to its manager.
#[track_caller]
fn give_manager_back(node: &Node, lock: u64, limit: Option<Duration>) -> Result<()> {
    let completion = node.submit(Request::Unlock(lock), None);
    let name = LockName { waits: &node.waits, lock };
    node.outcome(&format_args!("giving back {name}"), &completion, limit).map(drop)
}
