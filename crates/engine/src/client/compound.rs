//! Combines several operations into one.

use super::completion::{Completion, Keep, Outcome, Sink, Value};
use super::submission::{Request, Submission, tracked_by};
use crate::failure::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Operation made of parts. It ends when all parts have ended, and fails with the failure of the
/// first part that failed.
#[derive(Clone, Debug)]
pub struct Compound(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    left: AtomicUsize,
    failure: OnceLock<Failure>,
    whole: Arc<Completion>,
    /// Completion of the operation that begins after this one, and is cancelled with it.
    next: Option<Arc<Completion>>,
}

impl Compound {
    /// Creates an operation of `parts` parts, each to be submitted once, whose outcome appears in
    /// `whole`. With 0 parts it is done at once.
    #[must_use]
    pub fn new(parts: usize, whole: &Arc<Completion>) -> Self {
        Self::of(parts, Arc::clone(whole), None)
    }

    /// Creates an operation of `parts` parts, and the gate of an operation that begins after them
    /// ([`Request::After`]), whose outcome appears in `next`. Cancelling that operation cancels the
    /// parts.
    #[must_use]
    pub fn before(parts: usize, next: &Arc<Completion>) -> (Self, Arc<Completion>) {
        let gate = Completion::new();
        (Self::of(parts, Arc::clone(&gate), Some(Arc::clone(next))), gate)
    }

    fn of(parts: usize, whole: Arc<Completion>, next: Option<Arc<Completion>>) -> Self {
        if parts == 0 {
            whole.settle(Ok(Value::Done));
        }
        let (left, failure) = (AtomicUsize::new(parts), OnceLock::new());
        Self(Arc::new(Parts { left, failure, whole, next }))
    }

    /// Returns the submission of one part.
    #[must_use]
    pub fn part(&self, request: Request, keep: Keep) -> Submission {
        tracked_by(Completion::telling(Box::new(self.clone())), request, keep)
    }
}

impl Sink for Compound {
    fn told(&self, outcome: &Outcome, _: u64) {
        let Parts { left, failure, whole, .. } = &*self.0;
        if let Err(why) = outcome {
            let _ = failure.set(Failure::clone(why));
        }
        // The last part to end sees the failures of all others (acquire and release).
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            whole.settle(failure.get().cloned().map_or(Ok(Value::Done), Err));
        }
    }

    fn whole(&self) -> Option<&Arc<Completion>> {
        Some(self.0.next.as_ref().unwrap_or(&self.0.whole))
    }
}
