//! Frames on a stream: cut, bounded, and sealed after the handshake.

use super::protocol::{FRAME_MAX, HANDSHAKE_MAX, LENGTH_LEN, Malformed, TAG_LEN};
use crate::Secret;

/// End of the connection that wrote a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum From {
    /// Written by the node.
    Node = 1,
    /// Written by the store.
    Store = 2,
}

/// One direction of a connection after the handshake: its key and its number of frames.
pub struct Seal {
    key: Secret,
    from: From,
    number: u64,
}

impl Seal {
    /// Makes the seal for frames written by `from`.
    #[must_use]
    pub fn new(key: Secret, from: From) -> Seal {
        Seal { key, from, number: 0 }
    }

    /// Returns a whole sealed frame around `body`.
    pub fn frame(&mut self, body: &[u8]) -> Vec<u8> {
        let tag = self.key.mac(&[&[self.from as u8], &self.number.to_le_bytes(), body]);
        self.number += 1;
        let (tag, _) = tag.split_at(TAG_LEN);
        let length = (body.len() + TAG_LEN) as u32;
        [&length.to_le_bytes()[..], body, tag].concat()
    }

    /// Returns the body of the next frame's content, if its tag is right.
    ///
    /// # Errors
    /// The frame was changed, repeated or left out on the way.
    pub fn open<'a>(&mut self, content: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let at = content.len().checked_sub(TAG_LEN).ok_or(Malformed("too short"))?;
        let (body, tag) = content.split_at(at);
        if !self.key.verify(&[&[self.from as u8], &self.number.to_le_bytes(), body], tag) {
            return Err(Malformed("its seal is broken"));
        }
        self.number += 1;
        Ok(body)
    }
}

/// Returns a frame of the handshake, without tag.
#[must_use]
pub fn plain(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], body].concat()
}

/// Returns the length of the frame that begins with these four bytes.
///
/// # Errors
/// The frame is longer than any in this phase, so this is another protocol.
pub fn length(front: [u8; LENGTH_LEN], sealed: bool) -> Result<usize, Malformed> {
    let length = u32::from_le_bytes(front) as usize;
    let max = if sealed { FRAME_MAX } else { HANDSHAKE_MAX };
    if length > max { Err(Malformed("longer than any frame")) } else { Ok(length) }
}

/// Takes the content of one whole frame off the front of the bytes read. Returns `None` if more
/// must be read.
///
/// # Errors
/// As [`length`].
pub fn cut(read: &mut Vec<u8>, sealed: bool) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(front) = read.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
    let end = LENGTH_LEN + length(*front, sealed)?;
    if read.len() < end {
        return Ok(None);
    }
    let content = read.drain(..end).skip(LENGTH_LEN).collect();
    Ok(Some(content))
}
