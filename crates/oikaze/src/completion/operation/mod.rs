//! Handles of operations. A caller waits on an object, with a time limit if wanted.

mod bits;
mod future;
mod in_ring;

use crate::completion::counter::Counter;
use crate::completion::queue::CompletionQueue;
use crate::error::{Error, Result};
use in_ring::InRing;
use oikaze_engine::{Completion, OperationKind, OperationLabel, Request, Sink, Value};
use oikaze_protocol::rma::Word;
use oikaze_runtime::node::{Node, ShmRoute, WaitSubject};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

pub use future::OperationFuture;

/// Type of the result of an operation.
///
/// ```
/// use oikaze::completion::Outcome;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn wait_all<T: Outcome>(operations: &[Operation<T>]) -> oikaze::Result<Vec<T>> {
///     operations.iter().map(Operation::wait).collect()
/// }
/// let me = job.peer(job.rank())?;
/// wait_all(&[me.send(Class::Ordered, 1, b"a"), me.send(Class::Ordered, 2, b"b")])?;
/// # Ok(())
/// # }
/// ```
pub trait Outcome: Copy {
    #[doc(hidden)]
    fn from_value(value: Value) -> Option<Self>;
    #[doc(hidden)]
    fn to_bits(self) -> u64;
}

impl Outcome for () {
    fn from_value(_: Value) -> Option<()> {
        Some(())
    }
    fn to_bits(self) -> u64 {
        0
    }
}

macro_rules! outcome {
    ($($word:ty),*) => {
        $(impl Outcome for $word {
            fn from_value(value: Value) -> Option<$word> {
                match value {
                    Value::Word(word) => Some(Word::from_bits(word)),
                    _ => None,
                }
            }
            fn to_bits(self) -> u64 {
                Word::to_bits(self)
            }
        })*
    };
}
outcome!(u32, i32, i64);

/// Bits of the outcome: the length for a posted receive, 0 for an operation that yields nothing.
impl Outcome for u64 {
    fn from_value(value: Value) -> Option<u64> {
        match value {
            Value::Word(word) => Some(word),
            Value::Received { len, .. } => Some(len),
            Value::Done => Some(0),
            _ => None,
        }
    }
    fn to_bits(self) -> u64 {
        self
    }
}

/// An operation in flight. Dropping the handle does not end the operation, which keeps its memory
/// and completes on its own.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(64)?, Rights::ATOMIC)?;
/// let there = job.peer(0)?.region("inbox")?;
/// let operation = there.fetch_add(0, 1); // is under way
/// let before = operation.wait()?; // or operation.await?
/// assert!(before < u64::from(job.size()) && operation.is_done());
/// # job.barrier()?;
/// # drop(inbox);
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation that is not waited for may fail unseen"]
pub struct Operation<T>(OperationState<T>);

/// State of an operation. A message in a ring holds a reference to its route, so sending one
/// allocates nothing.
enum OperationState<T> {
    Begun(Box<Begun>),
    /// A message that was put directly into its receiver's ring ([`InRing`]).
    InRing {
        marks: AtomicU8,
        route: Arc<ShmRoute>,
        len: u32,
        position: u64,
    },
    /// Done before the call that began it returned. Nothing is left to wait for, to count or to
    /// explain.
    Done {
        told: AtomicBool,
        outcome: T,
    },
}

