//! Locks of the job. Nodes of one machine take them in the arena (COH-16.10), and otherwise from
//! their managers (COH-7). A node that has arrays of pages takes both, because the manager tells
//! what others wrote to them.

use super::driver::WakeSource;
use super::parts::Node;
use super::waits::{WaitSubject, Waits};
use crate::error::{Error, Result};
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::shm::{Arena, LockEntry, LockState, LockTicket};
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

/// Wait of a thread for a lock in the arena. Ends when it is dropped.
struct LockWait<'a> {
    node: &'a Node,
    arena: &'a Arena,
    lock: u64,
    entry: LockEntry,
    /// `None` while there is no room in the queue.
    ticket: Option<LockTicket>,
    is_noted: bool,
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
        if let Some(arena) = self.coherence.calls.arena() {
            self.check_process(|| self.waits.lock_text(lock))?;
            if let Some(over) = self.departures.over() {
                return Err(self.departures.failure(&LockName { waits: &self.waits, lock }, over));
            }
            if let Some(entry) = arena.locks().entry(lock) {
                held.ticket = Some(acquire_entry(self, arena, (lock, entry), limit)?);
            }
        }
        if held.ticket.is_none() || self.has_pages() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if let Err(error) = acquire_from_manager(self, lock, left) {
                held.give_entry_back(self);
                return Err(error);
            }
            held.by_manager = true;
        } else {
            self.coherence.locks.note_taken();
        }
        self.waits.took_lock(lock);
        self.coherence.segments.took_lock();
        Ok(held)
    }

    /// Gives a lock back within `limit`, and waits for the result.
    ///
    /// # Errors
    /// A node that the lock needs is lost, or the time limit passed. The lock is given back in
    /// these cases, too.
    #[track_caller]
    pub fn give_lock_back(&self, held: AcquiredLock, limit: Option<Duration>) -> Result<()> {
        self.waits.gave_lock_back(held.number);
        self.coherence.segments.gave_lock_back();
        // An array may have been declared meanwhile, and the next holder asks for what was written
        // to it. Nobody else asks the manager now.
        let asks_now = !held.by_manager && self.has_pages();
        let acquired = match asks_now {
            true => acquire_from_manager(self, held.number, limit),
            false => Ok(()),
        };
        let outcome = match acquired {
            Ok(()) if held.by_manager || asks_now => give_manager_back(self, held.number, limit),
            outcome => outcome,
        };
        held.give_entry_back(self);
        match self.departures.over() {
            Some(over) if outcome.is_ok() => {
                let name = LockName { waits: &self.waits, lock: held.number };
                Err(self.departures.failure(&format_args!("giving back {name}"), over))
            }
            _ => outcome,
        }
    }
}

impl AcquiredLock {
    fn give_entry_back(&self, node: &Node) {
        if let (Some(arena), Some(ticket)) = (node.coherence.calls.arena(), self.ticket) {
            arena.locks().give_back(ticket, node);
        }
    }
}

/// Acquires a lock in the arena.
#[track_caller]
fn acquire_entry(
    node: &Node,
    arena: &Arena,
    (lock, entry): (u64, LockEntry),
    limit: Option<Duration>,
) -> Result<LockTicket> {
    let ticket = arena.locks().request(entry, node);
    if let Some(ticket) = ticket {
        let mut polls = node.word_polls();
        loop {
            if arena.locks().look(ticket) == LockState::Holds {
                return Ok(ticket);
            }
            if !polls.wait() {
                break;
            }
        }
    }
    let mut wait = LockWait { node, arena, lock, entry, ticket, is_noted: false };
    let subject = || WaitSubject::Lock { number: lock, text: node.waits.lock_text(lock) };
    let name = LockName { waits: &node.waits, lock };
    let ready = || wait.outcome();
    let outcome = node.outcome_from(WakeSource::Arena, &subject, &name, ready, limit);
    match (wait.end(), outcome) {
        (Some(ticket), Ok(_)) => Ok(ticket),
        // The lock was granted just now, so this thread holds it.
        (Some(ticket), Err(error)) if error.is_timeout() => Ok(ticket),
        (ticket, outcome) => {
            if let Some(ticket) = ticket {
                arena.locks().give_back(ticket, node);
            }
            let left = || Error::failed(name.to_string(), Failure::Left);
            Err(node.waits.explain_timeout(outcome.err().unwrap_or_else(left), &subject()))
        }
    }
}

impl LockWait<'_> {
    /// Returns the outcome of the wait, if it is known.
    fn outcome(&mut self) -> Option<std::result::Result<Value, Failure>> {
        let locks = self.arena.locks();
        if self.ticket.is_none() {
            self.ticket = locks.request(self.entry, self.node);
        }
        if let Some(ticket) = self.ticket {
            if !std::mem::replace(&mut self.is_noted, true) {
                self.arena.begin_lock_wait(ticket);
            }
            match locks.look(ticket) {
                LockState::Holds => return Some(Ok(Value::Done)),
                LockState::Waits | LockState::Granted => {
                    // A node may have ended before it could hand the lock over.
                    locks.hand_over(ticket, self.node);
                }
                // Others took this node for dead.
                LockState::Done => {
                    self.forget();
                    self.ticket = None;
                }
            }
        }
        if let Some(rank) = locks.dead_holder(self.entry, self.node) {
            let doing = format!("lock {}", self.lock);
            return Some(Err(Failure::Coherence(CoherenceError::NodeDead { doing, rank })));
        }
        self.node.departures.over().map(Err)
    }

    fn forget(&mut self) {
        if let Some(ticket) = self.ticket
            && std::mem::take(&mut self.is_noted)
        {
            self.arena.locks().end_wait(ticket);
        }
    }

    /// Ends the wait. Returns its ticket if that has the lock.
    fn end(mut self) -> Option<LockTicket> {
        self.forget();
        let ticket = self.ticket?;
        let locks = self.arena.locks();
        if locks.look(ticket) != LockState::Holds && locks.cancel(ticket) {
            locks.hand_over(ticket, self.node);
            return None;
        }
        (locks.look(ticket) == LockState::Holds).then_some(ticket)
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
