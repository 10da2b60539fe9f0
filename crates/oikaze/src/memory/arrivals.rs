//! Arrivals: puts with notice, as their target learns of them.

use super::region::LocalRegion;
use crate::error::Result;
use crate::job::handle::Job;
use oikaze_engine::Placed;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Notice;
use oikaze_runtime::node::{Needs, Node, TaskWait, WaitSubject, pending};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A put with notice that has arrived: all its bytes are in place and visible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Arrival(Placed);

impl Arrival {
    /// Returns the rank of the node that put the bytes.
    #[must_use]
    pub fn from(&self) -> Rank {
        self.0.from
    }

    /// Returns the tag that the sender chose.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.0.notice.tag
    }

    /// Returns the offset of the bytes from the start of the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.notice.offset
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.notice.len
    }

    /// Returns `true` if the put had no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key of the region, by which [`RemoteId`](super::remote::RemoteId) names the
    /// region too.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.0.notice.key
    }

    /// Returns `true` if the bytes are in this region.
    #[must_use]
    pub fn is_in(&self, region: &LocalRegion) -> bool {
        self.key() == region.key()
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { from, notice: Notice { offset, len, tag, .. } } = self.0;
        let mut all = f.debug_struct("Arrival");
        all.field("from", &from).field("offset", &offset).field("len", &len);
        all.field("tag", &tag).finish_non_exhaustive()
    }
}

/// Queue of the puts with notice that have arrived at this node, of all regions or of one. Each
/// entry is taken once, by whoever asks first. Clones are the same queue.
///
/// The queue is bounded by receive credit: an entry costs its sender 128 bytes of the 16 MiB that
/// unread messages and entries may cost, until it is taken. A sender without credit holds its puts
/// with notice, and its messages, back. A program that gets such puts must therefore take the
/// entries.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::zeroed(4096)?, Rights::WRITE)?;
/// let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;
/// let page = job.register(Region::zeroed(1024)?)?;
/// there.put_notify(1024, page.all(), 7).wait()?;
/// let arrival = job.arrivals().next()?; // its bytes are in place
/// assert!(arrival.is_in(&inbox) && arrival.from() == (job.rank() + job.size() - 1) % job.size());
/// assert_eq!((arrival.offset(), arrival.len(), arrival.tag()), (1024, 1024, 7));
/// # job.barrier()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Arrivals {
    node: Arc<Node>,
    /// Key of the region, or `None` for all regions.
    key: Option<u64>,
    limit: Option<Duration>,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl LocalRegion {
    /// Returns the queue of puts with notice to this region alone. An entry that is taken here is
    /// no longer in [`Job::arrivals`](crate::Job::arrivals).
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new(&self.inner.node, Some(self.key()), self.inner.limit)
    }
}

impl Job {
    /// Returns the queue of puts with notice to all regions of this node.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new(&self.node, None, self.limit)
    }
}

impl Arrivals {
    pub(super) fn new(node: &Arc<Node>, key: Option<u64>, limit: Option<Duration>) -> Self {
        Self { node: Arc::clone(node), key, limit }
    }

    /// Takes the oldest entry, if there is one.
    #[must_use]
    pub fn try_next(&self) -> Option<Arrival> {
        self.node.mail.take_arrival(&self.node, self.key).map(Arrival)
    }

    /// Waits for an entry, and takes it. The job's time limit applies.
    ///
    /// # Errors
    /// The time limit passed; all other nodes are lost or leave, or this node has left, and no
    /// entry is left.
    #[track_caller]
    pub fn next(&self) -> Result<Arrival> {
        self.next_within(self.limit)
    }

    /// Waits as [`Arrivals::next`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Arrivals::next`].
    #[track_caller]
    pub fn next_for(&self, limit: Duration) -> Result<Arrival> {
        self.next_within(Some(limit))
    }

    /// Takes an entry, which stays although its sender dies (MEM-25.6).
    #[track_caller]
    fn next_within(&self, limit: Option<Duration>) -> Result<Arrival> {
        self.wait_within(limit, || self.try_next())
    }

    /// Waits until an entry is there, and leaves it (`ffi::readiness`).
    #[track_caller]
    pub(crate) fn wait_until_filled(&self, limit: Option<Duration>) -> Result<()> {
        self.wait_within(limit.or(self.limit), || (!self.is_empty()).then_some(()))
    }

    #[track_caller]
    fn wait_within<T>(
        &self,
        limit: Option<Duration>,
        mut next: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        self.node.check_process(|| WHAT.into())?;
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::Arrival;
        let arrival = self.node.wait_on(&subject, deadline, || {
            self.node.departures.next_or_loss(None, Needs::Memory, &mut next)
        });
        self.node.awaited(|| WHAT.into(), begun, arrival)
    }

    /// Returns a future of the next entry. It has no time limit. Dropping it takes no entry.
    pub fn next_async(&self) -> NextArrival {
        NextArrival { arrivals: self.clone(), wait: TaskWait::default() }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.node.enter().map_or(0, |node| node.mail.arrivals.len(self.key))
    }

    /// Returns `true` if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Words for errors of a wait for an entry.
const WHAT: &str = "waiting for a put with notice";

/// Future of the next put with notice, made by [`Arrivals::next_async`]. No runtime is needed: the
/// helper thread drives the engine while all threads sleep in an executor.
///
/// # Errors
/// The output is what [`Arrivals::next`] returns, except that there is no time limit.
///
/// ```
/// use oikaze::memory::arrivals::NextArrival;
/// use oikaze::prelude::*;
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::zeroed(64)?, Rights::WRITE)?;
/// let there = job.peer(job.rank())?.region("inbox")?;
/// there.put_notify_copy(0, b"a note", 1)?.wait()?;
/// let mut next: NextArrival = inbox.arrivals().next_async();
/// let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
/// let arrival = loop {
///     if let Poll::Ready(arrival) = Pin::new(&mut next).poll(&mut context) {
///         break arrival?;
///     }
/// };
/// assert_eq!(arrival.len(), 6);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing until it is polled"]
#[derive(Debug)]
pub struct NextArrival {
    arrivals: Arrivals,
    wait: TaskWait,
}

impl NextArrival {
    fn ready(&mut self) -> Option<Result<Arrival>> {
        let Self { arrivals, wait } = self;
        let node = &arrivals.node;
        if let Err(error) = node.check_process(|| WHAT.into()) {
            return Some(Err(error));
        }
        let next = node.departures.next_or_loss(None, Needs::Memory, || arrivals.try_next())?;
        wait.end(node);
        Some(node.awaited(|| WHAT.into(), Instant::now(), Some(next)))
    }
}

impl Future for NextArrival {
    type Output = Result<Arrival>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Arrival>> {
        if let Some(next) = self.ready() {
            return Poll::Ready(next);
        }
        let Self { arrivals, wait } = &mut *self;
        arrivals.node.mail.arrivals.enlist(context.waker());
        let polls_on = arrivals.node.tasks.drive(&arrivals.node, wait);
        // An entry may have come before the waker was there, or just now.
        if let Some(next) = self.ready() {
            return Poll::Ready(next);
        }
        pending(polls_on, context)
    }
}
