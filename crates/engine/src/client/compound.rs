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
}

impl Compound {
    /// Creates an operation of `parts` parts, each to be submitted once, whose outcome appears in
    /// `whole`. With 0 parts it is done at once.
    #[must_use]
    pub fn new(parts: usize, whole: &Arc<Completion>) -> Self {
        if parts == 0 {
            whole.settle(Ok(Value::Done));
        }
        Self(Arc::new(Parts {
            left: AtomicUsize::new(parts),
            failure: OnceLock::new(),
            whole: Arc::clone(whole),
        }))
    }

    /// Returns the submission of one part.
    #[must_use]
    pub fn part(&self, request: Request, keep: Keep) -> Submission {
        tracked_by(Completion::telling(Box::new(self.clone())), request, keep)
    }
}

impl Sink for Compound {
    fn told(&self, outcome: &Outcome, _: u64) {
        let Parts { left, failure, whole } = &*self.0;
        if let Err(why) = outcome {
            let _ = failure.set(Failure::clone(why));
        }
        // The last part to end sees the failures of all others (acquire and release).
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            whole.settle(failure.get().cloned().map_or(Ok(Value::Done), Err));
        }
    }

    fn whole(&self) -> Option<&Arc<Completion>> {
        Some(&self.0.whole)
    }
}
