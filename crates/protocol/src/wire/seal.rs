//! Seals at the end of datagrams (WIRE-5).

crate::wire_enum! {
    /// Kind of the tag at a datagram's end. Its number is in the header.
    pub enum SealKind {
        /// CRC32C over header and frames. The network card protects the payload.
        HeaderOnly = 0,
        /// CRC32C over everything.
        EndToEnd = 1,
        /// The job's MAC: handshake datagrams, and only those.
        Handshake = 2,
        /// Authenticated encryption of frames and payload: the default.
        Encrypted = 3,
        /// Authentication of everything, without encryption.
        Authenticated = 4,
    }
}

impl SealKind {
    /// Returns the length of the tag in bytes (WIRE-5.2).
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self {
            SealKind::HeaderOnly | SealKind::EndToEnd => 4,
            SealKind::Handshake | SealKind::Encrypted | SealKind::Authenticated => 16,
        }
    }

    /// Returns `true` if both ends need keys of their connection for it (SEAL-1.1).
    #[must_use]
    pub const fn is_keyed(self) -> bool {
        matches!(self, SealKind::Encrypted | SealKind::Authenticated)
    }
}

/// Writes and checks tags. The engine owns the implementations, because the protocol has no keys
/// and no CRC instruction.
pub trait Seal {
    /// Returns the kind that the header names.
    fn kind(&self) -> SealKind;

    /// Returns the length of the tag in bytes, which is the length of `out` in [`Seal::tag`].
    fn len(&self) -> usize {
        self.kind().tag_len()
    }

    /// Returns `false`, because every kind has a tag.
    fn is_empty(&self) -> bool {
        false
    }

    /// Computes the tag over the datagram (WIRE-5.1). The first part is header and frames, and the
    /// parts after it are the payload.
    fn tag(&self, parts: &[&[u8]], out: &mut [u8]);

    /// Returns `true` if `tag` is right for header and frames (`covered`) and `payload`.
    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool;
}
