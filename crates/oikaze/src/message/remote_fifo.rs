//! Pushes into a peer's FIFO. Each push takes place at most once, whatever the network does.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::job::peer::Peer;
use crate::memory::region::remote_id::{NAMELESS, RemoteId};
use oikaze_engine::{Failure, Request};
use oikaze_engine::{OperationKind, OperationLabel};
use oikaze_protocol::limits::{PUSH_PAUSE_MAX, PUSH_PAUSE_MIN};
use oikaze_protocol::rma::Published;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Body;
use oikaze_runtime::node::{LongWait, WaitSubject};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time before its deadline at which [`RemoteFifo::push`] tries for the last time. A busy peer
/// needs a while to answer.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// A FIFO of a peer, found by name; see [`Peer::fifo`].
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let fifo = job.fifo("results", 64, 8)?;
/// let next = job.peer((job.rank() + 1) % job.size())?.fifo("results")?;
/// next.push(b"result")?; // waits for room
/// let mut element = Vec::new();
/// fifo.pop(&mut element)?;
/// assert_eq!(element, b"result");
/// # job.barrier()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RemoteFifo {
    peer: Peer,
    name: Arc<str>,
    published: Published,
}

impl Peer {
    /// Returns the FIFO that this peer has made under `name`. Waits for a FIFO that is not made
    /// yet, within the job's time limit (10 s if it has none).
    ///
    /// # Errors
    /// As [`Peer::region`]; the region of that name is not a FIFO.
    pub fn fifo(&self, name: &str) -> Result<RemoteFifo> {
        self.fifo_within(name, self.limit)
    }

    /// Returns a FIFO as [`Peer::fifo`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Peer::fifo`].
    pub fn fifo_for(&self, name: &str, limit: Duration) -> Result<RemoteFifo> {
        self.fifo_within(name, Some(limit))
    }

    fn fifo_within(&self, name: &str, limit: Option<Duration>) -> Result<RemoteFifo> {
        let what = format!("FIFO \"{name}\" of node {}", self.rank);
        let published = self.find(name, what.clone(), limit)?;
        if !published.rights.contains(Rights::PUSH) {
            return Err(Error::invalid(
                what,
                "what is published under this name grants no pushing; its owner makes a FIFO under this name",
            ));
        }
        Ok(RemoteFifo { peer: self.clone(), name: name.into(), published })
    }
}

impl Job {
    /// Returns the FIFO whose id another node has sent to this one
    /// ([`crate::message::Fifo::remote_id`]).
    ///
    /// # Errors
    /// The job has no such node; the region does not grant pushing. (A missing FIFO is reported
    /// when it is used.)
    pub fn remote_fifo(&self, id: RemoteId) -> Result<RemoteFifo> {
        let RemoteId { key, len, node, rights } = id;
        if !rights.contains(Rights::PUSH) {
            return Err(Error::invalid(
                format!("FIFO of node {node}, by number"),
                "what is named so grants no pushing",
            ));
        }
        let published = Published { key, len, rights };
        Ok(RemoteFifo { peer: self.peer(node)?, name: Arc::clone(&NAMELESS), published })
    }
}

impl RemoteFifo {
    /// Returns the peer that owns the FIFO.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Pushes an element, which is copied before the call returns. The operation is done when the
    /// element is in the FIFO. A full FIFO refuses the element, as the error says
    /// ([`Error::is_full`]). Elements come out in the order in which one node pushed them, except
    /// those that were refused. For many elements at a time, see [`Job::batch`](crate::Job::batch).
    pub fn post(&self, element: &[u8]) -> Operation<()> {
        self.begin(element, false)
    }

    /// Pushes an element, and waits until it is in the FIFO or refused.
    ///
    /// # Errors
    /// The FIFO is full ([`Error::is_full`]); the element is longer than its slots; the peer is
    /// lost; the job's time limit passed.
    pub fn try_push(&self, element: &[u8]) -> Result<()> {
        self.begin(element, true).wait()
    }

    /// Pushes an element. While the FIFO is full, the call tries again with growing pauses, within
    /// the job's time limit.
    ///
    /// # Errors
    /// As [`RemoteFifo::try_push`]; the FIFO was full for all of that time. After a timeout
    /// the peer did not answer in time, and the element may still get in.
    #[track_caller]
    pub fn push(&self, element: &[u8]) -> Result<()> {
        self.push_within(element, self.peer.limit)
    }

    /// Pushes an element as [`RemoteFifo::push`] does, with this time limit.
    ///
    /// # Errors
    /// As [`RemoteFifo::push`].
    #[track_caller]
    pub fn push_for(&self, element: &[u8], limit: Duration) -> Result<()> {
        self.push_within(element, Some(limit))
    }

    #[track_caller]
    fn push_within(&self, element: &[u8], limit: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let mut pause = PUSH_PAUSE_MIN;
        let subject = || WaitSubject::Push { fifo: self.name.to_string(), owner: self.peer.rank };
        let mut long = LongWait::new(&self.peer.node, &subject);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let was_leaving = self.peer.node.departures.is_leaving(self.peer.rank);
            let push = self.begin(element, true);
            let pushed = push.wait_within(left);
            match pushed {
                // A leaving node takes no element out any more (END-2.3).
                Err(error) if error.is_full() && was_leaving => {
                    let what = format!("push to FIFO \"{}\", which is full", self.name);
                    return Err(self
                        .peer
                        .node
                        .departures
                        .failure(&what, Failure::Leaving { peer: Some(self.peer.rank) }));
                }
                Err(error) if error.is_full() => {
                    // The waiting thread drives the engine, so that requests of peers to this node
                    // are served meanwhile.
                    let again = Instant::now().checked_add(pause);
                    // The outcome of a push that begins later might not be known in time.
                    let answer = limit.map_or(ANSWER_TIME, |limit| ANSWER_TIME.min(limit / 2));
                    let last = deadline.and_then(|deadline| deadline.checked_sub(answer));
                    let over = again.zip(last).is_some_and(|(again, last)| again > last);
                    let _: Option<()> = self.peer.node.wait_within(
                        &mut long,
                        if over { deadline } else { again },
                        || None,
                    );
                    if over || long.is_interrupted() {
                        return Err(error.after(begun.elapsed()));
                    }
                    pause = (pause * 2).min(PUSH_PAUSE_MAX);
                }
                outcome => return outcome,
            }
        }
    }

    fn begin(&self, element: &[u8], urgent: bool) -> Operation<()> {
        let (to, key, body) = (self.peer.rank, self.published.key, Body::copy_of(element));
        let what = OperationLabel {
            verb: OperationKind::Push,
            len: element.len() as u64,
            peer: to,
            at: Some((Arc::clone(&self.name), 0)),
        };
        self.peer.begin(Request::Push { to, key, body, urgent }, None, what)
    }
}
