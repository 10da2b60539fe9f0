//! Requests that threads submit to the engine. The engine takes them in the order of submission.

use super::completion::{Completion, Keep, Sink};
use super::shm_channel::ShmChannel;
use oikaze_os::memory::RegionId;
use oikaze_protocol::Rank;
use oikaze_protocol::block::Block;
use oikaze_protocol::coherence::{
    Access, ArrayId, CallStep, Declaration, LockMode, Reduction, TargetOp,
};
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::rma::{Accumulation, AtomicOp, Destination, Signal};
use oikaze_protocol::wind::{Body, Class, Segment};
use std::ops::Range;
use std::sync::Arc;

/// One request. A request with a completion settles it exactly once.
pub struct Submission {
    /// Operation to perform.
    pub request: Request,
    /// Completion that receives the outcome; `None` if nobody waits for it.
    pub completion: Option<Arc<Completion>>,
    /// Reference to memory that must stay alive until the request has ended.
    pub keep: Keep,
}

/// Operations that a thread can request.
pub enum Request {
    /// Writes to a peer's region.
    Put {
        /// Rank of the peer.
        to: Rank,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the start of the region.
        offset: u64,
        /// Bytes to write.
        body: Body,
        /// Addition to a word once the bytes are in place.
        signal: Option<Signal>,
    },
    /// Writes to a peer's region, and puts an entry into the peer's arrival queue.
    PutNotice {
        /// Rank of the peer.
        to: Rank,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the start of the region.
        offset: u64,
        /// Bytes to write.
        body: Body,
        /// Tag that the user chose.
        tag: u64,
    },
    /// Reads from a peer's region.
    Get {
        /// Rank of the peer.
        from: Rank,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the start of the region.
        offset: u64,
        /// Destination of the bytes.
        into: Segment,
    },
    /// Writes rows of a peer's region.
    PutBlock {
        /// Rank of the peer.
        to: Rank,
        /// Key of the region.
        key: u64,
        /// Rows to write.
        block: Box<Block>,
        /// Bytes of the rows, packed.
        body: Body,
        /// Addition to a word once the bytes are in place.
        signal: Option<Signal>,
    },
    /// Reads rows of a peer's region.
    GetBlock {
        /// Rank of the peer.
        from: Rank,
        /// Key of the region.
        key: u64,
        /// Rows to read.
        block: Box<Block>,
        /// Destination of the bytes.
        into: Destination,
    },
    /// Read-modify-write of one word of a peer's region.
    Atomic {
        /// Rank of the peer.
        at: Rank,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the start of the region; a multiple of the word's width.
        offset: u64,
        /// Operation on the word.
        op: AtomicOp,
        /// Is `true` if the caller wants the old value. Otherwise the operation is done when it is
        /// acknowledged.
        fetch: bool,
    },
    /// Combines elements with those of a peer's region.
    Accumulate {
        /// Rank of the peer.
        to: Rank,
        /// Key of the region.
        key: u64,
        /// Offset in bytes from the start of the region; a multiple of the element's width.
        offset: u64,
        /// Kind of the elements and the operation on them.
        how: Accumulation,
        /// Elements, as they stand in memory.
        body: Body,
    },
    /// Puts an element into a FIFO of a peer.
    Push {
        /// Rank of the peer.
        to: Rank,
        /// Key of the region.
        key: u64,
        /// Element to put.
        body: Body,
        /// Is `true` if a thread waits for the outcome.
        urgent: bool,
    },
    /// Finds a region that a peer has published.
    Lookup {
        /// Rank of the peer.
        at: Rank,
        /// Name of the region.
        name: String,
    },
    /// Sends a message.
    Send {
        /// Rank of the receiver.
        to: Rank,
        /// Message class, which sets the order.
        class: Class,
        /// Tag that the user chose.
        tag: u64,
        /// Content of the message.
        body: Body,
    },
    /// Performs an operation to the same peer once other operations have ended well. The operation
    /// counts for fences and flushes from the beginning.
    After {
        /// Completion of the other operations. Their failure is the failure of this operation.
        gate: Arc<Completion>,
        /// Operation to perform.
        request: Box<Request>,
    },
    /// Sends a part of a collective operation.
    Parcel {
        /// Rank of the receiver.
        to: Rank,
        /// Head of the parcel.
        head: ParcelHead,
        /// Content of the parcel.
        body: Body,
    },
    /// Maps a region of a local peer, if that is allowed.
    Map {
        /// Rank of the peer.
        at: Rank,
        /// Key of the region.
        key: u64,
    },
    /// Exchanges pages with a local peer's region, if both regions permit it. One request exchanges
    /// as many pages as are contiguous at both ends.
    Swap(Box<Swap>),
    /// Withdraws a published name.
    Withdraw {
        /// Name to withdraw.
        name: String,
    },
    /// Removes a region, which nothing can touch afterwards.
    Remove {
        /// Number of the region.
        region: RegionId,
    },
    /// Drops the source of an operation that has not settled. The engine never reads the source
    /// again. Datagrams that the kernel already has may still read it (WIND-5.5).
    Cancel {
        /// Completion of the operation.
        completion: Arc<Completion>,
    },
    /// Makes later operations to this peer, or to each peer, begin only after the earlier ones have
    /// ended.
    Fence {
        /// Rank of the peer; `None` applies the fence to each peer separately.
        peer: Option<Rank>,
    },
    /// Settles when all earlier operations have ended.
    Flush {
        /// Rank of the peer; `None` means all peers.
        peer: Option<Rank>,
    },
    /// Passes an operation's outcome also to a sink, now or when the operation settles. A
    /// completion takes one such request.
    Tell {
        /// Completion of the operation.
        completion: Arc<Completion>,
        /// Sink that receives the outcome.
        sink: Box<dyn Sink>,
    },
    /// Makes a turn run, which hands out what has arrived.
    Collect,
    /// Reports that the user has read messages from a peer.
    Consumed {
        /// Rank of the sender.
        from: Rank,
        /// Number of messages.
        messages: u64,
        /// Number of bytes in all their bodies.
        bytes: u64,
    },
    /// Creates a shared array together with all other nodes.
    Declare(Declaration),
    /// Reports to all nodes that declare an array why this node cannot declare it.
    CannotDeclare(String),
    /// Performs an operation on elements of an array at their homes.
    Target {
        /// Id of the array.
        array: ArrayId,
        /// Offset in bytes from the start of the array.
        offset: u64,
        /// Number of bytes of the array.
        len: u64,
        /// Operation to perform.
        op: TargetOp,
        /// Bytes to write, or operands of the changes.
        operands: Vec<u8>,
    },
    /// Frees an array that all nodes have dropped, or drop by this request. It is also a barrier.
    Free(ArrayId),
    /// Reports to all nodes in a collective why this node cannot perform its part.
    Cannot(String),
    /// Makes pages of an array valid for this access.
    Touch {
        /// Id of the array.
        array: ArrayId,
        /// Pages to make valid.
        pages: Range<u64>,
        /// Access for loads or for stores.
        access: Access,
    },
    /// Makes the pages of several ranges of an array valid for this access.
    TouchMany {
        /// Id of the array.
        array: ArrayId,
        /// Pages to make valid.
        ranges: Vec<Range<u64>>,
        /// Access for loads or for stores.
        access: Access,
    },
    /// Begins to fetch pages of an array for loads. Settles at once, before the pages have come.
    Prefetch {
        /// Id of the array.
        array: ArrayId,
        /// Pages to fetch.
        ranges: Vec<Range<u64>>,
    },
    /// Reports that an application thread has faulted on this page and waits.
    Fault {
        /// Id of the array.
        array: ArrayId,
        /// Page at which the thread waits.
        page: u64,
        /// Access that the thread wants, if the tracker knows it.
        access: Option<Access>,
    },
    /// Barrier after which every node sees the writes of every node.
    Barrier,
    /// Combines values of all nodes.
    Reduce(Reduction),
    /// Takes a step of an operation of all nodes. It is also a barrier.
    Step(CallStep),
    /// Brings all writes home, and returns what this node knows, for the other members of a team.
    ReleaseToTeam,
    /// Brings all writes home, and then notifies this node.
    Notify(Rank),
    /// Waits for the next notification, and for the updates that it counts.
    WaitNotify {
        /// Rank of the notifier.
        from: Rank,
        /// `false` if the notification is left to a later wait.
        takes: bool,
    },
    /// Learns what other members of a team know.
    AcquireFromTeam(Vec<Vec<u8>>),
    /// Leaves the job, so that this node takes part in no later collective (COH-6.7). Settles when
    /// all nodes have left.
    Leave,
    /// Takes a lock.
    Lock(u64, LockMode),
    /// Releases a lock.
    Unlock(u64),
    /// Settles a completion when the ring of a local peer is settled up to the end of a message
    /// that the fast path put there (MEM-16.4).
    Promise {
        /// Rank of the local peer.
        peer: Rank,
        /// Channel to the local peer.
        channel: Arc<ShmChannel>,
        /// Position in the ring at which the message ends.
        position: u64,
        /// Completion to settle.
        completion: Arc<Completion>,
    },
    /// Reports that the process of a peer has ended, as the launcher has observed.
    PeerEnded {
        /// Rank of the node.
        peer: Rank,
        /// Is `true` if the process ended with status 0.
        success: bool,
    },
    /// Reports that one message after the other goes to all of these nodes, which are sorted. The
    /// engine may open a multicast group for them ([`ShownGroups`](crate::ShownGroups)).
    WantGroup(Vec<Rank>),
    /// Closes the connections to all peers.
    Close,
}

