//! What stands at a datagram's end (WIRE-5).

/// Which kind of tag a datagram ends with; its number is in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SealKind {
    /// CRC32C over header and frames; the payload is left to the network card.
    HeaderOnly = 0,
    /// CRC32C over everything: the default.
    EndToEnd = 1,
    /// The job's MAC: handshake datagrams, and only those.
    Handshake = 2,
    /// Authenticated encryption: reserved.
    Aead = 3,
}

impl SealKind {
    /// From its number on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<SealKind> {
        Some(match code {
            0 => SealKind::HeaderOnly,
            1 => SealKind::EndToEnd,
            2 => SealKind::Handshake,
            3 => SealKind::Aead,
            _ => return None,
        })
    }

    /// Bytes of the tag (WIRE-5.2).
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self {
            SealKind::HeaderOnly | SealKind::EndToEnd => 4,
            SealKind::Handshake | SealKind::Aead => 16,
        }
    }
}

/// Writes and checks tags. The engine owns the implementations: the protocol has no keys and no CRC
/// instruction.
pub trait Seal {
    /// What the header says.
    fn kind(&self) -> SealKind;

    /// Bytes of the tag: `out` of [`Seal::tag`] is that long.
    fn len(&self) -> usize {
        self.kind().tag_len()
    }

    /// Always `false`: every kind has a tag.
    fn is_empty(&self) -> bool {
        false
    }

    /// Compute the tag over the datagram (WIRE-5.1): the first part is header and frames, those
    /// after it the payload.
    fn tag(&self, parts: &[&[u8]], out: &mut [u8]);

    /// Is `tag` right for header and frames (`covered`) and `payload`?
    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool;
}
