//! The fixed header (WIRE-2).

use super::SealKind;
use super::cursor::Reader;
use crate::limits::HEADER_LEN;

/// Flag bits of a datagram (WIRE-2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender asks for an acknowledgement at once.
    pub const ACK_NOW: Flags = Flags(1);
    /// The first frame is a fragment; its bytes are the datagram's payload (WIRE-2.5).
    pub const BULK: Flags = Flags(2);
    /// The datagram goes by the bulk lane (WIRE-2.7).
    pub const BULK_LANE: Flags = Flags(4);
    /// Bits that have a meaning.
    const KNOWN: u8 = 7;

    /// Are all bits of `other` set?
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` too.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One of the two flows of datagrams between two nodes. Each has its numbers, acknowledgements and
/// window, so that neither waits for the other (WIND-3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Handshakes, control, and messages that fit into a frame.
    #[default]
    Small,
    /// Fragments.
    Bulk,
}

impl Lane {
    /// What is small comes first.
    pub const BOTH: [Lane; 2] = [Lane::Small, Lane::Bulk];
}

/// `connection u64 | number u64 | flags u8 | seal u8 | frames_len u16 | payload_len u16 | reserved
/// u16`, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id that the *receiver* chose; 0 in handshake datagrams (WIRE-2.1).
    pub connection: u64,
    /// This datagram's number, never reused within a connection (WIRE-2.2).
    pub number: u64,
    /// Flag bits.
    pub flags: Flags,
    /// What the datagram ends with.
    pub seal: SealKind,
    /// Bytes of all frames (WIRE-2.3).
    pub frames_len: u16,
    /// Bytes after the frames and before the tag.
    pub payload_len: u16,
}

impl Header {
    /// Which lane the datagram goes by.
    #[must_use]
    pub const fn lane(&self) -> Lane {
        if self.flags.has(Flags::BULK_LANE) { Lane::Bulk } else { Lane::Small }
    }

    /// Read and check; `None` if a field has no meaning (WIRE-2.6).
    pub(super) fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<HEADER_LEN>()?;
        let mut reader = Reader(bytes);
        let header = Header {
            connection: reader.u64()?,
            number: reader.u64()?,
            flags: Flags(reader.u8()?),
            seal: SealKind::from_code(reader.u8()?)?,
            frames_len: reader.u16()?,
            payload_len: reader.u16()?,
        };
        reader.zeros::<2>()?;
        let bulk = header.flags.has(Flags::BULK);
        let sound = header.flags.0 & !Flags::KNOWN == 0 && (bulk == (header.payload_len > 0));
        // WIRE-5.4: the job's MAC seals handshake datagrams and nothing else.
        let handshake = (header.connection == 0) == (header.seal == SealKind::Handshake);
        let lane = header.connection != 0 || header.lane() == Lane::Small;
        (sound && handshake && lane).then_some(header)
    }

    /// Write over the first [`HEADER_LEN`] bytes of `place`.
    pub(super) fn write(&self, place: &mut [u8]) {
        let Some(place) = place.first_chunk_mut::<HEADER_LEN>() else { return };
        // Word by word: what was put together beside it would be waited for.
        if let [connection, number, last] = place.as_chunks_mut::<8>().0 {
            *connection = self.connection.to_le_bytes();
            *number = self.number.to_le_bytes();
            *last = self.last_word().to_le_bytes();
        }
    }

    /// Flags, seal and lengths, as the third little-endian word.
    fn last_word(&self) -> u64 {
        u64::from(self.flags.0)
            | u64::from(self.seal as u8) << 8
            | u64::from(self.frames_len) << 16
            | u64::from(self.payload_len) << 32
    }
}
