//! Waits that take nothing, for bindings whose programs interrupt waits (MEM-19.4).
//!
//! An interruption ends a wait when its value may have come already. A binding therefore waits
//! until something is there, asks its program for interruptions, and only then takes it by a call
//! that does not wait. If another thread was faster, the binding waits again. Messages have
//! [`Job::probe`] for that.

use crate::completion::queue::{Completed, CompletionQueue};
use crate::error::Result;
use crate::job::handle::Job;
use crate::memory::arrivals::Arrivals;
use crate::message::fifo::Fifo;
use crate::message::received::Message;
use oikaze_protocol::Rank;
use std::time::{Duration, Instant};

impl Fifo {
    /// Waits until there is an element, and leaves it to [`Fifo::try_pop`]. Without a limit, that
    /// of the job holds.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let fifo = job.fifo("tasks", 4, 8)?;
    /// job.peer(job.rank())?.fifo("tasks")?.push(b"one")?;
    /// fifo.wait_ready(None)?;
    /// assert!(fifo.try_pop(&mut Vec::new())?);
    /// # job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fifo::pop`].
    pub fn wait_ready(&self, limit: Option<Duration>) -> Result<()> {
        self.wait_until_filled(limit)
    }
}

impl Arrivals {
    /// Waits until there is an entry, and leaves it to [`Arrivals::try_next`]. Without a limit,
    /// that of the job holds.
    ///
    /// # Errors
    /// As [`Arrivals::next`].
    pub fn wait_ready(&self, limit: Option<Duration>) -> Result<()> {
        self.wait_until_filled(limit)
    }
}

impl CompletionQueue {
    /// Waits until there are at least `at_least` operations, and leaves them to
    /// [`CompletionQueue::poll_if`]. Without a limit, that of the job holds.
    ///
    /// # Errors
    /// As [`CompletionQueue::wait`].
    pub fn wait_ready(&self, at_least: usize, limit: Option<Duration>) -> Result<()> {
        self.wait_until_filled(at_least, limit)
    }

    /// Appends all operations in the queue to `into` if there are at least `at_least`, and returns
    /// `true`. Otherwise takes none.
    pub fn poll_if(&self, at_least: usize, into: &mut Vec<Completed>) -> bool {
        self.poll_at_least(at_least, into)
    }
}

impl Job {
    /// Waits until `count` messages of any nodes are there, and leaves them to
    /// [`Job::try_receive_batch`]. Returns `false` if the time limit passes, or no more messages
    /// come. Without a limit, that of the job holds.
    pub fn wait_batch_ready(&self, count: usize, limit: Option<Duration>) -> bool {
        let limit = limit.or(self.time_limit());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.node.enter().is_some() && self.node.mail.wait_for_batch(&self.node, count, deadline)
    }

    /// Takes at most `count` messages of any nodes, if at least `at_least` are there.
    #[must_use]
    pub fn try_receive_batch(&self, count: usize, at_least: usize) -> Option<Vec<Message>> {
        let batch = self.node.mail.take_waiting(&self.node, count, at_least)?;
        Some(batch.into_iter().map(Message::new).collect())
    }

    /// Waits until a notification of this node is there, and leaves it to [`Job::wait_notify_for`].
    /// Without a limit, that of the job holds.
    ///
    /// # Errors
    /// As [`Job::wait_notify`].
    pub fn wait_notify_ready(&self, from: Rank, limit: Option<Duration>) -> Result<()> {
        self.wait_notify_within(from, limit.or(self.limit), false)
    }
}
