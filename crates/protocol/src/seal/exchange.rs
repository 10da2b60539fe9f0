//! Agreement of two nodes on the secrets of a connection (SEAL-2): two messages, which travel in
//! HELLOs.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::wire_enum;
use alloc::vec::Vec;
use core::fmt;
use zeroize::Zeroize;

/// Length of the first message in bytes: an ephemeral key, the sender's cipher and a tag.
pub const FIRST_LEN: usize = 49;
/// Length of the second message in bytes: an ephemeral key, an [`Identity`], the cipher of the
/// connection and a tag.
pub const SECOND_LEN: usize = 65;
/// Length of the field that holds either message (WIRE-4.8).
const FIELD_LEN: usize = 68;

/// Message of the node of the lower rank.
pub type FirstMessage = [u8; FIRST_LEN];
/// Answer of the node of the higher rank.
pub type SecondMessage = [u8; SECOND_LEN];

wire_enum! {
    /// Cipher of a connection, with the number that the handshake carries (SEAL-2.6).
    pub enum CipherKind {
        /// AES-128-GCM (NIST SP 800-38D), for processors with instructions for AES.
        Aes128Gcm = 1,
        /// ChaCha20-Poly1305 (RFC 8439), for processors without them.
        ChaCha20Poly1305 = 2,
    }
}

impl CipherKind {
    /// Returns the cipher of a connection between nodes that prefer these two: ChaCha20-Poly1305 if
    /// either prefers it.
    ///
    /// ```
    /// use oikaze_protocol::seal::CipherKind::{Aes128Gcm, ChaCha20Poly1305};
    ///
    /// assert_eq!(Aes128Gcm.agreed(Aes128Gcm), Aes128Gcm);
    /// assert_eq!(Aes128Gcm.agreed(ChaCha20Poly1305), ChaCha20Poly1305);
    /// ```
    #[must_use]
    pub fn agreed(self, other: CipherKind) -> CipherKind {
        if self == other { self } else { CipherKind::ChaCha20Poly1305 }
    }

    /// Returns the name, as the standards write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }
}

/// Secrets of a connection, one for each direction, and their cipher. They are not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecrets {
    /// Cipher of both directions.
    pub cipher: CipherKind,
    /// Secret of what this node seals.
    pub send: [u8; 32],
    /// Secret of what the peer seals.
    pub receive: [u8; 32],
}

impl fmt::Debug for SessionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecrets(hidden)")
    }
}

impl Drop for SessionSecrets {
    fn drop(&mut self) {
        self.send.zeroize();
        self.receive.zeroize();
    }
}

/// Process at one end of a connection, and its id for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Incarnation of the process.
    pub incarnation: u64,
    /// Connection id that the process chose.
    pub connection: u64,
}

impl Identity {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Returns the bytes that the second message carries.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Identity::LEN] {
        let both = u128::from(self.connection) << 64 | u128::from(self.incarnation);
        both.to_le_bytes()
    }

    /// Reads what [`Identity::to_bytes`] wrote.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Identity::LEN]) -> Identity {
        let both = u128::from_le_bytes(bytes);
        Identity { incarnation: both as u64, connection: (both >> 64) as u64 }
    }
}

/// Knowledge of both nodes before the first message. An exchange succeeds only if it is the same on
/// both sides (SEAL-2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Number of nodes in the job.
    pub nodes: u32,
    /// Kind of seal, as numbered by [`SealKind`](crate::wire::SealKind).
    pub seal: u8,
    /// Lower of the two ranks, which sends the first message.
    pub first: Rank,
    /// Higher of the two ranks.
    pub second: Rank,
    /// Process of the lower rank.
    pub identity: Identity,
}

impl Binding {
    /// Returns the bytes of which both sides take the hash.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::from(*b"oikaze seal 1");
        bytes.put_u8(self.seal);
        bytes.put_u32(self.nodes);
        bytes.put_u32(self.first);
        bytes.put_u32(self.second);
        bytes.put(&self.identity.to_bytes());
        bytes
    }
}

/// Computes the messages of one node, and the secrets. Each is `None` if the message of the peer is
/// not authentic, or the system has no random bytes to give.
pub trait KeyExchange: Send + Sync {
    /// Begins anew, and returns the first message. The node's rank is the lower one.
    fn first(&mut self, binding: &Binding) -> Option<FirstMessage>;

    /// Answers a first message, as the process `mine`.
    fn second(
        &mut self,
        binding: &Binding,
        first: &FirstMessage,
        mine: Identity,
    ) -> Option<(SecondMessage, SessionSecrets)>;

    /// Takes the answer to the latest first message. Returns the process that gave it.
    fn finish(&mut self, second: &SecondMessage) -> Option<(Identity, SessionSecrets)>;
}

/// Part of a HELLO that concerns keys (WIRE-4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStep {
    /// The connection has no keys, or the sender has none to offer yet.
    Nothing,
    /// Message of the lower rank.
    First(FirstMessage),
    /// Answer of the higher rank.
    Second(SecondMessage),
    /// The sender, of the lower rank, has the second message.
    Done,
}

impl KeyStep {
    /// Length in bytes.
    pub(crate) const LEN: usize = 4 + FIELD_LEN;

    pub(crate) fn parse(body: &mut ByteReader<'_>) -> Result<KeyStep, Invalid> {
        let step = body.u8()?;
        body.zeros::<3>()?;
        let (first, rest) =
            (body.array::<FIRST_LEN>()?, body.array::<{ SECOND_LEN - FIRST_LEN }>()?);
        body.zeros::<{ FIELD_LEN - SECOND_LEN }>()?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        match step {
            0 if is_zero(&first) && is_zero(&rest) => Ok(KeyStep::Nothing),
            1 if is_zero(&rest) => Ok(KeyStep::First(first)),
            2 => {
                let mut second = [0; SECOND_LEN];
                second.iter_mut().zip(first.iter().chain(&rest)).for_each(|(to, from)| *to = *from);
                Ok(KeyStep::Second(second))
            }
            3 if is_zero(&first) && is_zero(&rest) => Ok(KeyStep::Done),
            _ => Err(Invalid),
        }
    }

    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        let (step, message): (u8, &[u8]) = match self {
            KeyStep::Nothing => (0, &[]),
            KeyStep::First(message) => (1, message),
            KeyStep::Second(message) => (2, message),
            KeyStep::Done => (3, &[]),
        };
        let end = into.len() + KeyStep::LEN;
        into.put_u8(step);
        into.put(&[0; 3]);
        into.put(message);
        into.resize(end, 0);
    }
}
