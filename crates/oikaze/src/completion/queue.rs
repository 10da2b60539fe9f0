//! Completion queues. A queue reports each ended operation once, with the number that its caller
//! gave to it.

use crate::error::{Error, Result};
use oikaze_engine::OperationLabel;
use oikaze_engine::{Failure, Outcome, Sink, Value};
use oikaze_runtime::node::{Node, WaitSubject, Waiters, lock};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Queue in which operations report their end; see [`crate::Job::completion_queue`]. Clones are the
/// same queue.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let queue = job.completion_queue();
/// let me = job.peer(job.rank())?;
/// me.send(Class::Ordered, 0, b"a").report_to(&queue, 17)?;
/// let mut ended = Vec::new();
/// queue.wait(1, &mut ended)?;
/// assert_eq!(ended[0].context, 17);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    node: Arc<Node>,
    shared: Arc<SharedQueue>,
    limit: Option<Duration>,
}

/// An operation that has ended.
///
/// ```
/// use oikaze::completion::Completed;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let queue = job.completion_queue();
/// job.peer(job.rank())?.send(Class::Ordered, 0, b"a").report_to(&queue, 3)?;
/// let mut ended = Vec::new();
/// queue.wait(1, &mut ended)?;
/// for Completed { context, outcome } in ended {
///     assert!(context == 3 && outcome.is_ok());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Completed {
    /// Context that the caller gave to the operation.
    pub context: u64,
    /// Previous value, for an atomic that fetches (its bits, if it has fewer than 64). Length of
    /// the message in bytes, for a posted receive. Otherwise 0. For a failed operation, its error.
    pub outcome: Result<u64>,
}

#[derive(Debug, Default)]
struct SharedQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    entries: VecDeque<Entry>,
    waiters: Waiters,
}

#[derive(Debug)]
struct Entry {
    context: u64,
    outcome: std::result::Result<u64, Explanation>,
}

/// Error of something that has failed, made when a thread reads it: the turn that settles an
/// operation does only cheap work.
pub(crate) struct Explanation(Box<dyn FnOnce(&Node) -> Error + Send>);

impl Explanation {
    pub fn new(error: impl FnOnce(&Node) -> Error + Send + 'static) -> Explanation {
        Explanation(Box::new(error))
    }
}

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explanation").finish_non_exhaustive()
    }
}

/// Listener that puts the end of one operation into the queue.
#[derive(Debug)]
struct ToQueue {
    queue: Arc<SharedQueue>,
    context: u64,
    what: OperationLabel,
}

impl Sink for ToQueue {
    fn told(&self, outcome: &Outcome, serial: u64) {
        let outcome = match outcome {
            Ok(Value::Word(word)) => Ok(*word),
            Ok(Value::Received { len, .. }) => Ok(*len),
            Ok(_) => Ok(0),
            Err(failure) => {
                let (what, failure) = (self.what.clone(), Failure::clone(failure));
                Err(Explanation::new(move |node| {
                    match serial {
                        0 => node.requests.untaken.take_in_ring(what.peer),
                        serial => node.requests.untaken.take(what.peer, serial),
                    }
                    node.departures.failure(&what, failure).of_unknown_fate(what.fate())
                }))
            }
        };
        self.queue.push(Entry { context: self.context, outcome });
    }
}

impl SharedQueue {
    fn push(&self, entry: Entry) {
        let mut inside = lock(&self.0);
        inside.entries.push_back(entry);
        let there = inside.entries.len() as u64;
        inside.waiters.wake(there);
    }
}

impl CompletionQueue {
    pub(crate) fn new(node: &Arc<Node>, limit: Option<Duration>) -> Self {
        Self { node: Arc::clone(node), shared: Arc::default(), limit }
    }

    pub(crate) fn sink(&self, context: u64, what: OperationLabel) -> Box<dyn Sink> {
        Box::new(ToQueue { queue: Arc::clone(&self.shared), context, what })
    }

