//! Frames on a stream: cut, bounded, and sealed after the handshake (LAUNCH-6.5).

use super::protocol::{FRAME_MAX, HANDSHAKE_MAX, LENGTH_LEN, Malformed, TAG_LEN};
use oikaze_os::secrets::seal::Aead;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::seal::{Cipher, CipherKind};

/// End of the connection that wrote a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameWriter {
    /// Written by the node.
    Node = 1,
    /// Written by the store.
    Store = 2,
}

/// One direction of a connection after the handshake: its key and its number of frames.
pub struct FrameSeal {
    cipher: Aead,
    number: u64,
}

impl FrameSeal {
    /// Makes the seal for frames written by `from`. The key is of one connection only.
    #[must_use]
    pub fn new(key: &Secret, from: FrameWriter) -> FrameSeal {
        let purpose: [&[u8]; 2] = [b"oikaze store", &[from as u8]];
        FrameSeal { cipher: Aead::derived(CipherKind::Aes128Gcm, key, &purpose), number: 0 }
    }

    /// Returns a whole sealed frame around `body`.
    pub fn frame(&mut self, body: &[u8]) -> Vec<u8> {
        let length = ((body.len() + TAG_LEN) as u32).to_le_bytes();
        let (mut text, mut tag) = (body.to_vec(), [0; TAG_LEN]);
        self.cipher.seal(self.number, &length, &mut text, &mut tag);
        self.number += 1;
        [&length[..], &text, &tag].concat()
    }

    /// Returns the body of the next frame's content, if its tag is right.
    ///
    /// # Errors
    /// The frame was changed, repeated or left out on the way.
    pub fn open(&mut self, content: &[u8]) -> Result<Vec<u8>, Malformed> {
        let len = content.len().checked_sub(TAG_LEN).ok_or(Malformed("too short"))?;
        let (length, mut body) = ((content.len() as u32).to_le_bytes(), content.to_vec());
        if !self.cipher.open(self.number, &length, &mut body) {
            return Err(Malformed("its seal is broken"));
        }
        self.number += 1;
        body.truncate(len);
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
