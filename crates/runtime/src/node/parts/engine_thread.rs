//! Engine's own thread of thread mode: what it alone may do, and how other threads reach it.
//!
//! In thread mode only that thread runs turns, so only it sends and receives. Other threads put
//! their requests into the submission queue, which costs the same for every size: a request names
//! memory by its descriptor. A thread that needs the state of the engine, such as the registration
//! of a region, enters between two turns as a *visitor*. A visitor runs no turn.

use super::access::Access;
use crossbeam_queue::SegQueue;
use oikaze_engine::Submission;
use oikaze_os::cpu::yield_core;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Checks of the engine thread for which a visitor holds it up, before it yields its core.
const VISIT_POLLS: u32 = 1024;

/// Number of times that a thread yields its core, before it sleeps instead.
const YIELDS_MAX: u32 = 64;
/// Time for which it then sleeps.
pub(in crate::node) const ASIDE_TIME: Duration = Duration::from_micros(50);

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

    /// Returns `true` if other threads want something of the engine's own thread.
    #[inline]
    pub fn is_called(&self, submissions: &SegQueue<Submission>) -> bool {
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

    /// Waits until no visitor is there. Called by the engine's thread before each turn, which would
    /// otherwise take the lock again before a visitor that has slept gets it.
    pub fn let_visitors_in(&self) {
        let (mut polls, mut stood_aside) = (0, 0);
        while self.has_visitors() {
            polls += 1;
            if polls < VISIT_POLLS {
                std::hint::spin_loop();
            } else {
                stand_aside(&mut stood_aside);
            }
        }
    }

    /// Counts a visitor until the result is dropped.
    pub fn visit(&self) -> Visit<'_> {
        self.visitors.fetch_add(1, Ordering::Relaxed);
        Visit(&self.visitors)
    }
}

/// Gives the core to a thread that has what the calling thread waits for. `times` counts the calls.
///
/// A thread of a real-time class that yields leaves its core to none of another class
/// (sched_yield(2)), so it sleeps after some calls. So does a thread whose yields are slow.
pub(in crate::node) fn stand_aside(times: &mut u32) {
    *times += 1;
    if *times >= YIELDS_MAX || !yield_core() {
        std::thread::sleep(ASIDE_TIME);
    }
}

/// Time in which a thread is a visitor.
pub struct Visit<'e>(&'e AtomicUsize);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
