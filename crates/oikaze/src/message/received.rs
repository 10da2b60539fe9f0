//! A message that this node has received.

use oikaze_engine::Arrived;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;
use std::fmt;

/// A message that this node has received.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// job.peer(job.rank())?.send(Class::Ordered, 7, b"a note").wait()?;
/// let message = job.receive(None)?;
/// assert_eq!((message.from(), message.tag(), message.bytes()), (job.rank(), 7, &b"a note"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[repr(transparent)]
pub struct Message(Arrived);

impl Message {
    #[inline]
    pub(crate) fn new(arrived: Arrived) -> Self {
        Self(arrived)
    }

    /// Returns the rank of the sender.
    #[must_use]
    #[inline]
    pub fn from(&self) -> Rank {
        self.0.from
    }

    /// Returns the class in which the message was sent.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// Returns the tag that the sender chose.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> u64 {
        self.0.tag
    }

    /// Returns the content.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.body
    }

    /// Returns the content as a vector. A message of more than 32 bytes is not copied.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.body.into_vec()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("from", &self.from())
            .field("class", &self.class())
            .field("tag", &self.tag())
            .field("len", &self.bytes().len())
            .finish()
    }
}
