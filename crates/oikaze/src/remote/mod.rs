//! Peers and their memory: put, get, atomics, signals and messages. No operation needs a call at
//! the target.
//!
//! This file has [`Peer`]. The operations on a [`RemoteRegion`] are in one file for each kind of
//! operation.

mod accumulate;
mod block;
mod direct;
mod exchange;
mod fifo;
mod list;
mod put;
mod region;
mod words;

pub use fifo::RemoteFifo;
pub use put::{COPY_MAX, RemoteSignal};
pub use region::RemoteRegion;
pub use words::RemoteWord;

use crate::node::{Node, ShmRoute, WaitSubject};
use crate::observe::page::PeerPage;
use crate::operation::{Begun, Operation};
use crate::region::RegionSlice;
use crate::{Error, Result};
use oikaze_engine::{Completion, Failure, Keep, Request, Value};
use oikaze_engine::{OperationKind, OperationLabel};
use oikaze_os::sync::Host;
use oikaze_protocol::Rank;
pub use oikaze_protocol::limits::MESSAGE_MAX;
use oikaze_protocol::rma::{Published, Rights, RmaError};
use oikaze_protocol::wind::{Body, Class};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which [`Peer::region`] waits for a name if the job has no time limit. Publishing takes
/// a moment, but a misspelt name never appears.
const PUBLISH_TIME: Duration = Duration::from_secs(10);
/// Pause before the next lookup of a name that is not published yet.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Another node of the job, or this node. All operations work on a node's own memory too.
#[derive(Clone)]
pub struct Peer {
    pub(crate) node: Arc<Node>,
    pub(crate) rank: Rank,
    pub(crate) limit: Option<Duration>,
    /// Fast path to the peer, if it is a local peer.
    pub(crate) route: Option<Arc<Host<ShmRoute>>>,
}

