//! Collectives under way, to wait for or to await.

use super::run::{CollectiveFailure, Slot, TeamCore};
use crate::error::Cause;
use crate::node::{Node, WaitSubject};
use crate::{Error, Result};
use oikaze_protocol::collective::CollectiveCall;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Time after which a waiting rank tells the rank it waits for what it calls.
const NOTICE_AFTER: Duration = Duration::from_millis(100);

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
    slot: Arc<Slot<R>>,
    core: Arc<TeamCore>,
    node: Arc<Node>,
    call: CollectiveCall,
    limit: Option<Duration>,
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("call", &format_args!("{}", self.call)).finish()
    }
}

impl<R> Pending<R> {
    pub(super) fn new(
        slot: Arc<Slot<R>>,
        core: &Arc<TeamCore>,
        node: &Arc<Node>,
        call: CollectiveCall,
        limit: Option<Duration>,
    ) -> Self {
        Pending { slot, core: Arc::clone(core), node: Arc::clone(node), call, limit }
    }

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
    pub fn wait(self) -> Result<R> {
        self.wait_within(self.limit)
    }

    /// Waits as [`Pending::wait`] does, with this time limit. After a timeout, it may be called
    /// again. The result is returned once.
    ///
    /// # Errors
    /// As [`Pending::wait`]; or the result was taken before.
    pub fn wait_for(&self, limit: Duration) -> Result<R> {
        self.wait_within(Some(limit))
    }

    fn wait_within(&self, limit: Option<Duration>) -> Result<R> {
        if !self.slot.is_done() {
            self.wait_until_done(limit)?;
        }
        self.taken()
    }

    fn wait_until_done(&self, limit: Option<Duration>) -> Result<()> {
        let what = || self.call.to_string();
        self.node.check_process(what)?;
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::other(what());
        let long = &mut self.node.long_wait(&subject);
        let is_done = || self.slot.is_done().then_some(());
        loop {
            let notice = Instant::now() + NOTICE_AFTER;
            let until = deadline.map_or(notice, |deadline| deadline.min(notice));
            if self.node.wait_within(long, Some(until), is_done).is_some() {
                return Ok(());
            }
            if self.node.is_forked() {
                return Err(Error::failed(what(), self.node.forked()));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Cause::Timeout { what: what(), waited: begun.elapsed() }.into());
            }
            self.core.notify(&self.node);
        }
    }

    fn taken(&self) -> Result<R> {
        let what = || self.call.to_string();
        match self.slot.take() {
            Some(Ok(result)) => Ok(result),
            Some(Err(CollectiveFailure::Lost(failure))) => Err(self.node.failure(&what(), failure)),
            Some(Err(CollectiveFailure::Mistake(why))) => Err(Error::invalid(what(), why)),
            None => Err(Error::invalid(what(), "its result was taken before; keep it there")),
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
pub struct PendingFuture<R>(Pending<R>);

impl<R> Future for PendingFuture<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        if self.0.slot.is_done() || !self.0.slot.wake_with(context.waker()) {
            return Poll::Ready(self.0.taken());
        }
        Poll::Pending
    }
}

impl<R> IntoFuture for Pending<R> {
    type Output = Result<R>;
    type IntoFuture = PendingFuture<R>;

    fn into_future(self) -> PendingFuture<R> {
        PendingFuture(self)
    }
}
