//! Completions: where the outcome of an operation appears for the thread that waits for it.

use oikaze_os::shm::Mapped;
use oikaze_protocol::coherence::ArrayId;
use oikaze_protocol::rma::Published;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crate::client::label::{OperationKind, OperationLabel};
use crate::client::untaken::{RECEIVE_FAILED, UnreportedFailures};
use crate::failure::Failure;

/// Counted reference that must outlive an operation, such as the region that it reads.
pub type Keep = Option<Arc<dyn Any + Send + Sync>>;

/// Result of a finished operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value; the operation is done.
    Done,
    /// The old value of an atomic.
    Word(u64),
    /// A peer's memory, mapped here.
    Mapped(Arc<Mapped>),
    /// Number of bytes in pages that were exchanged with a local peer's.
    Swapped(u64),
    /// A message that a posted receive has got.
    Received {
        /// Rank of the sender.
        from: oikaze_protocol::Rank,
        /// Tag of the message.
        tag: u64,
        /// Length of the message in bytes.
        len: u64,
    },
    /// A published region.
    Region(Published),
    /// A declared array.
    Array(ArrayId),
    /// The result of a reduction.
    Reduced(oikaze_protocol::coherence::Values),
    /// Knowledge of writes to shared arrays, for the other members of a team.
    Knowledge(Vec<u8>),
    /// Bytes of an array, from its homes.
    Bytes(Vec<u8>),
    /// Another request has the lock that this one tried to take.
    LockTaken,
}

/// Holds the outcome of one operation. A turn writes it once.
#[derive(Debug, Default)]
pub struct Completion {
    outcome: OnceLock<Outcome>,
    /// Further receiver of the outcome, called once. Only the engine sets the sink of a pending
    /// completion, and only the engine sets the outcome, so that the sink cannot miss the outcome.
    /// The exception is a posted receive, which any thread may settle ([`Completion::report`]).
    /// A completion without a sink costs one more load to settle.
    sink: OnceLock<Box<dyn Sink>>,
    /// Set by the thread that calls the sink.
    is_reported: AtomicBool,
    /// Label of the caller's operation, and the list that keeps its failure until a caller learns
    /// of it. `None` if the library itself began the operation.
    begun: Option<(OperationLabel, Arc<UnreportedFailures>)>,
    /// Serial number of the failure in that list, or [`RECEIVE_FAILED`]. It is 0 if there is none,
    /// or once a caller has learned of it.
    failed: AtomicU64,
}

/// Result of an operation. A failure is boxed because it is rare and large.
pub type Outcome = Result<Value, Box<Failure>>;

/// Receiver of an outcome, called by the turn that settles the operation. Examples are a completion
/// queue, a counter, and a compound operation of which this one is a part.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Called once, when the outcome is there. `failure` is the serial number among the failures
    /// that no caller has been told of, or 0. The number of a failed receive is in no such list.
    fn told(&self, outcome: &Outcome, failure: u64);

    /// Returns the completion of the compound operation of which this one is a part.
    fn whole(&self) -> Option<&Arc<Completion>> {
        None
    }
}

impl Completion {
    /// Creates a pending completion.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a pending completion of an operation that a caller has begun.
    #[must_use]
    pub fn begun(what: OperationLabel, untaken: &Arc<UnreportedFailures>) -> Arc<Self> {
        Arc::new(Self { begun: Some((what, Arc::clone(untaken))), ..Self::default() })
    }

    /// Returns the label of the operation, or `None` if the library itself began it.
    pub fn what(&self) -> Option<&OperationLabel> {
        self.begun.as_ref().map(|(what, _)| what)
    }

    /// Called when a caller learns of the failure. Returns `true` if there is one.
    #[cold]
    pub fn take_failure(&self) -> bool {
        let serial = self.failed.swap(0, Ordering::Acquire);
        if let Some((what, untaken)) = self.begun.as_ref().filter(|_| serial > 0) {
            untaken.take(what.peer, serial);
        }
        serial > 0
    }

