//! Collectives under way, to wait for or to await.

use crate::collective::run::calling::waits_as_caller;
use crate::collective::run::slot::{Listener, Slot};
use crate::collective::run::work::UntypedResult;
use crate::completion::counter::Counter;
use crate::completion::queue::{CompletionQueue, Explanation};
use crate::error::{Error, Result};
use crate::tables::element_kind::named;
use oikaze_protocol::collective::CollectiveCall;
use oikaze_runtime::node::{self, Node, TaskWait, WaitSubject, line_of};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A collective under way, which [`Collectives::start`](super::Collectives::start) begins.
///
/// A collective advances whenever any thread of this node waits for anything, or the helper thread
/// runs (COLL-4.1). Dropping this handle does not end the collective.
///
/// ```
/// use oikaze::collective::Pending;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let sums: Pending<Vec<u32>> = job.start().all_reduce(&[1, 2], Sum);
/// // Other work goes here.
/// assert_eq!(sums.wait()?, [job.size(), 2 * job.size()]); // or: sums.await?
/// # Ok(())
/// # }
/// ```
#[must_use = "a collective that is not waited for may fail unseen"]
pub struct Pending<R> {
    slot: Arc<Slot>,
    /// Makes the result that the program gets.
    finish: fn(UntypedResult) -> R,
    node: Arc<Node>,
    call: CollectiveCall,
    /// Number of the collective in its team, from 1, and whether the team is all nodes.
    number: Option<(u64, bool)>,
    limit: Option<Duration>,
    /// A queue or a counter reports the end.
    told: AtomicBool,
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("call", &format_args!("{}", named(&self.call))).finish()
    }
}

impl Pending<UntypedResult> {
    pub(super) fn new(
        slot: Arc<Slot>,
        node: &Arc<Node>,
        call: CollectiveCall,
        number: Option<(u64, bool)>,
        limit: Option<Duration>,
    ) -> Self {
        let (node, told) = (Arc::clone(node), AtomicBool::new(false));
        Pending { slot, finish: |result| result, node, call, number, limit, told }
    }

    /// Makes the caller get what `finish` makes of the result.
    pub(super) fn then<R>(self, finish: fn(UntypedResult) -> R) -> Pending<R> {
        let Pending { slot, node, call, number, limit, told, .. } = self;
        Pending { slot, finish, node, call, number, limit, told }
    }
}

impl Pending<UntypedResult> {
    /// Returns the number of the collective in its team, from 0, if it was called.
    pub(super) fn number(&self) -> Option<u64> {
        self.number.map(|(number, _)| number - 1)
    }

    /// Waits as [`Pending::wait`] does for a collective whose caller takes its steps by `step`.
    /// After a time limit, [`Pending::is_done`] says whether it has ended meanwhile.
    #[track_caller]
    pub(super) fn wait_with(&self, step: &mut dyn FnMut()) -> Result<UntypedResult> {
        let deadline = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        self.wait_until(deadline, step)?;
        self.taken_here()
    }
}

impl<R> Pending<R> {
    /// Returns `true` if the collective has ended for this rank. This costs one load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }

    /// Waits for the end, and returns the result. The job's time limit applies.
    ///
    /// # Errors
    /// The ranks call different things; an operator panicked; a node is lost; or the time limit
    /// passed. After a time limit the collective goes on without its caller.
    #[track_caller]
    pub fn wait(self) -> Result<R> {
        self.wait_within(self.limit)
    }

    /// Waits as [`Pending::wait`] does, with this time limit. After a timeout, it may be called
    /// again. The result is returned once.
    ///
    /// # Errors
    /// As [`Pending::wait`]; or the result was taken before.
    #[track_caller]
    pub fn wait_for(&self, limit: Duration) -> Result<R> {
        self.wait_within(Some(limit))
    }

    /// Waits as [`Pending::wait_for`] does, and leaves the result for a later call. A binding whose
    /// program shares the handle among threads lets all of them wait so, and one take the result.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// use std::time::Duration;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let sums = job.start().all_reduce(&[1_u32], Sum);
    /// sums.wait_ended(Duration::from_secs(10))?;
    /// assert!(sums.is_done());
    /// assert_eq!(sums.wait()?, [job.size()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The time limit passed. An error of the collective itself is left like a result.
    #[track_caller]
    pub fn wait_ended(&self, limit: Duration) -> Result<()> {
        if self.slot.is_done() { Ok(()) } else { self.wait_until_done(Some(limit)) }
    }

    #[track_caller]
    fn wait_within(&self, limit: Option<Duration>) -> Result<R> {
        if !self.slot.is_done() {
            self.wait_until_done(limit)?;
        }
        self.taken_here()
    }

    /// Returns the result, or an error that names the caller's line if the calls do not fit.
    #[track_caller]
    fn taken_here(&self) -> Result<R> {
        match self.taken() {
            Err(error) if error.is_mismatch() => Err(error.at(line_of(Location::caller()))),
            taken => taken,
        }
    }

    #[track_caller]
    fn wait_until_done(&self, limit: Option<Duration>) -> Result<()> {
        if waits_as_caller() && matches!(self.number, Some((_, true))) {
            return Err(Error::invalid(
                named(&self.call).to_string(),
                "a handler of a signal waits for it while its thread waits in an earlier collective: \
                 wait for it when that one has ended",
            ));
        }
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        if self.node.enter().is_some() {
            self.node.collectives.poll_slots(&self.node, || self.slot.is_done());
        }
        self.wait_until(deadline, &mut || ())
    }