/// Request for an exchange: `len` bytes, in whole units at both ends.
pub struct Swap {
    /// Rank of the local peer.
    pub at: Rank,
    /// Key of its region.
    pub key: u64,
    /// Offset in bytes from the start of that region.
    pub offset: u64,
    /// Slot of a region of this node that local peers do not reach.
    pub own: u32,
    /// Offset in bytes from the start of this node's region.
    pub own_offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Request {
    /// Returns the number of bytes that were copied for the operation and are kept until it has
    /// ended.
    #[must_use]
    pub fn copied(&self) -> u64 {
        match self {
            Request::Put { body: Body::Inline(bytes), .. }
            | Request::PutNotice { body: Body::Inline(bytes), .. }
            | Request::PutBlock { body: Body::Inline(bytes), .. }
            | Request::Accumulate { body: Body::Inline(bytes), .. }
            | Request::Push { body: Body::Inline(bytes), .. }
            | Request::Send { body: Body::Inline(bytes), .. } => bytes.len() as u64,
            Request::After { request, .. } => request.copied(),
            _ => 0,
        }
    }

    /// Returns `true` for an operation: a request that settles later, by an event. Every other
    /// request takes effect at once.
    #[must_use]
    #[inline]
    pub fn is_operation(&self) -> bool {
        self.scope() != RequestScope::ThisNode
    }

    /// Returns the peer of an operation that concerns a single peer, and that fences and flushes to
    /// this peer therefore order.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> Option<Rank> {
        match self.scope() {
            RequestScope::Peer(peer) => Some(peer),
            RequestScope::AllNodes | RequestScope::ThisNode => None,
        }
    }

