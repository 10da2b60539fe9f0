//! Slots: where the outcome of a collective appears.

use super::work::UntypedResult;
use crate::error::Error;
use crate::tables::element_kind::named;
use oikaze_engine::Failure;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::collective::CollectiveCall;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Refusal;
use oikaze_runtime::node::{Node, lock};
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

impl CollectiveFailure {
    /// Returns the error that a program gets.
    pub fn into_error(self, node: &Node, call: &CollectiveCall) -> Error {
        match self {
            CollectiveFailure::Lost(failure) => node.departures.failure(&named(call), failure),
            CollectiveFailure::Mistake(why) => {
                Error::failed(named(call).to_string(), CoherenceError::Mismatch(why).into())
            }
        }
    }
}

/// Returns `true` if every rank sees by itself that a node is dead, or that the job is over
/// (COLL-3.4).
pub(super) fn is_seen_by_all(failure: &Failure) -> bool {
    matches!(failure, Failure::PeerLost { .. } | Failure::Left | Failure::Aborted(_))
}

/// Returns `true` if a part's receiver has refused it for lack of memory, of which it tells all
/// ranks unless the part came twice (COLL-3.6).
pub(super) fn is_told_by_receiver(failure: &Failure) -> bool {
    use Refusal::{NoMemory, NoRoom};
    matches!(failure, Failure::Remote(RmaError::Refused(NoMemory | NoRoom)))
}

/// Outcome of one collective.
#[derive(Default)]
pub(in crate::collective) struct Slot {
    done: AtomicBool,
    inside: Mutex<SlotState>,
}

/// Function that is told how a collective has ended.
pub(in crate::collective) type Listener = Box<dyn FnOnce(Result<(), CollectiveFailure>) + Send>;

#[derive(Default)]
struct SlotState {
    outcome: Option<Result<UntypedResult, CollectiveFailure>>,
    /// The failure, if the outcome is one, also after the outcome was taken.
    failure: Option<CollectiveFailure>,
    waker: Option<Waker>,
    listener: Option<Listener>,
}

impl Slot {
    /// Returns `true` if the outcome is there.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Sets the outcome. The caller wakes the returned task when it holds no lock.
    pub fn settle(&self, outcome: Result<UntypedResult, CollectiveFailure>) -> Option<Waker> {
        let mut inside = lock(&self.inside);
        inside.failure = outcome.as_ref().err().cloned();
        inside.outcome = Some(outcome);
        self.done.store(true, Ordering::Release);
        if let Some(listener) = inside.listener.take() {
            listener(inside.failure.clone().map_or(Ok(()), Err));
        }
        inside.waker.take()
    }

    /// Tells a function how the collective ends. Returns `true` if it has ended, and the function
    /// has been called.
    pub fn listen(&self, listener: Listener) -> bool {
        let mut inside = lock(&self.inside);
        let is_done = self.is_done();
        if is_done {
            listener(inside.failure.clone().map_or(Ok(()), Err));
        } else {
            inside.listener = Some(listener);
        }
        is_done
    }

    /// Takes the outcome, if it is there and was not taken.
    pub fn take(&self) -> Option<Result<UntypedResult, CollectiveFailure>> {
        if self.is_done() { lock(&self.inside).outcome.take() } else { None }
    }

    /// Sets the task to wake. Returns `false` if the outcome is there already.
    pub fn wake_with(&self, waker: &Waker) -> bool {
        let mut inside = lock(&self.inside);
        inside.waker = Some(waker.clone());
        !self.is_done()
    }
}