/// Borrowed view of a `OperationState`.
enum View<'o, T> {
    Begun(&'o Begun),
    InRing(InRing<'o>),
    Done(&'o AtomicBool, T),
}

const _: () = assert!(size_of::<Operation<u64>>() == 3 * size_of::<usize>());

/// Operation that the engine knows of.
pub(crate) struct Begun {
    /// A queue or a counter reports its end.
    told: AtomicBool,
    node: Arc<Node>,
    completion: Arc<Completion>,
    limit: Option<Duration>,
}

impl Begun {
    /// Makes an operation from a completion that [`Completion::begun`] returned.
    pub fn new(
        node: &Arc<Node>,
        completion: Arc<Completion>,
        limit: Option<Duration>,
    ) -> Box<Begun> {
        Box::new(Begun { told: AtomicBool::new(false), node: Arc::clone(node), completion, limit })
    }

    fn what(&self) -> OperationLabel {
        let unknown = || OperationLabel { verb: OperationKind::Message, len: 0, peer: 0, at: None };
        self.completion.what().cloned().unwrap_or_else(unknown)
    }

    #[track_caller]
    fn wait<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        let Self { node, completion, .. } = self;
        let value = match completion.outcome() {
            Some(Ok(value)) => value,
            _ => {
                let what = self.what();
                let failed = |error: Error| {
                    completion.take_failure();
                    error.of_unknown_fate(what.fate())
                };
                node.outcome_of(
                    &|| WaitSubject::of_operation(&what),
                    &what,
                    || completion.outcome(),
                    limit,
                )
                .map_err(failed)?
            }
        };
        T::from_value(value).ok_or_else(|| {
            Error::invalid(self.what().to_string(), "the outcome is of another kind (a defect)")
        })
    }
}

impl<T: Outcome> Operation<T> {
    /// Makes a message of `len` bytes that was put into its receiver's ring, and that ends there at
    /// this position.
    #[inline]
    pub(crate) fn in_ring(route: &Arc<ShmRoute>, position: u64, len: u32) -> Self {
        Self(OperationState::InRing {
            marks: AtomicU8::new(0),
            route: Arc::clone(route),
            len,
            position,
        })
    }

    #[inline]
    pub(crate) fn begun(begun: Box<Begun>) -> Self {
        Self(OperationState::Begun(begun))
    }

    /// Makes an operation that is done.
    #[inline]
    pub(crate) fn done(outcome: T) -> Self {
        Self(OperationState::Done { told: AtomicBool::new(false), outcome })
    }

    #[inline]
    fn view(&self) -> View<'_, T> {
        match &self.0 {
            OperationState::Begun(begun) => View::Begun(begun),
            OperationState::InRing { marks, route, len, position } => {
                View::InRing(InRing { marks, route, len: *len, position: *position })
            }
            OperationState::Done { told, outcome } => View::Done(told, *outcome),
        }
    }

    /// Returns the node of the operation. There is none if the operation was done at once, or if
    /// the node is gone.
    fn node(&self) -> Option<Arc<Node>> {
        match &self.0 {
            OperationState::Begun(begun) => Some(Arc::clone(&begun.node)),
            OperationState::InRing { route, .. } => route.node(),
            OperationState::Done { .. } => None,
        }
    }

    /// Returns `true` if the operation is settled. This costs one load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self.view() {
            View::Begun(begun) => begun.completion.is_done(),
            View::InRing(in_ring) => in_ring.is_done(),
            View::Done(..) => true,
        }
    }

    /// Waits until the operation is complete. A put is complete when the data is in the peer's
    /// memory and visible there. The job's time limit applies.
    ///
    /// # Errors
    /// The error names the operation and the cause. If the time limit passed
    /// ([`Error::is_timeout`]), the operation goes on.
    #[inline]
    #[track_caller]
    pub fn wait(&self) -> Result<T> {
        match self.view() {
            View::Done(_, outcome) => Ok(outcome),
            View::Begun(begun) => begun.wait(begun.limit),
            View::InRing(in_ring) => in_ring.wait(),
        }
    }

    /// Waits as [`Operation::wait`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Operation::wait`].
    #[inline]
    #[track_caller]
    pub fn wait_for(&self, limit: Duration) -> Result<T> {
        match self.view() {
            View::Done(_, outcome) => Ok(outcome),
            View::Begun(begun) => begun.wait(Some(limit)),
            View::InRing(in_ring) => in_ring.wait_for(Some(limit)),
        }
    }

    /// Waits within this time limit. Without one, until the operation has ended, or the peer.
    #[track_caller]
    pub(crate) fn wait_within(&self, limit: Option<Duration>) -> Result<T> {
        match self.view() {
            View::Done(_, outcome) => Ok(outcome),
            View::Begun(begun) => begun.wait(limit),
            View::InRing(in_ring) => in_ring.wait_for(limit),
        }
    }

    /// Returns the outcome if the operation is settled.
    ///
    /// # Errors
    /// The error names the operation and the cause.
    #[must_use]
    pub fn try_take(&self) -> Option<Result<T>> {
        // A settled operation needs no wait.
        self.is_done().then(|| self.wait_for(Duration::ZERO))
    }

    /// Ends the operation, if it has not ended. A posted receive that is cancelled has taken no
    /// message, but its memory may hold bytes of one that was withdrawn. After the call, the node
    /// neither reads nor writes the operation's memory (but for datagrams that the network has
    /// already: WIND-5.5). Whether the operation took place at the peer is unknown then.
    ///
    /// # Errors
    /// The error names the operation and the cause, most often that it was cancelled.
    #[track_caller]
    pub fn cancel(&self) -> Result<T> {
        match self.view() {
            View::Begun(begun @ Begun { node, completion, limit, .. }) => {
                let what = begun.what();
                if what.verb == OperationKind::Receive {
                    node.mail.cancel_receive(node, completion);
                } else {
                    let asked =
                        node.submit(Request::Cancel { completion: Arc::clone(completion) }, None);
                    node.outcome(&format_args!("cancelling the {what}"), &asked, *limit)?;
                }
            }
            View::InRing(in_ring) => in_ring.give_up(),
            View::Done(..) => {}
        }
        self.wait()
    }

    /// Makes the queue report the operation's end once, by the number `context`. The operation may
    /// have ended already. The handle may be dropped afterwards.
    ///
    /// # Errors
    /// A queue or a counter is told of the operation already; it tells one only.
    pub fn report_to(&self, queue: &CompletionQueue, context: u64) -> Result<()> {
        self.tell(
            |what| queue.sink(context, what),
            |outcome| queue.take_done(context, outcome.to_bits()),
        )
    }

    /// Makes the counter count the operation's end once. The operation may have ended already. The
    /// handle may be dropped afterwards.
    ///
    /// # Errors
    /// As [`Operation::report_to`].
    pub fn count_in(&self, counter: &Counter) -> Result<()> {
        self.tell(|_| counter.sink(), |_| counter.count_done())
    }

    /// Attaches a sink that the turn which settles the operation informs. If no turn will settle
    /// it, `now` informs the sink at once.
    fn tell(
        &self,
        sink: impl FnOnce(OperationLabel) -> Box<dyn Sink>,
        now: impl FnOnce(T),
    ) -> Result<()> {
        let (was_told, what) = match self.view() {
            View::Begun(begun) => (begun.told.swap(true, Ordering::Relaxed), Some(begun.what())),
            View::InRing(in_ring) => (in_ring.was_told(), Some(in_ring.what())),
            View::Done(told, _) => (told.swap(true, Ordering::Relaxed), None),
        };
        if was_told {
            let what = what.map_or("an operation that is done".to_owned(), |what| what.to_string());
            return Err(Error::invalid(
                what,
                "its end is told to a counter already; an operation tells one counter or one queue",
            ));
        }
        match self.view() {
            View::Begun(begun @ Begun { node, completion, .. }) => {
                node.note(Request::Tell {
                    completion: Arc::clone(completion),
                    sink: sink(begun.what()),
                });
            }
            View::InRing(in_ring) => in_ring.tell(sink(in_ring.what())),
            View::Done(_, outcome) => now(outcome),
        }
        Ok(())
    }

    /// Returns the completion that receives the outcome, or `None` if the operation is done
    /// already.
    pub(crate) fn completion(&self) -> Option<&Arc<Completion>> {
        match self.view() {
            View::Begun(begun) => Some(&begun.completion),
            View::InRing(_) | View::Done(..) => None,
        }
    }
}