    fn scope(&self) -> RequestScope {
        match self {
            Request::Put { to: peer, .. }
            | Request::PutNotice { to: peer, .. }
            | Request::Get { from: peer, .. }
            | Request::PutBlock { to: peer, .. }
            | Request::GetBlock { from: peer, .. }
            | Request::Atomic { at: peer, .. }
            | Request::Accumulate { to: peer, .. }
            | Request::Push { to: peer, .. }
            | Request::Lookup { at: peer, .. }
            | Request::Send { to: peer, .. }
            | Request::Parcel { to: peer, .. } => RequestScope::Peer(*peer),
            Request::After { request, .. } => {
                request.peer().map_or(RequestScope::ThisNode, RequestScope::Peer)
            }
            Request::Declare(_)
            | Request::CannotDeclare(_)
            | Request::Free(_)
            | Request::Target { .. }
            | Request::Cannot(_)
            | Request::Touch { .. }
            | Request::TouchMany { .. }
            | Request::Prefetch { .. }
            | Request::Fault { .. }
            | Request::Barrier
            | Request::Reduce(_)
            | Request::Step(_)
            | Request::ReleaseToTeam
            | Request::Notify(_)
            | Request::WaitNotify { .. }
            | Request::AcquireFromTeam(_)
            | Request::Leave
            | Request::Lock(..)
            | Request::Unlock(_) => RequestScope::AllNodes,
            Request::Map { .. }
            | Request::Swap(_)
            | Request::Withdraw { .. }
            | Request::Remove { .. }
            | Request::Cancel { .. }
            | Request::Fence { .. }
            | Request::Flush { .. }
            | Request::Tell { .. }
            | Request::Promise { .. }
            | Request::Collect
            | Request::Consumed { .. }
            | Request::PeerEnded { .. }
            | Request::WantGroup(_)
            | Request::Close => RequestScope::ThisNode,
        }
    }
}

/// Nodes that a request concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestScope {
    /// An operation on one peer.
    Peer(Rank),
    /// An operation on shared arrays, by all nodes.
    AllNodes,
    /// A request that takes effect at once on this node.
    ThisNode,
}

/// Returns a submission, and the completion in which its outcome will appear.
#[must_use]
pub fn tracked(request: Request, keep: Keep) -> (Submission, Arc<Completion>) {
    let completion = Completion::new();
    (tracked_by(Arc::clone(&completion), request, keep), completion)
}

/// Returns a submission whose outcome will appear in `completion`.
#[must_use]
pub fn tracked_by(completion: Arc<Completion>, request: Request, keep: Keep) -> Submission {
    Submission { request, completion: Some(completion), keep }
}
