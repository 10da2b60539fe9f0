//! Completion counters. A thread that waits for the last of many operations is woken once.

use crate::error::Result;
use oikaze_engine::{Outcome, Sink};
use oikaze_runtime::node::{Node, WaitSubject, Waiters, lock};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Counts operations that have ended; see [`crate::Job::counter`]. Clones count together.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let counter = job.counter();
/// let me = job.peer(job.rank())?;
/// for tag in 0..10 {
///     me.send(Class::Ordered, tag, b"tick").count_in(&counter)?;
/// }
/// assert_eq!(counter.wait(10)?.succeeded, 10); // woken once, by the last
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Counter {
    node: Arc<Node>,
    shared: Arc<SharedCounter>,
    limit: Option<Duration>,
}

/// Numbers of operations that have ended since the counter was made.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let counter = job.counter();
/// job.peer(job.rank())?.send(Class::Ordered, 0, b"tick").count_in(&counter)?;
/// let counts = counter.wait(1)?;
/// assert_eq!((counts.succeeded, counts.failed, counts.ended()), (1, 0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of operations that succeeded.
    pub succeeded: u64,
    /// Number of operations that failed. Their handles give the errors.
    pub failed: u64,
}

impl Counts {
    /// Returns the number of all operations that have ended.
    #[must_use]
    pub fn ended(self) -> u64 {
        self.succeeded + self.failed
    }
}

#[derive(Debug, Default)]
struct SharedCounter(Mutex<CounterState>);

#[derive(Debug, Default)]
struct CounterState {
    counts: Counts,
    waiters: Waiters,
}

/// Listener that records the end of one operation in the counter.
#[derive(Debug)]
struct ToCounter(Arc<SharedCounter>);

impl Sink for ToCounter {
    fn told(&self, outcome: &Outcome, _: u64) {
        self.0.count(outcome.is_ok());
    }
}

impl SharedCounter {
    fn count(&self, succeeded: bool) {
        let mut inside = lock(&self.0);
        let counts = &mut inside.counts;
        *if succeeded { &mut counts.succeeded } else { &mut counts.failed } += 1;
        let ended = counts.ended();
        inside.waiters.wake(ended);
    }
}

impl Counter {
    pub(crate) fn new(node: &Arc<Node>, limit: Option<Duration>) -> Self {
        Self { node: Arc::clone(node), shared: Arc::default(), limit }
    }

    pub(crate) fn sink(&self) -> Box<dyn Sink> {
        Box::new(ToCounter(Arc::clone(&self.shared)))
    }

    /// Returns a function that counts the end of a collective; `true`: it ended well.
    pub(crate) fn reporter(&self) -> impl FnOnce(bool) + Send + 'static {
        let counter = Arc::clone(&self.shared);
        move |succeeded| counter.count(succeeded)
    }

    /// Counts an operation that was done when it was begun. No turn reports such an operation.
    pub(crate) fn count_done(&self) {
        if self.node.enter().is_none() {
            return;
        }
        self.shared.count(true);
        self.node.tell_waiters();
    }

    /// Returns the numbers of operations that have ended so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.node.enter().map_or_else(Counts::default, |_| lock(&self.shared.0).counts)
    }

    /// Waits until `ended` operations have ended in all, well or not, since the counter was made. A
    /// thread that does not drive the engine meanwhile is woken once, by the last of them. The
    /// job's time limit applies.
    ///
    /// # Errors
    /// The time limit passed, or this node has left the job, whose operations have all ended then.
    #[track_caller]
    pub fn wait(&self, ended: u64) -> Result<Counts> {
        self.wait_within(ended, self.limit)
    }

    /// Waits as [`Counter::wait`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Counter::wait`].
    #[track_caller]
    pub fn wait_for(&self, ended: u64, limit: Duration) -> Result<Counts> {
        self.wait_within(ended, Some(limit))
    }

    #[track_caller]
    fn wait_within(&self, ended: u64, limit: Option<Duration>) -> Result<Counts> {
        self.node.check_process(|| "waiting for a counter".into())?;
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let ready = || Some(self.counts()).filter(|counts| counts.ended() >= ended);
        let subject = || {
            WaitSubject::other(format!(
                "{ended} operations to end, of which {} have",
                self.counts().ended()
            ))
        };
        if let Some(counts) = ready() {
            return Ok(counts);
        }
        lock(&self.shared.0).waiters.enlist(ended);
        let counts =
            self.node.wait_quietly(&subject, deadline, || self.node.departures.next_or_left(ready));
        lock(&self.shared.0).waiters.delist();
        let what = || {
            format!(
                "waiting until {ended} operations have ended, of which {} have",
                self.counts().ended()
            )
        };
        self.node.awaited(what, begun, counts)
    }
}
