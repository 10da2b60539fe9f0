//! A FIFO at its owner. Any number of threads take out the elements that peers have pushed.

use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::memory::region::LocalRegion;
use crate::memory::region::remote_id::RemoteId;
use oikaze_os::memory::Region;
use oikaze_os::memory::fifo::{self as os, FifoError, Shape};
use oikaze_protocol::limits::{FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX};
use oikaze_protocol::rma::Rights;
use oikaze_runtime::node::{Needs, Node, WaitSubject};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A queue in this node's memory that peers push into by its name
/// ([`Peer::fifo`](crate::Peer::fifo)); see [`Job::fifo`]. Dropping the FIFO withdraws its name,
/// and later pushes are refused.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let fifo = job.fifo("tasks", 64, 8)?;
/// assert_eq!((fifo.slots(), fifo.longest()), (64, 8));
/// let mut task = Vec::new();
/// assert!(!fifo.try_pop(&mut task)?); // empty
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fifo {
    node: Arc<Node>,
    queue: os::Fifo,
    name: Arc<str>,
    limit: Option<Duration>,
    published: LocalRegion,
}

impl Fifo {
    pub(crate) fn make(job: &Job, name: &str, slots: u64, longest: u64) -> Result<Fifo> {
        let shape = Shape::new(slots, longest).ok_or_else(|| {
            Error::invalid(
                format!("FIFO \"{name}\" of {slots} slots of {longest} bytes"),
                format!("there may be up to {FIFO_SLOTS_MAX} slots, of 1 to {FIFO_ELEMENT_MAX} bytes each"),
            )
        })?;
        let region = Region::private(usize::try_from(shape.bytes()).unwrap_or(usize::MAX))?;
        // Formatted before any peer can know of the FIFO.
        let queue = os::Fifo::format(region.clone(), shape)?;
        let published = job.publish(name, region, Rights::PUSH)?;
        Ok(Fifo {
            node: Arc::clone(&job.node),
            queue,
            name: name.into(),
            limit: job.time_limit(),
            published,
        })
    }

    /// Returns the id by which any node can name the FIFO ([`Job::remote_fifo`]).
    #[must_use]
    pub fn remote_id(&self) -> RemoteId {
        self.published.remote_id()
    }

    /// Returns the number of elements that the FIFO can hold.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.queue.shape().slots()
    }

    /// Returns the maximum length of an element in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.queue.shape().element()
    }

    /// Takes the oldest element out and appends it to `into`. Returns `false` if there is no
    /// element.
    ///
    /// # Errors
    /// The FIFO's memory was overwritten.
    pub fn try_pop(&self, into: &mut Vec<u8>) -> Result<bool> {
        // A child of fork has a copy of private memory, and would take elements that the parent
        // takes too.
        self.node.check_process(|| format!("taking an element of FIFO \"{}\"", self.name))?;
        Ok(self.queue.try_pop(into)?)
    }

    /// Takes an element out as [`Fifo::try_pop`] does, but waits for one. The job's time limit
    /// applies.
    ///
    /// # Errors
    /// The time limit passed; the FIFO's memory was overwritten; all other nodes are lost, or this
    /// node has left.
    #[track_caller]
    pub fn pop(&self, into: &mut Vec<u8>) -> Result<()> {
        self.pop_within(into, self.limit)
    }

    /// Takes an element out as [`Fifo::pop`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Fifo::pop`].
    #[track_caller]
    pub fn pop_for(&self, into: &mut Vec<u8>, limit: Duration) -> Result<()> {
        self.pop_within(into, Some(limit))
    }

    #[track_caller]
    fn pop_within(&self, into: &mut Vec<u8>, limit: Option<Duration>) -> Result<()> {
        if self.try_pop(into)? {
            return Ok(());
        }
        self.wait_within(limit, || match self.queue.try_pop(into) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }

    /// Waits until an element is there, and leaves it (`ffi::readiness`).
    #[track_caller]
    pub(crate) fn wait_until_filled(&self, limit: Option<Duration>) -> Result<()> {
        self.node.check_process(|| format!("waiting for FIFO \"{}\"", self.name))?;
        self.wait_within(limit.or(self.limit), || match self.queue.is_empty() {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })
    }

    #[track_caller]
    fn wait_within(
        &self,
        limit: Option<Duration>,
        mut popped: impl FnMut() -> Option<std::result::Result<(), FifoError>>,
    ) -> Result<()> {
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let subject = || WaitSubject::Pop { fifo: self.name.to_string() };
        let what = || format!("waiting for an element of FIFO \"{}\"", self.name);
        let outcome = self.node.wait_on(&subject, deadline, || {
            self.node.departures.next_or_loss(None, Needs::Memory, &mut popped)
        });
        Ok(self.node.awaited(what, begun, outcome)??)
    }
}

impl Job {
    /// Makes a FIFO that peers push into, under a name of up to 48 bytes. The FIFO has room for at
    /// least `slots` elements (a power of two, at most 2²⁴) of up to `longest` bytes each, at most
    /// 1 MiB.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let work = if job.rank() == 0 { Some(job.fifo("work", 1024, 64)?) } else { None };
    /// job.peer(0)?.fifo("work")?.push(b"an item")?; // waits for room
    /// if let Some(work) = work {
    ///     for _ in 0..job.size() {
    ///         let mut item = Vec::new();
    ///         work.pop(&mut item)?; // waits for one
    ///         assert_eq!(item, b"an item");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The elements are too many or too long; there is not enough memory; the name is taken, or too
    /// long; the table of regions is full.
    pub fn fifo(&self, name: &str, slots: u64, longest: u64) -> Result<Fifo> {
        Fifo::make(self, name, slots, longest)
    }
}
