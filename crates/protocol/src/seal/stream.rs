//! Keys of a multicast stream (SEAL-8): the sender draws a secret for each stream, and gives it to
//! the members over their sealed connections.

use super::exchange::CipherKind;
use crate::Rank;
use crate::bytes::ByteWriter;
use alloc::vec::Vec;
use core::fmt;
use zeroize::Zeroize;

/// Secret of one stream, which the sender and all members have (SEAL-8.4). It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamSecret([u8; StreamSecret::LEN]);

impl StreamSecret {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Makes the secret of bytes that nobody can guess. They are used for no other stream.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; StreamSecret::LEN]) -> StreamSecret {
        StreamSecret(bytes)
    }

    /// Returns the bytes, for a member or for the derivation of keys.
    #[must_use]
    pub const fn expose(&self) -> &[u8; StreamSecret::LEN] {
        &self.0
    }
}

impl fmt::Debug for StreamSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamSecret(hidden)")
    }
}

impl Drop for StreamSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Stream to which keys belong, and their cipher. Both enter the derivation of the keys (SEAL-8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamIdentity {
    /// Id of the stream, in the header of its datagrams.
    pub id: u64,
    /// Rank of the only node that sends in the stream.
    pub sender: Rank,
    /// Cipher of all members.
    pub cipher: CipherKind,
}

impl StreamIdentity {
    /// Returns what the secret is expanded with.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        let mut bytes = Vec::from(*b"oikaze stream");
        bytes.put_u64(self.id);
        bytes.put_u32(self.sender);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// SEAL-8.2.
    #[test]
    fn label_names_stream_and_sender() {
        let identity = StreamIdentity { id: 0x0102, sender: 7, cipher: CipherKind::Aes128Gcm };
        assert_eq!(identity.label(), *b"oikaze stream\x02\x01\0\0\0\0\0\0\x07\0\0\0");
    }

    #[test]
    fn secret_is_not_shown() {
        assert!(!format!("{:?}", StreamSecret::from_bytes([77; 32])).contains("77"));
    }
}
