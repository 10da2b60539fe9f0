//! Sealed datagrams (spec/seal.md): who agrees on keys when, and which key is for which datagram.
//!
//! Nothing here computes a cipher. [`KeyExchange`], [`Chain`] and [`Cipher`] are what the machine
//! computes.

mod exchange;
mod ratchet;
mod stream;

pub use exchange::{
    Binding, CipherKind, FIRST_LEN, FirstMessage, Identity, KeyExchange, KeyStep, SECOND_LEN,
    SecondMessage, SessionSecrets,
};
pub use ratchet::{DATAGRAMS_PER_KEY, ReceiveChain, SendChain};
pub use stream::{StreamIdentity, StreamSecret};

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;

/// Authenticated encryption under one key.
pub trait Cipher {
    /// Encrypts `text` in place and writes the tag, which also covers `associated`. `number` is
    /// never used twice under one key (SEAL-3.3).
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8], tag: &mut [u8; TAG_LEN]);

    /// Decrypts `sealed`, which is a text with its tag, in place. Returns `false` if the tag is
    /// wrong. Nothing may be read from `sealed` then.
    #[must_use]
    fn open(&self, number: u64, associated: &[u8], sealed: &mut [u8]) -> bool;
}

/// Secret from which the keys of one direction of a lane follow, from one epoch on.
pub trait Chain: Sized {
    /// Cipher under a key of this chain.
    type Cipher: Cipher;

    /// Returns the cipher of this epoch.
    fn cipher(&self) -> Self::Cipher;

    /// Returns the secret of the next epoch. It does not tell the secrets before it.
    #[must_use]
    fn next(&self) -> Self;
}
