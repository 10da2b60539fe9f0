//! Slots: where the outcome of a collective appears.

use crate::node::lock;
use oikaze_engine::Failure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// Why a collective failed.
#[derive(Clone, Debug)]
pub(in crate::collective) enum CollectiveFailure {
    /// A node is lost, or the job is over.
    Lost(Failure),
    /// The calls do not fit together, or a function of the program panicked.
    Mistake(String),
}

/// Outcome of one collective.
pub(in crate::collective) struct Slot<R> {
    done: AtomicBool,
    inside: Mutex<SlotState<R>>,
}

struct SlotState<R> {
    outcome: Option<Result<R, CollectiveFailure>>,
    waker: Option<Waker>,
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        let inside = Mutex::new(SlotState { outcome: None, waker: None });
        Slot { done: AtomicBool::new(false), inside }
    }
}

impl<R> Slot<R> {
    /// Returns `true` if the outcome is there.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Sets the outcome. The caller wakes the returned task when it holds no lock.
    pub fn settle(&self, outcome: Result<R, CollectiveFailure>) -> Option<Waker> {
        let mut inside = lock(&self.inside);
        inside.outcome = Some(outcome);
        self.done.store(true, Ordering::Release);
        inside.waker.take()
    }

    /// Takes the outcome, if it is there and was not taken.
    pub fn take(&self) -> Option<Result<R, CollectiveFailure>> {
        if self.is_done() { lock(&self.inside).outcome.take() } else { None }
    }

    /// Sets the task to wake. Returns `false` if the outcome is there already.
    pub fn wake_with(&self, waker: &Waker) -> bool {
        let mut inside = lock(&self.inside);
        inside.waker = Some(waker.clone());
        !self.is_done()
    }
}

/// A slot whose type is forgotten, for failures.
pub(in crate::collective) trait Fail: Send + Sync {
    /// Settles with a failure.
    fn fail(&self, failure: CollectiveFailure) -> Option<Waker>;
}

impl<R: Send> Fail for Slot<R> {
    fn fail(&self, failure: CollectiveFailure) -> Option<Waker> {
        self.settle(Err(failure))
    }
}
