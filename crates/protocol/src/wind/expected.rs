//! Which bytes of a running message will most likely come next, so that they can be received straight into their place (MEM-3.7).
//!
//! A guess: nothing that is decided depends on it.

use super::Connection;
use crate::wire::{Frame, View};
use core::hash::{Hash, Hasher};

/// Bytes of a body that is being placed, none of which has come, and how they are likely to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The message's number.
    pub message: u64,
    /// Where in its body they begin.
    pub offset: u64,
    /// How many of them are missing in a row, at least [`Expected::piece`].
    pub left: u64,
    /// Payload of each datagram.
    pub piece: usize,
}

impl Expected {
    /// Is this the datagram that was expected as the `index`-th (from 0), with this fragment and nothing else in it?
    #[must_use]
    pub fn is(&self, index: usize, view: &View<'_>) -> bool {
        let mut frames = view.frames();
        let Some(Ok(Frame::Fragment(fragment))) = frames.next() else { return false };
        let offset = (index as u64).checked_mul(self.piece as u64).and_then(|ahead| self.offset.checked_add(ahead));
        frames.next().is_none()
            && view.payload().len() == self.piece
            && fragment.message_low == self.message as u32
            && Some(fragment.offset) == offset
    }
}

/// The latest fragment that brought something new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub message: u64,
    /// Where it ended.
    pub end: u64,
    pub piece: usize,
}

/// What is remembered to guess by. It is no part of a connection's state: two that differ in it alone behave alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Guess(pub Option<Latest>);

impl Hash for Guess {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Connection {
    /// The bytes that will most likely come next, of a message whose bytes are placed as they come.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        self.inbox.expected()
    }
}
