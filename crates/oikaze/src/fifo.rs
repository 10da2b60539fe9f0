//! A FIFO at its owner: what peers have pushed is taken out, by any number of threads.

use crate::node::{Needs, Node, WaitSubject};
use crate::region::{LocalRegion, RemoteId};
use crate::{Error, Job, Result, Rights};
use oikaze_os::memory::Region;
use oikaze_os::memory::fifo::{self as os, Shape};
use oikaze_protocol::limits::{FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A queue in this node's memory that peers push into by its name
/// ([`Peer::fifo`](crate::Peer::fifo)); see [`Job::fifo`]. Dropped, its name is withdrawn, and what
/// is pushed from then on is refused.
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
        // Formatted before anybody can know of it.
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

    /// How any node can name it ([`Job::remote_fifo`]).
    #[must_use]
    pub fn remote_id(&self) -> RemoteId {
        self.published.remote_id()
    }

    /// How many elements it holds.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.queue.shape().slots()
    }

    /// Bytes of the longest element.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.queue.shape().element()
    }

    /// Append the oldest element to `into` and take it out; `false`: there is none.
    ///
    /// # Errors
    /// Somebody has written over the FIFO's memory.
    pub fn try_pop(&self, into: &mut Vec<u8>) -> Result<bool> {
        // A child of fork has a copy of private memory: it would take elements that the parent has
        // too.
        self.node.check_process(|| format!("taking an element of FIFO \"{}\"", self.name))?;
        Ok(self.queue.try_pop(into)?)
    }

    /// As [`Fifo::try_pop`], but waits for an element, for as long as `limit` says, else the job's
    /// time limit.
    ///
    /// # Errors
    /// The time limit passed; somebody has written over the FIFO's memory; all other nodes are
    /// lost, or this one has left.
    pub fn pop(&self, into: &mut Vec<u8>, limit: Option<Duration>) -> Result<()> {
        if self.try_pop(into)? {
            return Ok(());
        }
        let begun = Instant::now();
        let deadline = limit.or(self.limit).and_then(|limit| begun.checked_add(limit));
        let mut popped = || match self.queue.try_pop(into) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        let subject = || WaitSubject::Pop { fifo: self.name.to_string() };
        let what = || format!("waiting for an element of FIFO \"{}\"", self.name);
        let outcome = self.node.wait_on(&subject, deadline, || {
            self.node.next_or_loss(None, Needs::Memory, &mut popped)
        });
        Ok(self.node.awaited(what, begun, outcome)??)
    }
}