    /// Returns `true` if the outcome is there. Costs one load, cheap enough to spin on.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Returns the outcome, if there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Value, Failure>> {
        self.outcome.get().map(|outcome| outcome.clone().map_err(|failure| *failure))
    }

    /// Creates a pending completion that will tell `sink`.
    #[must_use]
    pub fn telling(sink: Box<dyn Sink>) -> Arc<Self> {
        Arc::new(Self { sink: sink.into(), ..Self::default() })
    }

    /// Settles the completion. A second outcome is ignored.
    pub fn settle(&self, outcome: Result<Value, Failure>) {
        if let (Err(failure), Some((what, untaken)), None) =
            (&outcome, &self.begun, self.outcome.get())
        {
            // The failure is noted before the outcome appears, so that a thread that sees the
            // outcome can take the failure.
            let serial =
                if self.is_receive() { RECEIVE_FAILED } else { untaken.note(what, failure) };
            self.failed.store(serial, Ordering::Release);
        }
        if self.outcome.set(outcome.map_err(Box::new)).is_ok() {
            self.report();
        }
    }

    fn is_receive(&self) -> bool {
        self.begun.as_ref().is_some_and(|(what, _)| what.verb == OperationKind::Receive)
    }

    /// Calls the sink once both the sink and the outcome are there. The threads that set them both
    /// come here, and one of them calls the sink.
    fn report(&self) {
        if self.is_receive() {
            // Orders this thread's write of one before its read of the other, so that at least one
            // of two threads sees both. All other completions are written by the engine alone.
            fence(Ordering::SeqCst);
        }
        if let (Some(sink), Some(outcome)) = (self.sink.get(), self.outcome.get())
            && !self.is_reported.swap(true, Ordering::AcqRel)
        {
            sink.told(outcome, self.failed.load(Ordering::Relaxed));
        }
    }

    /// Passes the outcome to `sink`, now or when it is settled. Returns `true` if it is settled.
    pub fn tell(&self, sink: Box<dyn Sink>) -> bool {
        if self.sink.set(sink).is_ok() {
            self.report();
        }
        self.is_done()
    }

    /// Returns `true` if this completion is `whole` or a part of it.
    pub(crate) fn is_of(self: &Arc<Self>, whole: &Arc<Completion>) -> bool {
        Arc::ptr_eq(self, whole)
            || self
                .sink
                .get()
                .and_then(|sink| sink.whole())
                .is_some_and(|of| Arc::ptr_eq(of, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug)]
    struct CallCount(Arc<AtomicUsize>);

    impl Sink for CallCount {
        fn told(&self, _: &Outcome, _: u64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn receive(untaken: &Arc<UnreportedFailures>) -> Arc<Completion> {
        let what = OperationLabel { verb: OperationKind::Receive, len: 1, peer: 0, at: None };
        Completion::begun(what, untaken)
    }

    /// MEM-7.1: one thread settles a receive while another attaches its sink.
    #[test]
    fn sink_of_a_receive_is_called_once_whoever_comes_first() {
        const ROUNDS: usize = 20_000;
        let untaken = Arc::default();
        let receives: Vec<_> = (0..ROUNDS).map(|_| receive(&untaken)).collect();
        let calls: Vec<_> = (0..ROUNDS).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                receives.iter().for_each(|receive| receive.settle(Ok(Value::Done)));
            });
            start.wait();
            for (receive, count) in receives.iter().zip(&calls) {
                receive.tell(Box::new(CallCount(Arc::clone(count))));
            }
        });
        assert!(calls.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    /// MEM-26.6: a receive's failure is nobody's to report later, but a caller learns of it once.
    #[test]
    fn failure_of_a_receive_is_taken_once_and_is_in_no_list() {
        let untaken = Arc::default();
        let receive = receive(&untaken);
        let put = OperationLabel { verb: OperationKind::Put, len: 1, peer: 0, at: None };
        Completion::begun(put, &untaken).settle(Err(Failure::Cancelled));
        receive.settle(Err(Failure::Cancelled));
        assert_eq!((receive.take_failure(), receive.take_failure()), (true, false));
        assert_eq!(untaken.report(None).map(|report| report.count), Some(1), "the put's");
    }
}