impl Peer {
    /// Returns the peer's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the address to which the peer's datagrams go, or `None` for this node itself.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        if self.node.is_forked() {
            return None;
        }
        self.node.with_engine(|engine| engine.peers().address_of(self.rank))
    }

    /// Returns statistics of the connection to the peer: counts of datagrams and messages, the
    /// state of the connection, and how long round trips and messages took. Returns `None` for this
    /// node itself.
    #[must_use]
    pub fn report(&self) -> Option<PeerPage> {
        if self.node.is_forked() {
            return None;
        }
        self.node.with_engine(|engine| PeerPage::of(engine, self.rank))
    }

    /// Returns the region that this peer has published under `name`. Waits for a region that is not
    /// published yet, within the job's time limit (10 s if it has none).
    ///
    /// # Errors
    /// Nothing was published under that name in time (the error lists the names that are there);
    /// the name was withdrawn (reported at once); the peer is lost.
    pub fn region(&self, name: &str) -> Result<RemoteRegion> {
        let published = self.find(name, format!("region \"{name}\" of node {}", self.rank))?;
        Ok(RemoteRegion::new(self.clone(), name, published).mapped())
    }

    /// Waits for the region that is, or will be, published under this name.
    pub(crate) fn find(&self, name: &str, what: String) -> Result<Published> {
        let begun = Instant::now();
        let limit = self.limit.unwrap_or(PUBLISH_TIME);
        let mut unknown = None;
        let subject = || WaitSubject::Name { name: name.to_owned(), owner: self.rank };
        let mut long = self.node.long_wait(&subject);
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let was_leaving = self.node.is_leaving(self.rank);
            let completion =
                self.node.submit(Request::Lookup { at: self.rank, name: name.to_owned() }, None);
            match self.node.outcome_of(&subject, &what, || completion.outcome(), Some(left)) {
                Ok(Value::Region(published)) => return Ok(published),
                Ok(_) => {
                    return Err(Error::invalid(what, "the answer is of another kind (a defect)"));
                }
                // A leaving node publishes nothing more (END-2.3).
                Err(error) if is_unknown_name(&error) && was_leaving => {
                    return Err(self
                        .node
                        .failure(&what, Failure::Leaving { peer: Some(self.rank) }));
                }
                Err(error) if is_unknown_name(&error) && !left.is_zero() => {
                    unknown = Some(error);
                    let _: Option<()> = self.node.wait_within(
                        &mut long,
                        Instant::now().checked_add(left.min(ASK_AGAIN)),
                        || None,
                    );
                }
                // The last answer says more than a timeout without another answer would.
                Err(timeout @ Error::Timeout { .. }) => {
                    return Err(unknown.unwrap_or(timeout).after(limit));
                }
                Err(error) if is_unknown_name(&error) => return Err(error.after(limit)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message of at most [`MESSAGE_MAX`] bytes (1 GiB), which is copied once. The
    /// operation is done when the peer has the message. With [`Class::Sync`], it is done when the
    /// peer has accepted the message after all ordered ones before it.
    ///
    /// A receiver keeps up to 16 MiB of a sender's unread messages. A longer message travels alone:
    /// it waits until all earlier messages are read, and later messages wait until it is read.
    ///
    /// # Errors
    /// [`Operation::wait`] returns the error: the message is longer than [`MESSAGE_MAX`] (nothing
    /// was sent); the receiver has not enough memory for it; or the sender's queue is full. The
    /// queue is full when the copies of messages that the peer has not taken exceed 256 MiB, or
    /// their number 65,536 (nothing was sent: [`Error::is_queue_full`]). A sender that outruns its
    /// receiver waits for earlier messages before it sends more.
    #[inline]
    pub fn send(&self, class: Class, tag: u64, bytes: &[u8]) -> Operation<()> {
        if let Some(route) = &self.route
            && let Ok(len) = u32::try_from(bytes.len())
            && let Some(position) = self.node.send_fast(route, class, tag, bytes)
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
            let completion = Completion::begun(what, &self.node.untaken);
            completion.settle(Err(Failure::Remote(RmaError::TooLong { len, max: MESSAGE_MAX })));
            return Begun::new(&self.node, completion, self.limit);
        }
        self.submit(
            Request::Send { to: self.rank, class, tag, body: Body::copy_of(bytes) },
            None,
            what,
        )
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

    /// Orders operations and messages to this peer. Those begun after the fence take place at the
    /// peer after those begun before it. The call returns at once. Later operations are held here
    /// until earlier ones have ended, which costs them a round trip, or nothing if nothing is
    /// outstanding. An earlier operation that fails holds no later one back. Operations to other
    /// peers are not affected.
    ///
    /// [`RemoteRegion::put_signal`] is faster for telling the peer that data is there, because it
    /// needs no fence.
    pub fn fence(&self) {
        self.node.fence(Some(self.rank));
    }

    /// Waits until all operations and messages to this peer that this node has begun have ended.
    ///
    /// # Errors
    /// The time limit passed; or operations to this peer have failed and no caller knows, as
    /// [`crate::Job::quiet`] says.
    pub fn flush(&self) -> Result<()> {
        let completion = self.node.submit(Request::Flush { peer: Some(self.rank) }, None);
        self.node
            .outcome_of(
                &|| WaitSubject::Operation {
                    what: format!("all operations to node {} to end", self.rank),
                    peer: Some(self.rank),
                },
                &format_args!("waiting for all operations to node {} to end", self.rank),
                || completion.outcome(),
                self.limit,
            )
            .and_then(|_| self.node.report_untaken(Some(self.rank)))
    }

    pub(crate) fn begin<T: crate::operation::Outcome>(
        &self,
        request: Request,
        keep: Keep,
        what: OperationLabel,
    ) -> Operation<T> {
        Operation::begun(self.submit(request, keep, what))
    }

    fn submit(&self, request: Request, keep: Keep, what: OperationLabel) -> Box<Begun> {
        Begun::new(&self.node, self.node.begin(what, request, keep), self.limit)
    }
}

fn is_unknown_name(error: &Error) -> bool {
    matches!(error, Error::Failed { failure: Failure::Remote(RmaError::UnknownName { .. }), .. })
}
