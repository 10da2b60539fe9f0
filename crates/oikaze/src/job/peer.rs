//! Another node of the job.

use crate::completion::operation::{Begun, Operation, Outcome};
use crate::error::Result;
use crate::job::handle::Job;
use oikaze_engine::{Keep, OperationLabel, Request};
use oikaze_protocol::Rank;
use oikaze_runtime::node::{Node, ShmRoute};
use oikaze_runtime::observe::page::PeerPage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Another node of the job, or this node. All operations work on a node's own memory too.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let next = job.peer((job.rank() + 1) % job.size())?;
/// next.send(Class::Ordered, 0, b"hello").wait()?;
/// assert_eq!(job.receive(None)?.bytes(), b"hello");
/// next.flush()?; // all operations to this peer have ended
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Peer {
    pub(crate) node: Arc<Node>,
    pub(crate) rank: Rank,
    pub(crate) limit: Option<Duration>,
    /// Fast path to the peer, if it is a local peer.
    pub(crate) route: Option<Arc<ShmRoute>>,
}

impl Job {
    /// Returns the handle of another node.
    ///
    /// # Errors
    /// The job has no such rank.
    pub fn peer(&self, rank: Rank) -> Result<Peer> {
        self.node.check_process(|| format!("node {rank}"))?;
        self.node.departures.check_rank(rank)?;
        let route = self.node.shm_route_to(rank, self.limit);
        Ok(Peer { node: Arc::clone(&self.node), rank, limit: self.limit, route })
    }
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
        self.node.try_engine(|engine| engine.peers().address_of(self.rank))?
    }

    /// Returns statistics of the connection to the peer: counts of datagrams and messages, the
    /// state of the connection, and how long round trips and messages took. Returns `None` for this
    /// node itself.
    #[doc(hidden)]
    #[must_use]
    pub fn report(&self) -> Option<PeerPage> {
        self.node.try_engine(|engine| PeerPage::of(engine, self.rank))?
    }

    pub(crate) fn begin<T: Outcome>(
        &self,
        request: Request,
        keep: Keep,
        what: OperationLabel,
    ) -> Operation<T> {
        Operation::begun(self.submit(request, keep, what))
    }

    pub(crate) fn submit(&self, request: Request, keep: Keep, what: OperationLabel) -> Box<Begun> {
        Begun::new(&self.node, self.node.begin(what, request, keep), self.limit)
    }
}
