//! Messages as they are handed to Wind for sending.

use crate::block::Block;
use crate::limits::{BODY_INLINE_MAX, HEAD_MAX};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

crate::wire_enum! {
    /// Message class: the three classes of paper 004, section 2.1 (WIND-2.1).
    ///
    /// Messages of one connection share one number space, in the order in which they were posted
    /// (WIND-2.2). The receiver keeps the rule across classes (WIND-2.3). It delivers an ordered or
    /// synchronous message when *every* message with a smaller number, of any class, is delivered,
    /// refused or withdrawn. It delivers an unordered message as soon as the message is whole.
    pub enum Class {
        /// Asynchronous, delivered exactly once, after all messages that were posted before it.
        Ordered = 0,
        /// Asynchronous, delivered exactly once, without waiting for other messages.
        Unordered = 1,
        /// Like `Ordered`, and the sender's wait ends when the peer has accepted the message and
        /// delivered all messages before it.
        Sync = 2,
    }
}

impl Class {
    /// All three classes.
    pub const ALL: [Class; 3] = [Class::Ordered, Class::Unordered, Class::Sync];

    /// Returns the name in settings and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Ordered => "ordered",
            Class::Unordered => "unordered",
            Class::Sync => "sync",
        }
    }
}

/// Head of a message, which belongs to the upper layer: at most [`HEAD_MAX`] bytes, never
/// fragmented.
pub type Head = ArrayVec<u8, HEAD_MAX>;

/// Error for a head longer than [`HEAD_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message head longer than {HEAD_MAX} bytes")]
pub struct HeadTooLong;

/// Bytes in a region of the engine. The link gathers them at each (re)transmission, and Wind never
/// copies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Slot in the engine's region table.
    pub region: u32,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Rows in a region of the engine. At each (re)transmission the link packs as many bytes of them as
/// the fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Slot in the engine's region table.
    pub region: u32,
    /// Bytes of the region that the rows consist of. Their number does not overflow.
    pub block: Block,
}

impl Rows {
    /// Returns the number of bytes of all rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.block.len().unwrap_or(u64::MAX)
    }

    /// Returns `true` if the rows have no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }
}

/// Source of a message's body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// There is no body.
    Empty,
    /// A few bytes, stored here until acknowledged.
    Short(ArrayVec<u8, BODY_INLINE_MAX>),
    /// Bytes stored here until acknowledged.
    Inline(Vec<u8>),
    /// Bytes stored here until every message that shares them is acknowledged.
    Shared(Arc<Vec<u8>>),
    /// Bytes that the caller keeps until the message is settled.
    Segment(Segment),
    /// Rows that the caller keeps until the message is settled.
    Rows(Arc<Rows>),
}

impl Body {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Body::Segment(segment) => segment.len,
            Body::Rows(rows) => rows.len(),
            body => body.bytes().len() as u64,
        }
    }

    /// Returns the slot of the region that the body is gathered from.
    #[must_use]
    pub fn region(&self) -> Option<u32> {
        match self {
            Body::Segment(segment) => Some(segment.region),
            Body::Rows(rows) => Some(rows.region),
            Body::Empty | Body::Short(_) | Body::Inline(_) | Body::Shared(_) => None,
        }
    }

    /// Returns the bytes of a body that is stored here.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Short(bytes) => bytes,
            Body::Inline(bytes) => bytes,
            Body::Shared(bytes) => bytes,
            Body::Empty | Body::Segment(_) | Body::Rows(_) => &[],
        }
    }

    /// Returns a body whose clones share its bytes.
    #[must_use]
    pub fn into_shared(self) -> Body {
        match self {
            Body::Inline(bytes) => Body::Shared(Arc::new(bytes)),
            body => body,
        }
    }

    /// Returns a body with a copy of these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Body {
        Body::copy_if_short(bytes).unwrap_or_else(|| Body::Inline(bytes.to_vec()))
    }

    /// Returns a body with a copy of these bytes, or `None` if it would need an allocation.
    #[must_use]
    pub fn copy_if_short(bytes: &[u8]) -> Option<Body> {
        ArrayVec::try_from(bytes).ok().map(Body::Short)
    }

    /// Returns a body of `len` bytes written by `fill`, or `None` if `fill` returns `false`.
    #[must_use]
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Body> {
        if len > BODY_INLINE_MAX {
            let mut bytes = alloc::vec![0; len];
            return fill(&mut bytes).then_some(Body::Inline(bytes));
        }
        let mut bytes = ArrayVec::from([0; BODY_INLINE_MAX]);
        bytes.truncate(len);
        fill(&mut bytes).then_some(Body::Short(bytes))
    }

    /// Returns `true` if the body has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        if bytes.is_empty() { Body::Empty } else { Body::Inline(bytes) }
    }
}

/// Name that the poster gives to a message. The event that settles the message carries it. With
/// [`Token::NONE`] there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// Token of messages whose poster wants no event.
    pub const NONE: Token = Token(u64::MAX);
}

/// Cost of a message in the receiver's credit: the receiver must keep as much until its program has
/// read the message (WIND-6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// Nothing: the receiver is done with the message when the message is delivered.
    Nothing,
    /// [`CREDIT_OVERHEAD`](crate::limits::CREDIT_OVERHEAD) bytes: the receiver keeps an entry, and
    /// places the body.
    Entry,
    /// The body and [`CREDIT_OVERHEAD`](crate::limits::CREDIT_OVERHEAD) bytes: the receiver keeps
    /// the body.
    Body,
}

impl Charge {
    /// Returns the bytes of a body of `len` bytes that cost credit, or `None` if the message costs
    /// none at all.
    #[must_use]
    pub const fn of(self, len: u64) -> Option<u64> {
        match self {
            Charge::Nothing => None,
            Charge::Entry => Some(0),
            Charge::Body => Some(len),
        }
    }

    /// Returns `true` if the message costs credit.
    #[must_use]
    pub const fn is_credited(self) -> bool {
        !matches!(self, Charge::Nothing)
    }
}

/// One message to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Class, which decides the order of delivery.
    pub class: Class,
    /// Whether the poster waits for the acknowledgement, so that the receiver is asked to
    /// acknowledge at once. A synchronous message is always urgent.
    pub urgent: bool,
    /// Cost of the message in the receiver's credit.
    pub charge: Charge,
    /// First bytes, for the upper layer of the peer.
    pub head: Head,
    /// Bytes behind the head.
    pub body: Body,
    /// Token that comes back when the message is settled.
    pub token: Token,
}

impl Message {
    /// Makes a message that costs no credit, and for whose acknowledgement nobody waits.
    #[inline]
    #[must_use]
    pub const fn new(class: Class, head: Head, body: Body, token: Token) -> Message {
        Message { class, urgent: false, charge: Charge::Nothing, head, body, token }
    }
}
