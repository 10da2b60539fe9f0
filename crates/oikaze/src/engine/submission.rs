//! What threads ask of the engine, in the order in which they asked.

use super::operation::{Completion, Sink};
use super::shm::ShmChannel;
use super::swapping::Swap;
use oikaze_os::memory::RegionId;
use oikaze_protocol::Rank;
use oikaze_protocol::block::Block;
use oikaze_protocol::coherence::{Access, ArrayId, Declaration, Reduction};
use oikaze_protocol::rma::{Accumulation, AtomicOp, Destination, Signal};
use oikaze_protocol::wind::{Body, Class, Segment};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Something counted that must outlive an operation, such as the region it reads.
pub type Keep = Option<Arc<dyn Any + Send + Sync>>;

/// One request. Those with a completion settle it exactly once.
pub struct Submission {
    /// What to do.
    pub request: Request,
    /// Where the outcome appears; `None`: nobody wants to know.
    pub completion: Option<Arc<Completion>>,
    /// What must stay alive meanwhile.
    pub keep: Keep,
}

/// The requests.
pub enum Request {
    /// Write to a peer's region.
    Put {
        /// Whose.
        to: Rank,
        /// Which region.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// What.
        body: Body,
        /// Add to a word once the bytes are in place.
        signal: Option<Signal>,
    },
    /// Read from a peer's region.
    Get {
        /// Whose.
        from: Rank,
        /// Which region.
        key: u64,
        /// Bytes from its start.
        offset: u64,
        /// Where to.
        into: Segment,
    },
    /// Write rows of a peer's region.
    PutBlock {
        /// Whose.
        to: Rank,
        /// Which region.
        key: u64,
        /// Which rows.
        block: Box<Block>,
        /// Their bytes, packed.
        body: Body,
        /// Add to a word once the bytes are in place.
        signal: Option<Signal>,
    },
    /// Read rows of a peer's region.
    GetBlock {
        /// Whose.
        from: Rank,
        /// Which region.
        key: u64,
        /// Which rows.
        block: Box<Block>,
        /// Where to.
        into: Destination,
    },
    /// Read-modify-write of one word of a peer's region.
    Atomic {
        /// Whose.
        at: Rank,
        /// Which region.
        key: u64,
        /// Bytes from its start; a multiple of the word's width.
        offset: u64,
        /// What.
        op: AtomicOp,
        /// Does somebody want the value before? Else it is done when it is acknowledged.
        fetch: bool,
    },
    /// Combine elements with those of a peer's region.
    Accumulate {
        /// Whose.
        to: Rank,
        /// Which region.
        key: u64,
        /// Bytes from its start; a multiple of the element's width.
        offset: u64,
        /// What they are and how.
        how: Accumulation,
        /// The elements, as they stand in memory.
        body: Body,
    },
    /// Put an element into a FIFO of a peer.
    Push {
        /// Whose.
        to: Rank,
        /// Which region.
        key: u64,
        /// The element.
        body: Body,
        /// Somebody waits for it.
        urgent: bool,
    },
    /// Find a region that a peer has published.
    Lookup {
        /// Whose.
        at: Rank,
        /// Its name.
        name: String,
    },
    /// Send a message.
    Send {
        /// To whom.
        to: Rank,
        /// How it is ordered.
        class: Class,
        /// The user's own word.
        tag: u64,
        /// What.
        body: Body,
    },
    /// Map a region of a local peer, if it may be.
    Map {
        /// Whose.
        at: Rank,
        /// Which.
        key: u64,
    },
    /// Exchange pages with a local peer's region, if that can be: as many as are found in one piece
    /// at both ends.
    Swap(Box<Swap>),
    /// Take a published name back.
    Withdraw {
        /// Its name.
        name: String,
    },
    /// Forget a region: nothing can touch it afterwards.
    Remove {
        /// Its number.
        region: RegionId,
    },
    /// Forget the source of an operation that has not settled: it is never read again (but see
    /// WIND-5.5).
    Cancel {
        /// The operation's completion.
        completion: Arc<Completion>,
    },
    /// Operations to this peer, or to each, that are asked for from now on begin when those from
    /// before have ended.
    Fence {
        /// Whose; `None`: each of them for itself.
        peer: Option<Rank>,
    },
    /// Settles when all operations that were asked for before have ended.
    Flush {
        /// Whose; `None`: of all.
        peer: Option<Rank>,
    },
    /// Tell somebody of an operation's outcome, too, now or when it appears. Asked for once.
    Tell {
        /// The operation's.
        completion: Arc<Completion>,
        /// Whom.
        sink: Box<dyn Sink>,
    },
    /// The user has read so many messages from a peer.
    Consumed {
        /// From whom.
        from: Rank,
        /// How many.
        messages: u64,
        /// Bytes of all their bodies.
        bytes: u64,
    },
    /// Create a shared array together with all other nodes.
    Declare(Declaration),
    /// Tell all nodes that make this array why this one cannot.
    CannotDeclare(Declaration, String),
    /// Make pages of an array valid with this access.
    Touch {
        /// Which array.
        array: ArrayId,
        /// Which pages.
        pages: Range<u64>,
        /// For loads or for stores.
        access: Access,
    },
    /// An application thread waits at this page.
    Fault {
        /// Which array.
        array: ArrayId,
        /// Which page.
        page: u64,
        /// What the thread wants, if the tracker knows.
        access: Option<Access>,
    },
    /// Everyone sees everyone's writes afterwards.
    Barrier,
    /// Combine values of all nodes.
    Reduce(Reduction),
    /// No more shared operations from this node; settles when all have left.
    Leave,
    /// Take a lock.
    Lock(u64),
    /// Give a lock back.
    Unlock(u64),
    /// Settle a completion as the message that went directly into a local peer's ring and ends at
    /// this position.
    Promise {
        /// Whose ring.
        peer: Rank,
        /// The same.
        channel: Arc<ShmChannel>,
        /// Where.
        position: u64,
        /// What.
        completion: Arc<Completion>,
    },
    /// The launcher says that the process of a peer has ended.
    PeerEnded {
        /// Rank of the node.
        peer: Rank,
        /// True if it ended with status 0.
        success: bool,
    },
    /// Say goodbye to all peers.
    Close,
}