    /// Waits for the end, and leaves the result. `step` is called before each look at it.
    #[track_caller]
    fn wait_until(&self, deadline: Option<Instant>, step: &mut dyn FnMut()) -> Result<()> {
        let call = named(&self.call);
        let subject = || {
            WaitSubject::other(match self.number {
                Some((number, true)) => format!("{call}, collective {number} of the job"),
                Some((number, false)) => format!("{call}, collective {number} of a team"),
                None => call.to_string(),
            })
        };
        self.wait_as(&subject, deadline, step)
    }

    /// Waits for the end, and leaves the result. A long wait is explained as one for `subject`.
    #[track_caller]
    pub(super) fn wait_as(
        &self,
        subject: &dyn Fn() -> WaitSubject,
        deadline: Option<Instant>,
        step: &mut dyn FnMut(),
    ) -> Result<()> {
        let what = || named(&self.call).to_string();
        self.node.check_process(what)?;
        let begun = Instant::now();
        let is_done = || {
            if !self.slot.is_done() {
                step();
            }
            self.slot.is_done().then_some(Ok(()))
        };
        let done = self.node.wait_on_call(subject, deadline, is_done);
        self.node.awaited(what, begun, done)
    }

    /// Returns the result if the collective has ended. The result is returned once.
    ///
    /// # Errors
    /// As [`Pending::wait_for`].
    #[must_use]
    pub fn try_take(&self) -> Option<Result<R>> {
        self.is_done().then(|| self.taken())
    }

    /// Makes the queue report the end of the collective once, by the number `context`. The queue
    /// gives no result, which stays here. The collective may have ended already. The handle may be
    /// dropped afterwards.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let queue = job.completion_queue();
    /// let sums: Vec<_> = (0..3).map(|n| job.start().all_reduce(&[n], Sum)).collect();
    /// for (sum, context) in sums.iter().zip(0..) {
    ///     sum.report_to(&queue, context)?;
    /// }
    /// let mut ended = Vec::new();
    /// queue.wait(3, &mut ended)?;
    /// for one in ended {
    ///     one.outcome?;
    ///     let sum = sums[one.context as usize].try_take().expect("it has ended")?;
    ///     assert_eq!(sum, [one.context as u32 * job.size()]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A queue or a counter is told of the collective already; it tells one only.
    pub fn report_to(&self, queue: &CompletionQueue, context: u64) -> Result<()> {
        let (report, call) = (queue.reporter(context), self.call);
        self.tell(Box::new(move |outcome| {
            report(
                outcome.map_err(|failure| {
                    Explanation::new(move |node| failure.into_error(node, &call))
                }),
            );
        }))
    }

    /// Makes the counter count the end of the collective once. The collective may have ended
    /// already. The handle may be dropped afterwards.
    ///
    /// # Errors
    /// As [`Pending::report_to`].
    pub fn count_in(&self, counter: &Counter) -> Result<()> {
        let count = counter.reporter();
        self.tell(Box::new(move |outcome| count(outcome.is_ok())))
    }

    fn tell(&self, listener: Listener) -> Result<()> {
        if self.told.swap(true, Ordering::Relaxed) {
            return Err(Error::invalid(
                named(&self.call).to_string(),
                "its end is told already; a collective tells one counter or one queue",
            ));
        }
        if self.node.enter().is_some() && self.slot.listen(listener) {
            self.node.tell_waiters();
        }
        Ok(())
    }

    fn taken(&self) -> Result<R> {
        match self.slot.take() {
            Some(Ok(result)) => Ok((self.finish)(result)),
            Some(Err(failure)) => Err(failure.into_error(&self.node, &self.call)),
            None => Err(Error::invalid(
                named(&self.call).to_string(),
                "its result was taken before; keep it there",
            )),
        }
    }
}

/// Future of a [`Pending`] collective, made by `.await`. It has no time limit.
///
/// ```
/// use oikaze::collective::PendingFuture;
/// use oikaze::prelude::*;
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let mut future: PendingFuture<Vec<u32>> = job.start().all_gather(&[job.rank()]).into_future();
/// let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
/// let ranks = loop {
///     if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut context) {
///         break outcome?;
///     }
/// };
/// assert_eq!(ranks.len(), job.size() as usize);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing until it is polled"]
#[derive(Debug)]
pub struct PendingFuture<R> {
    pending: Pending<R>,
    wait: TaskWait,
}

impl<R> Future for PendingFuture<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let Self { pending, wait } = &mut *self;
        let Pending { slot, node, .. } = pending;
        if !slot.is_done() && slot.wake_with(context.waker()) {
            let polls_on = node.tasks.drive(node, wait);
            if !slot.is_done() {
                return node::pending(polls_on, context);
            }
        }
        wait.end(node);
        Poll::Ready(pending.taken())
    }
}

impl<R> IntoFuture for Pending<R> {
    type Output = Result<R>;
    type IntoFuture = PendingFuture<R>;

    fn into_future(self) -> PendingFuture<R> {
        PendingFuture { pending: self, wait: TaskWait::default() }
    }
}
