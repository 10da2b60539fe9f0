//! Engine's own thread of thread mode, and access of other threads to the engine.
//!
//! In thread mode only that thread runs turns, so only it sends and receives. Other threads put
//! their requests into the submission queue, which costs the same for every size: a request names
//! memory by its descriptor. A thread that needs the engine's state itself, for example to register
//! a region, takes the engine's lock between two turns. Such a thread is a *visitor*, and runs no
//! turn.

use super::access::Access;
use crossbeam_queue::SegQueue;
use oikaze_engine::Submission;
use oikaze_os::cpu::yield_core;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Number of polls for which the engine's thread spins while a visitor has the lock, before it
/// yields its core.
const VISIT_POLLS: u32 = 1024;

/// Maximum number of times that a thread yields its core in a row, before it sleeps instead.
const YIELDS_MAX: u32 = 64;
/// Length of the sleep of a thread for which yielding its core does not help.
pub(in crate::node) const YIELD_SLEEP: Duration = Duration::from_micros(50);

thread_local! {
    /// Number of the node whose engine's thread this is, or 0.
    static ENGINE_OF: Cell<usize> = const { Cell::new(0) };
}

/// State of the engine's own thread, as other threads see it.
#[derive(Debug)]
pub struct EngineThread {
    /// Set while the engine has a thread of its own, from before that thread begins until it ends.
    runs: AtomicBool,
    /// Number of threads that are in the engine between two turns, or want to be.
    visitors: AtomicUsize,
}

impl EngineThread {
    pub fn new(is_planned: bool) -> EngineThread {
        EngineThread { runs: AtomicBool::new(is_planned), visitors: AtomicUsize::new(0) }
    }

    /// Returns the access of the calling thread to the node of this number.
    #[inline]
    pub fn access(&self, number: usize) -> Access {
        match self.runs() {
            false => Access::Turns,
            true if ENGINE_OF.get() == number => Access::OwnTurns,
            true => Access::Requests,
        }
    }

    /// Returns `true` while the engine has a thread of its own.
    #[inline]
    fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns `true` if another thread has submitted a request, or wants the engine's lock. The
    /// engine's own thread then ends its present turn early.
    #[inline]
    pub fn has_callers(&self, submissions: &SegQueue<Submission>) -> bool {
        self.runs() && (!submissions.is_empty() || self.has_visitors())
    }

    /// Called by the engine's thread when it begins to drive the node of this number.
    pub fn begin(number: usize) {
        ENGINE_OF.set(number);
    }

    /// Called by the engine's thread when it has run its last turn. From here on any thread may.
    pub fn end(&self) {
        self.runs.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        ENGINE_OF.set(0);
    }

    /// Returns `true` if a thread is in the engine between two turns, or wants to be.
    #[inline]
    fn has_visitors(&self) -> bool {
        self.visitors.load(Ordering::Relaxed) > 0
    }

    /// Waits until all visitors have had the engine's lock. Called by the engine's thread before
    /// each turn. Without this wait, it would take the lock again before a visitor that is waking
    /// up gets it, and starve the visitor.
    pub fn yield_to_visitors(&self) {
        let (mut polls, mut yields) = (0, 0);
        while self.has_visitors() {
            polls += 1;
            if polls < VISIT_POLLS {
                std::hint::spin_loop();
            } else {
                yield_or_sleep(&mut yields);
            }
        }
    }

    /// Counts a visitor until the result is dropped.
    pub fn visit(&self) -> Visit<'_> {
        self.visitors.fetch_add(1, Ordering::Relaxed);
        Visit(&self.visitors)
    }
}

/// Yields the core to the thread that holds what the calling thread waits for, or sleeps. `times`
/// counts the calls of one wait.
///
/// sched_yield(2) in a thread of a real-time class runs no thread of another class. So a thread
/// that has yielded [`YIELDS_MAX`] times in vain sleeps instead. So does a thread whose yields are
/// slow.
pub(in crate::node) fn yield_or_sleep(times: &mut u32) {
    *times += 1;
    if *times >= YIELDS_MAX || !yield_core() {
        std::thread::sleep(YIELD_SLEEP);
    }
}

/// Guard of a visitor, which counts while the guard lives.
pub struct Visit<'e>(&'e AtomicUsize);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
