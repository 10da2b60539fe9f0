//! Operations that are under way, and ways to learn of their end.
//!
//! A call that begins something returns an [`Operation`], which a program waits for, or awaits.
//! Besides, a [`CompletionQueue`] reports each operation that has ended, and a [`Counter`] their
//! number. [`Job::flush`] waits for all, and [`Job::fence`] orders without waiting.
//!
//! The turn that settles an operation informs queue and counter, whichever thread runs it.
//! Collectives report to both, too ([`Pending`](crate::collective::Pending)). Attaching to an
//! operation that has already ended misses nothing. A queue holds a number that the
//! caller chose, so that a binding for another language needs no object of this crate.

pub(crate) mod counter;
pub(crate) mod operation;
pub(crate) mod queue;

pub use counter::{Counter, Counts};
pub use operation::{Operation, OperationFuture, Outcome};
pub use queue::{Completed, CompletionQueue};

use crate::error::Result;
use crate::job::handle::Job;
use crate::job::peer::Peer;
use oikaze_engine::Request;
use oikaze_runtime::node::WaitSubject;
use std::time::Duration;

impl Job {
    /// Makes a queue in which operations report their end ([`Operation::report_to`]).
    #[must_use]
    pub fn completion_queue(&self) -> CompletionQueue {
        CompletionQueue::new(&self.node, self.limit)
    }

    /// Makes a counter of operations that have ended ([`Operation::count_in`]).
    #[must_use]
    pub fn counter(&self) -> Counter {
        Counter::new(&self.node, self.limit)
    }

    /// Posts many small operations together, at several times the rate of posting one by one. The
    /// operations that `posts` begins leave at its end, in as few datagrams as hold them. They
    /// leave earlier if they are many, or if a thread waits.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// let job = oikaze::join()?;
    /// let next = job.peer((job.rank() + 1) % job.size())?;
    /// let sent: Vec<_> =
    ///     job.batch(|| (0..64).map(|n| next.send(Class::Ordered, n, b"tick")).collect());
    /// for n in 0..64 {
    ///     assert_eq!(job.receive(None)?.tag(), n);
    /// }
    /// sent.into_iter().try_for_each(|message| message.wait())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch<T>(&self, posts: impl FnOnce() -> T) -> T {
        self.node.batch(posts)
    }

    /// Fences the operations to each peer ([`Peer::fence`]).
    pub fn fence(&self) {
        self.node.fence(None);
    }

    /// Waits until all operations and messages that this node has begun have ended, to all peers.
    ///
    /// # Errors
    /// The time limit passed; or operations have failed and no caller knows. An unreported
    /// operation is one whose handle was dropped or not waited for yet, and whose failure no
    /// completion queue has handed out. The error gives the number of failures, and holds the
    /// first. Each failure is reported once.
    #[track_caller]
    pub fn flush(&self) -> Result<()> {
        self.flush_within(self.limit)
    }

    /// Waits for all operations as [`Job::flush`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::flush`].
    #[track_caller]
    pub fn flush_for(&self, limit: Duration) -> Result<()> {
        self.flush_within(Some(limit))
    }

    #[track_caller]
    fn flush_within(&self, limit: Option<Duration>) -> Result<()> {
        let completion = self.node.submit(Request::Flush { peer: None }, None);
        let subject = || WaitSubject::other("all operations of this node to end");
        self.node.outcome_of(
            &subject,
            &"waiting for all operations to end",
            || completion.outcome(),
            limit,
        )?;
        self.node.departures.report_untaken(&self.node, None)
    }
}

impl Peer {
    /// Orders operations and messages to this peer. Those begun after the fence take place at the
    /// peer after those begun before it. The call returns at once. Later operations are held here
    /// until earlier ones have ended, which costs them a round trip, or nothing if nothing is
    /// outstanding. An earlier operation that fails holds no later one back. Operations to other
    /// peers are not affected.
    ///
    /// [`RemoteRegion::put_signal`] is faster for telling the peer that data is there, because it
    /// needs no fence.
    ///
    /// [`RemoteRegion::put_signal`]: crate::memory::remote::RemoteRegion::put_signal
    pub fn fence(&self) {
        self.node.fence(Some(self.rank));
    }

    /// Waits until all operations and messages to this peer that this node has begun have ended.
    ///
    /// # Errors
    /// The time limit passed; or operations to this peer have failed and no caller knows, as
    /// [`Job::flush`] says.
    #[track_caller]
    pub fn flush(&self) -> Result<()> {
        self.flush_within(self.limit)
    }

    /// Waits for operations to this peer as [`Peer::flush`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Peer::flush`].
    #[track_caller]
    pub fn flush_for(&self, limit: Duration) -> Result<()> {
        self.flush_within(Some(limit))
    }

    #[track_caller]
    fn flush_within(&self, limit: Option<Duration>) -> Result<()> {
        let completion = self.node.submit(Request::Flush { peer: Some(self.rank) }, None);
        self.node
            .outcome_of(
                &|| WaitSubject::Operation {
                    what: format!("all operations to node {} to end", self.rank),
                    peer: Some(self.rank),
                },
                &format_args!("waiting for all operations to node {} to end", self.rank),
                || completion.outcome(),
                limit,
            )
            .and_then(|_| self.node.departures.report_untaken(&self.node, Some(self.rank)))
    }
}