    /// Returns a function that reports the end of a collective: well, or with an error.
    pub(crate) fn reporter(
        &self,
        context: u64,
    ) -> impl FnOnce(std::result::Result<(), Explanation>) + Send + 'static {
        let queue = Arc::clone(&self.shared);
        move |outcome| queue.push(Entry { context, outcome: outcome.map(|()| 0) })
    }

    /// Reports an operation that was done when it was begun. No turn reports such an operation.
    pub(crate) fn take_done(&self, context: u64, bits: u64) {
        if self.node.enter().is_none() {
            return;
        }
        self.shared.push(Entry { context, outcome: Ok(bits) });
        self.node.tell_waiters();
    }

    /// Returns the number of operations that wait to be read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.node.enter().map_or(0, |_| lock(&self.shared.0).entries.len())
    }

    /// Returns `true` if no operation waits to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all operations in the queue to `into`, in the order in which they ended. Returns
    /// their number.
    pub fn poll(&self, into: &mut Vec<Completed>) -> usize {
        if self.node.enter().is_none() {
            return 0;
        }
        self.take(0).map_or(0, |entries| self.tell(entries, into))
    }

    /// Takes all entries, if there are at least `at_least`.
    fn take(&self, at_least: usize) -> Option<VecDeque<Entry>> {
        let mut inside = lock(&self.shared.0);
        (inside.entries.len() >= at_least).then(|| std::mem::take(&mut inside.entries))
    }

    fn tell(&self, entries: VecDeque<Entry>, into: &mut Vec<Completed>) -> usize {
        let count = entries.len();
        into.extend(entries.into_iter().map(|Entry { context, outcome }| {
            let outcome = outcome.map_err(|Explanation(error)| error(&self.node));
            Completed { context, outcome }
        }));
        count
    }

    /// Takes operations as [`CompletionQueue::poll`] does, once at least `at_least` are there. A
    /// thread that does not drive the engine meanwhile is woken once, by the last of them. The
    /// job's time limit applies.
    ///
    /// # Errors
    /// The time limit passed, or this node has left the job, whose operations have all ended then.
    /// The operations in the queue stay there.
    #[track_caller]
    pub fn wait(&self, at_least: usize, into: &mut Vec<Completed>) -> Result<usize> {
        self.wait_within(at_least, self.limit, into)
    }

    /// Waits as [`CompletionQueue::wait`] does, with this time limit.
    ///
    /// # Errors
    /// As [`CompletionQueue::wait`].
    #[track_caller]
    pub fn wait_for(
        &self,
        at_least: usize,
        limit: Duration,
        into: &mut Vec<Completed>,
    ) -> Result<usize> {
        self.wait_within(at_least, Some(limit), into)
    }

    #[track_caller]
    fn wait_within(
        &self,
        at_least: usize,
        limit: Option<Duration>,
        into: &mut Vec<Completed>,
    ) -> Result<usize> {
        // Takes the full number or nothing, whatever another thread takes meanwhile.
        self.wait_and(at_least, limit, || self.take(at_least))
            .map(|entries| self.tell(entries, into))
    }

    /// Appends all operations in the queue to `into` as [`CompletionQueue::poll`] does, if there
    /// are at least `at_least`. Otherwise returns `false` (`ffi::readiness`).
    pub(crate) fn poll_at_least(&self, at_least: usize, into: &mut Vec<Completed>) -> bool {
        if self.node.enter().is_none() {
            return false;
        }
        self.take(at_least).map(|entries| self.tell(entries, into)).is_some()
    }

    /// Waits until `at_least` operations are there, and leaves them (`ffi::readiness`).
    #[track_caller]
    pub(crate) fn wait_until_filled(&self, at_least: usize, limit: Option<Duration>) -> Result<()> {
        let is_filled = || (self.len() >= at_least).then_some(());
        self.wait_and(at_least, limit.or(self.limit), is_filled)
    }

    #[track_caller]
    fn wait_and<T>(
        &self,
        at_least: usize,
        limit: Option<Duration>,
        mut take: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        self.node.check_process(|| "waiting in a completion queue".into())?;
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || {
            WaitSubject::other(format!(
                "{at_least} operations in a completion queue, where {} are",
                self.len()
            ))
        };
        if let Some(taken) = take() {
            return Ok(taken);
        }
        lock(&self.shared.0).waiters.enlist(at_least as u64);
        let there = self
            .node
            .wait_quietly(&subject, deadline, || self.node.departures.next_or_left(&mut take));
        lock(&self.shared.0).waiters.delist();
        let what = || {
            format!(
                "waiting for {at_least} operations in a completion queue, where {} are",
                self.len()
            )
        };
        self.node.awaited(what, begun, there)
    }
}
