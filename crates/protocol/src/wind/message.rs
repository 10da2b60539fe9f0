//! What is handed to Wind to be sent.

use crate::block::Block;
use crate::limits::{BODY_SHORT, HEAD_MAX};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// The three classes of paper 004, section 3 (WIND-2.1).
///
/// Messages of one connection share one number space, in the order in which they were posted
/// (WIND-2.2). The rule across classes is kept by the receiver (WIND-2.3): an ordered (or
/// synchronous) message is delivered when *every* message with a smaller number, of any class, is
/// delivered, refused or withdrawn; an unordered message is delivered as soon as it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Asynchronous, exactly once, after all that was posted before it.
    Ordered = 0,
    /// Asynchronous, exactly once, waits for nothing.
    Unordered = 1,
    /// As `Ordered`, and the sender's wait ends when the peer has accepted it (all before it
    /// delivered too).
    Sync = 2,
}

/// The upper layer's own words in front of a message: at most [`HEAD_MAX`] bytes, carried whole.
pub type Head = ArrayVec<u8, HEAD_MAX>;

/// A head longer than [`HEAD_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message head longer than {HEAD_MAX} bytes")]
pub struct HeadTooLong;

/// Bytes in memory that the engine knows by number: gathered by the link at each (re)transmission,
/// never copied here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Slot in the engine's region table.
    pub region: u32,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Rows in memory that the engine knows by number: packed at each (re)transmission, as much of them
/// as a fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Slot in the engine's region table.
    pub region: u32,
    /// Which bytes of it; their number can be counted.
    pub block: Block,
}

impl Rows {
    /// Bytes of all rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.block.len().unwrap_or(u64::MAX)
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }
}

/// Where a message's body comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// No body.
    Empty,
    /// A few bytes, kept here until acknowledged.
    Short(ArrayVec<u8, BODY_SHORT>),
    /// Bytes kept here until acknowledged.
    Inline(Vec<u8>),
    /// Bytes kept by the caller until the message is settled.
    Segment(Segment),
    /// As a segment, in rows.
    Rows(Arc<Rows>),
}

impl Body {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Body::Segment(segment) => segment.len,
            Body::Rows(rows) => rows.len(),
            body => body.bytes().len() as u64,
        }
    }

    /// The slot of the region that it is gathered from.
    #[must_use]
    pub fn region(&self) -> Option<u32> {
        match self {
            Body::Segment(segment) => Some(segment.region),
            Body::Rows(rows) => Some(rows.region),
            Body::Empty | Body::Short(_) | Body::Inline(_) => None,
        }
    }

    /// Those that are kept here.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Short(bytes) => bytes,
            Body::Inline(bytes) => bytes,
            Body::Empty | Body::Segment(_) | Body::Rows(_) => &[],
        }
    }

    /// A copy of these bytes.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Body {
        ArrayVec::try_from(bytes).map_or_else(|_| Body::Inline(bytes.to_vec()), Body::Short)
    }

    /// So many bytes, written by `fill`, if it can.
    #[must_use]
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Body> {
        if len > BODY_SHORT {
            let mut bytes = alloc::vec![0; len];
            return fill(&mut bytes).then_some(Body::Inline(bytes));
        }
        let mut bytes = ArrayVec::from([0; BODY_SHORT]);
        bytes.truncate(len);
        fill(&mut bytes).then_some(Body::Short(bytes))
    }

    /// Nothing in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The poster's own name for a message; comes back in the event that settles it. [`Token::NONE`]:
/// nobody waits, no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// Nobody wants to know.
    pub const NONE: Token = Token(u64::MAX);
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// How it is ordered against others.
    pub class: Class,
    /// Somebody waits for its acknowledgement: the receiver is asked to acknowledge at once. A
    /// synchronous message always is.
    pub urgent: bool,
    /// Takes of the receiver's credit (user messages, whose bodies the receiver must keep until
    /// they are read).
    pub credited: bool,
    /// First bytes, for the upper layer on the other side.
    pub head: Head,
    /// The rest.
    pub body: Body,
    /// Comes back when the message is settled.
    pub token: Token,
}
