//! Messages, each of which arrives exactly once, and FIFOs that peers push into.

pub(crate) mod fifo;
mod posted;
pub(crate) mod received;
pub(crate) mod remote_fifo;
mod streamed;

pub use fifo::Fifo;
#[doc(inline)]
pub use oikaze_protocol::limits::MESSAGE_MAX;
/// Class of a message: order, and the meaning of "done".
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let me = job.peer(job.rank())?;
/// me.send(Class::Ordered, 1, b"after all ordered ones before it").wait()?;
/// me.send(Class::Unordered, 2, b"as soon as it arrives").wait()?;
/// me.send(Class::Sync, 3, b"done when the peer has accepted it").wait()?;
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::wind::Class;
pub use posted::Received;
pub use received::Message;
pub use remote_fifo::RemoteFifo;

use crate::completion::operation::Begun;
use crate::completion::operation::Operation;
use crate::error::Result;
use crate::job::handle::Job;
use crate::job::peer::Peer;
use crate::memory::region::RegionSlice;
use oikaze_engine::{Completion, Failure, OperationKind, OperationLabel, Request};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Body;
use oikaze_runtime::node::{Needs, WaitSubject};
use std::time::{Duration, Instant};

impl Peer {
    /// Sends a message of at most [`MESSAGE_MAX`] bytes (1 GiB), which is copied once. The
    /// operation is done when the peer has the message. With [`Class::Sync`], it is done when the
    /// peer has accepted the message after all ordered ones before it.
    ///
    /// A message of more than 256 KiB to a node of the same machine is copied into the ring, for as
    /// long as that node takes it out. The call then returns when all of it is in the ring. If that
    /// node takes nothing for as long as a copy may take (1 ns a byte, at most 10 ms), the rest is
    /// copied.
    ///
    /// A receiver keeps up to 16 MiB of a sender's unread messages. A longer message travels alone:
    /// it waits until all earlier messages are read, and later messages wait until it is read.
    ///
    /// # Errors
    /// [`Operation::wait`] returns the error: the message is longer than [`MESSAGE_MAX`] (nothing
    /// was sent); the receiver has not enough memory for it; or the sender's queue is full. The
    /// queue is full when the copies of messages that the peer has not taken exceed 256 MiB, or
    /// their number 65,536 (nothing was sent:
    /// [`Error::is_queue_full`](crate::Error::is_queue_full)). A sender that outruns its receiver
    /// waits for earlier messages before it sends more.
    #[inline]
    pub fn send(&self, class: Class, tag: u64, bytes: &[u8]) -> Operation<()> {
        if let Some(route) = &self.route
            && let Ok(len) = u32::try_from(bytes.len())
            && let Some(position) = self.node.fast.send_fast(&self.node, route, class, tag, bytes)
        {
            return Operation::in_ring(route, position, len);
        }
        Operation::begun(self.send_by_turn(class, tag, bytes))
    }

    #[inline(never)]
    fn send_by_turn(&self, class: Class, tag: u64, bytes: &[u8]) -> Box<Begun> {
        let len = bytes.len() as u64;
        let what = OperationLabel { verb: OperationKind::Message, len, peer: self.rank, at: None };
        if len > MESSAGE_MAX {
            // Checked before the copy, because the message may be longer than the free memory.
            let completion = Completion::begun(what, &self.node.requests.untaken);
            completion.settle(Err(Failure::Remote(RmaError::TooLong { len, max: MESSAGE_MAX })));
            return Begun::new(&self.node, completion, self.limit);
        }
        if let Some(begun) = self.send_streamed(class, tag, bytes, &what) {
            return begun;
        }
        self.submit(
            Request::Send { to: self.rank, class, tag, body: Body::copy_of(bytes) },
            None,
            what,
        )
    }

    /// Sends the content of a received message on, as [`Peer::send`] does. Content of more than 32
    /// bytes is not copied, except into a ring to a node of the same machine.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let (me, n) = (job.rank(), job.size());
    /// let (next, before) = ((me + 1) % n, (me + n - 1) % n);
    /// if job.rank() == 0 {
    ///     job.peer(next)?.send(Class::Ordered, 1, &[7; 1000]).wait()?;
    /// }
    /// let message = job.receive(Some(before))?; // goes round once
    /// if job.rank() != 0 {
    ///     job.peer(next)?.forward(Class::Ordered, 1, message).wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn forward(&self, class: Class, tag: u64, message: Message) -> Operation<()> {
        let bytes = message.into_bytes();
        let len = bytes.len() as u64;
        let what = OperationLabel { verb: OperationKind::Message, len, peer: self.rank, at: None };
        let body = if bytes.is_empty() { Body::Empty } else { Body::Inline(bytes) };
        self.begin(Request::Send { to: self.rank, class, tag, body }, None, what)
    }

    /// Sends a counted slice, as [`Peer::send`] does, without a copy.
    pub fn send_from(&self, class: Class, tag: u64, from: RegionSlice) -> Operation<()> {
        let segment = from.segment(Rights::READ);
        let request = Request::Send { to: self.rank, class, tag, body: Body::Segment(segment) };
        self.begin(
            request,
            Some(from.keep()),
            OperationLabel {
                verb: OperationKind::Message,
                len: segment.len,
                peer: self.rank,
                at: None,
            },
        )
    }
}

