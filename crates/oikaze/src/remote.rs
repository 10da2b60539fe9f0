//! Peers and their memory: put, get, atomics, signals, messages. No call at the target.

use crate::engine::{Keep, Request, Value};
use crate::node::Node;
use crate::observe::page::PeerPage;
use crate::operation::{Operation, What};
use crate::region::RegionSlice;
use crate::{Error, Result};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{AtomicOp, Published, Rights, Signal};
use oikaze_protocol::wind::{Body, Class};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest source that is copied before the call returns ([`RemoteRegion::put_copy`]).
pub const COPY_MAX: usize = 4096;
/// How long [`Peer::region`] waits for a name if the job has no time limit: publishing takes a moment, a misspelt name for ever.
const PUBLISH_TIME: Duration = Duration::from_secs(10);
/// A lookup of a name that is not there yet is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Another node of the job (or this one: everything works on oneself too).
#[derive(Clone)]
pub struct Peer {
    pub(crate) node: Arc<Node>,
    pub(crate) rank: Rank,
    pub(crate) limit: Option<Duration>,
}

impl Peer {
    /// Its rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Where its datagrams go; nowhere for this node itself.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.node.with_engine(|engine| engine.address_of(self.rank))
    }

    /// What was counted of the datagrams and messages between this node and the peer, how their connection stands, and how long
    /// round trips and messages took; nothing for this node itself.
    #[must_use]
    pub fn report(&self) -> Option<PeerPage> {
        self.node.with_engine(|engine| PeerPage::of(engine, self.rank))
    }

    /// The region that this peer has published, or will publish within the job's time limit (10 s if it has none), under `name`.
    ///
    /// # Errors
    /// Nothing was published under that name in time (the error lists what is there); the peer is lost.
    pub fn region(&self, name: &str) -> Result<RemoteRegion> {
        let begun = Instant::now();
        let limit = self.limit.unwrap_or(PUBLISH_TIME);
        let what = format!("region \"{name}\" of node {}", self.rank);
        let mut unknown = None;
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let completion = self.node.submit(Request::Lookup { at: self.rank, name: name.to_owned() }, None);
            match self.node.outcome(&what, &completion, Some(left)) {
                Ok(Value::Region(published)) => {
                    return Ok(RemoteRegion { peer: self.clone(), name: name.into(), published });
                }
                Ok(_) => return Err(Error::invalid(what, "the answer is of another kind (a defect)")),
                Err(error) if is_unknown_name(&error) && !left.is_zero() => {
                    unknown = Some(error);
                    let _: Option<()> = self.node.wait(Instant::now().checked_add(left.min(ASK_AGAIN)), || None);
                }
                // The last answer says more than that there was no other in the time left.
                Err(timeout @ Error::Timeout { .. }) => return Err(unknown.unwrap_or(timeout).after(limit)),
                Err(error) if is_unknown_name(&error) => return Err(error.after(limit)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Send a message of up to 4 KiB, or of any size in which case it is copied once. Done when the peer has it
    /// ([`Class::Sync`]: when it has accepted it after all ordered ones before it).
    ///
    /// # Errors
    /// As [`Operation::wait`] does, later.
    pub fn send(&self, class: Class, tag: u64, bytes: &[u8]) -> Operation<()> {
        let request = Request::Send { to: self.rank, class, tag, body: Body::copy_of(bytes) };
        self.begin(request, None, What { verb: "message", len: bytes.len() as u64, peer: self.rank, at: None })
    }

    /// As [`Peer::send`], of a counted slice, which is not copied.
    pub fn send_from(&self, class: Class, tag: u64, from: RegionSlice) -> Operation<()> {
        let segment = from.segment();
        let request = Request::Send { to: self.rank, class, tag, body: Body::Segment(segment) };
        self.begin(request, Some(from.keep()), What { verb: "message", len: segment.len, peer: self.rank, at: None })
    }

    fn begin<T: crate::operation::Outcome>(&self, request: Request, keep: Keep, what: What) -> Operation<T> {
        let completion = self.node.submit(request, keep);
        Operation::new(&self.node, completion, what, self.limit)
    }
}

fn is_unknown_name(error: &Error) -> bool {
    use crate::engine::Failure;
    use oikaze_protocol::rma::RmaError;
    matches!(error, Error::Failed { failure: Failure::Remote(RmaError::UnknownName { .. }), .. })
}

/// A region of a peer, found by name.
#[derive(Clone)]
pub struct RemoteRegion {
    peer: Peer,
    name: Arc<str>,
    published: Published,
}

impl RemoteRegion {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.published.len
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.published.len == 0
    }

    /// What its owner grants.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.published.rights
    }

    /// Whose it is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    fn what(&self, verb: &'static str, offset: u64, len: u64) -> What {
        What { verb, len, peer: self.peer.rank, at: Some((Arc::clone(&self.name), offset)) }
    }

    /// Write a counted slice there. Returns at once; complete when in the peer's memory and visible.
    pub fn put(&self, offset: u64, from: RegionSlice) -> Operation<()> {
        self.put_body(offset, Body::Segment(from.segment()), None, Some(from.keep()))
    }

    /// Write up to [`COPY_MAX`] bytes of any memory, copied before the call returns.
    ///
    /// # Errors
    /// More than [`COPY_MAX`] bytes.
    pub fn put_copy(&self, offset: u64, bytes: &[u8]) -> Result<Operation<()>> {
        if bytes.len() > COPY_MAX {
            return Err(Error::invalid(
                self.what("put", offset, bytes.len() as u64).to_string(),
                format!("put_copy takes up to {COPY_MAX} bytes; use a registered region (put) or a scope for more"),
            ));
        }
        Ok(self.put_body(offset, Body::copy_of(bytes), None, None))
    }

    /// Write a counted slice there, and add to a word of a region of the same peer once *all* of it is in place.
    pub fn put_signal(&self, offset: u64, from: RegionSlice, signal: &RemoteSignal) -> Operation<()> {
        self.put_body(offset, Body::Segment(from.segment()), Some(signal.0), Some(from.keep()))
    }

    /// A signal for [`RemoteRegion::put_signal`]: `add` to the 64-bit word at `offset` of this region.
    #[must_use]
    pub fn signal(&self, offset: u64, add: u64) -> RemoteSignal {
        RemoteSignal(Signal { key: self.published.key, offset, add })
    }

    pub(crate) fn put_body(&self, offset: u64, body: Body, signal: Option<Signal>, keep: Keep) -> Operation<()> {
        let len = body.len();
        let request = Request::Put { to: self.peer.rank, key: self.published.key, offset, body, signal };
        self.peer.begin(request, keep, self.what("put", offset, len))
    }

    /// Read from there into a counted slice.
    pub fn get(&self, offset: u64, into: RegionSlice) -> Operation<()> {
        let segment = into.segment();
        let request = Request::Get { from: self.peer.rank, key: self.published.key, offset, into: segment };
        self.peer.begin(request, Some(into.keep()), self.what("get", offset, segment.len))
    }

    /// Add to the 64-bit word at `offset` (wrapping); its old value. At most once, whatever the network does.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::FetchAdd(add), "fetch-add")
    }

    /// Store `new` into the 64-bit word at `offset` if it is `expected`; its old value. At most once.
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::CompareSwap { expected, new }, "compare-and-swap")
    }

    /// Store `new` into the 64-bit word at `offset`; its old value. At most once.
    pub fn swap(&self, offset: u64, new: u64) -> Operation<u64> {
        self.atomic(offset, AtomicOp::Swap(new), "swap")
    }

    fn atomic(&self, offset: u64, op: AtomicOp, verb: &'static str) -> Operation<u64> {
        let request = Request::Atomic { at: self.peer.rank, key: self.published.key, offset, op };
        self.peer.begin(request, None, self.what(verb, offset, 8))
    }
}

/// A word at a peer that counts arrivals; see [`RemoteRegion::signal`].
#[derive(Clone, Copy, Debug)]
pub struct RemoteSignal(Signal);
