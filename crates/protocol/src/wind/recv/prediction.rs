//! Prediction of the next fragments of the running message, so that they can be received directly
//! into their place (MEM-3.7).
//!
//! The prediction is a guess on which no decision depends. The message whose fragment came last
//! goes on behind that fragment, in fragments as long as that one.

use crate::wind::connection::Connection;
use crate::wind::recv::reassembly::{Assembly, BodyDestination};
use crate::wire::frame::{Frame, open_frame_len};
use crate::wire::view::View;
use core::hash::{Hash, Hasher};

/// Bytes of a body that is being placed, none of which has arrived, and how the sender will likely
/// fragment them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of the message.
    pub message: u64,
    /// Offset of the bytes in its body.
    pub offset: u64,
    /// Number of datagrams that bring the bytes.
    pub pieces: usize,
    /// Payload of each datagram, in bytes.
    pub piece: usize,
    /// Bytes of the frame with the message's beginning in each datagram (WIND-2.6), or 0.
    pub opening: usize,
}

impl Expected {
    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.pieces * self.piece) as u64
    }

    /// Returns `true` if the datagram brings the piece with this index (from 0), and nothing else.
    #[must_use]
    pub fn is(&self, index: usize, view: &View<'_>) -> bool {
        let mut frames = view.frames();
        let Some(Ok(Frame::Fragment(fragment))) = frames.next() else { return false };
        let opens = match frames.next() {
            None => false,
            Some(Ok(Frame::Open(open))) if open.number == self.message => true,
            Some(_) => return false,
        };
        index < self.pieces
            && frames.next().is_none()
            && opens == (self.opening > 0)
            && view.payload().len() == self.piece
            && fragment.message_low == self.message as u32
            && fragment.offset == self.offset + (index * self.piece) as u64
    }
}

/// Latest fragment that has brought something new. It is not part of a connection's state:
/// connections that differ only in it behave alike.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestFragment {
    pub message: u64,
    /// Offset in the body at which the fragment ended.
    pub end: u64,
    /// Length of the fragment in bytes.
    pub len: usize,
    /// Whether the fragment came with the message's beginning.
    pub opens: bool,
}

impl LatestFragment {
    /// Returns what comes next of the message, up to `bytes` bytes.
    pub fn expected(&self, bytes: usize, assembly: &Assembly) -> Option<Expected> {
        let missing = assembly.missing(self.end)?;
        let room = (missing.end - missing.start).min(bytes as u64) as usize;
        let pieces = room.checked_div(self.len)?;
        (pieces > 0 && assembly.destination == BodyDestination::Place).then(|| Expected {
            message: self.message,
            offset: missing.start,
            pieces,
            piece: self.len,
            opening: if self.opens { open_frame_len(assembly.head.len()) } else { 0 },
        })
    }
}

impl Hash for LatestFragment {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Connection {
    /// Returns what will probably come next by the bulk lane, up to `bytes` bytes of payload.
    #[must_use]
    pub fn expected(&self, bytes: usize) -> Option<Expected> {
        self.inbox.expected(bytes)
    }
}