impl Job {
    /// Waits for the next message, from this peer or from any, and returns it. The job's time limit
    /// applies.
    ///
    /// # Errors
    /// The time limit passed; the peer (or every other node, if `from` is `None`) is lost, and all
    /// its messages have been read.
    #[inline]
    #[track_caller]
    pub fn receive(&self, from: Option<Rank>) -> Result<Message> {
        match self.node.fast.take_soon(&self.node, from) {
            Some(arrived) => Ok(Message::new(arrived)),
            None => self.receive_later(from, self.limit),
        }
    }

    /// Waits for the next message as [`Job::receive`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::receive`].
    #[inline]
    #[track_caller]
    pub fn receive_for(&self, from: Option<Rank>, limit: Duration) -> Result<Message> {
        match self.node.fast.take_soon(&self.node, from) {
            Some(arrived) => Ok(Message::new(arrived)),
            None => self.receive_later(from, Some(limit)),
        }
    }

    #[cold]
    #[track_caller]
    fn receive_later(&self, from: Option<Rank>, limit: Option<Duration>) -> Result<Message> {
        from.map_or(Ok(()), |rank| self.node.departures.check_rank(rank))?;
        let next = || {
            self.node
                .mail
                .take(&self.node, from)
                .or_else(|| self.node.fast.take_fast(&self.node, from))
        };
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::Message { from, count: 1 };
        let arrived = self.node.wait_on(&subject, deadline, || {
            self.node.departures.next_or_loss(from, Needs::Messages, next)
        });
        self.node.awaited(|| "receiving a message".into(), begun, arrived).map(Message::new)
    }

    /// Returns the next message if one has arrived.
    #[must_use]
    pub fn try_receive(&self, from: Option<Rank>) -> Option<Message> {
        self.node.fast.take_if_there(&self.node, from).map(Message::new)
    }

    /// Waits for the next message, from this peer or from any, and describes it without taking it,
    /// as `MPI_Probe` does (MEM-8.3). The job's time limit applies.
    ///
    /// The next [`Job::receive`] with the same `from` returns that message, unless another thread
    /// takes it before, or a receive that is posted meanwhile matches it.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let me = job.peer(job.rank())?;
    /// assert_eq!(job.try_probe(None), None);
    /// me.send(Class::Ordered, 7, &[1; 300]).wait()?;
    /// let next = job.probe(None)?;
    /// assert_eq!((next.from, next.tag, next.len), (job.rank(), 7, 300)); // len in bytes
    /// assert_eq!(job.receive(Some(next.from))?.bytes(), [1; 300]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::receive`].
    #[track_caller]
    pub fn probe(&self, from: Option<Rank>) -> Result<Received> {
        self.probe_within(from, self.limit)
    }

    /// Describes the next message as [`Job::probe`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::receive`].
    #[track_caller]
    pub fn probe_for(&self, from: Option<Rank>, limit: Duration) -> Result<Received> {
        self.probe_within(from, Some(limit))
    }

    #[track_caller]
    fn probe_within(&self, from: Option<Rank>, limit: Option<Duration>) -> Result<Received> {
        if let Some(next) = self.try_probe(from) {
            return Ok(next);
        }
        from.map_or(Ok(()), |rank| self.node.departures.check_rank(rank))?;
        let next = || self.node.mail.probe(from);
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::Message { from, count: 1 };
        let next = self.node.wait_on(&subject, deadline, || {
            self.node.departures.next_or_loss(from, Needs::Messages, next)
        });
        let (from, tag, len) = self.node.awaited(|| "waiting for a message".into(), begun, next)?;
        Ok(Received { from, tag, len })
    }

    /// Describes the next message if one has arrived, as [`Job::probe`] does.
    #[must_use]
    pub fn try_probe(&self, from: Option<Rank>) -> Option<Received> {
        let (from, tag, len) = self.node.fast.probe_if_there(&self.node, from)?;
        Some(Received { from, tag, len })
    }

    /// Waits until `count` messages from any peers have arrived, and returns them. A thread that
    /// does not drive the engine meanwhile is woken once for all of them. Credit for received
    /// messages is returned while the call waits. If the job's time limit passes, or all other
    /// nodes are lost, the call returns the messages received so far.
    #[must_use]
    #[track_caller]
    pub fn receive_batch(&self, count: usize) -> Vec<Message> {
        self.take_batch(count, self.limit)
    }

    /// Waits for messages as [`Job::receive_batch`] does, with this time limit.
    #[must_use]
    #[track_caller]
    pub fn receive_batch_for(&self, count: usize, limit: Duration) -> Vec<Message> {
        self.take_batch(count, Some(limit))
    }

    #[track_caller]
    fn take_batch(&self, count: usize, limit: Option<Duration>) -> Vec<Message> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.node
            .mail
            .take_batch(&self.node, count, deadline)
            .into_iter()
            .map(Message::new)
            .collect()
    }
}