impl Request {
    /// Bytes that were copied for the operation, and are kept until it has ended.
    #[must_use]
    pub fn copied(&self) -> u64 {
        match self {
            Request::Put { body: Body::Inline(bytes), .. }
            | Request::PutBlock { body: Body::Inline(bytes), .. }
            | Request::Accumulate { body: Body::Inline(bytes), .. }
            | Request::Push { body: Body::Inline(bytes), .. }
            | Request::Send { body: Body::Inline(bytes), .. } => bytes.len() as u64,
            _ => 0,
        }
    }

    /// The peer that fences and flushes of this operation concern.
    #[must_use]
    pub fn peer(&self) -> Option<Rank> {
        match self {
            Request::Put { to: peer, .. }
            | Request::Get { from: peer, .. }
            | Request::PutBlock { to: peer, .. }
            | Request::GetBlock { from: peer, .. }
            | Request::Atomic { at: peer, .. }
            | Request::Accumulate { to: peer, .. }
            | Request::Push { to: peer, .. }
            | Request::Lookup { at: peer, .. }
            | Request::Send { to: peer, .. } => Some(*peer),
            // What takes effect here and at once, and what concerns all nodes.
            Request::Map { .. }
            | Request::Swap(_)
            | Request::Withdraw { .. }
            | Request::Remove { .. }
            | Request::Cancel { .. }
            | Request::Fence { .. }
            | Request::Flush { .. }
            | Request::Tell { .. }
            | Request::Promise { .. }
            | Request::Consumed { .. }
            | Request::Declare(_)
            | Request::CannotDeclare(..)
            | Request::Touch { .. }
            | Request::Fault { .. }
            | Request::Barrier
            | Request::Reduce(_)
            | Request::Leave
            | Request::Lock(_)
            | Request::Unlock(_)
            | Request::PeerEnded { .. }
            | Request::Close => None,
        }
    }
}
