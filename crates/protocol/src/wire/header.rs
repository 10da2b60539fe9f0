//! The fixed header (WIRE-2).

use crate::bytes::{ByteReader, Invalid};
use crate::limits::HEADER_LEN;
use crate::wire::seal::SealKind;

/// Flag bits of a datagram (WIRE-2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender asks for an acknowledgement at once.
    pub const ACK_NOW: Flags = Flags(1);
    /// The first frame is a fragment, whose bytes are the datagram's payload (WIRE-2.5).
    pub const BULK: Flags = Flags(2);
    /// The datagram goes by the bulk lane (WIRE-2.7).
    pub const BULK_LANE: Flags = Flags(4);
    /// Bits that have a meaning.
    const KNOWN: u8 = 7;

    /// Returns `true` if all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags with the bits of `other` added.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

crate::wire_enum! {
    /// One of the two sequences of datagrams between two nodes. Each has its own numbers,
    /// acknowledgements and window, so that neither waits for the other (WIND-3.6).
    #[derive(Default)]
    pub enum Lane {
        /// Handshakes, control, and messages that fit into a frame.
        #[default]
        Small = 0,
        /// Lane of fragments.
        Bulk = 1,
    }
}

impl Lane {
    /// Both lanes, the small one first.
    pub const BOTH: [Lane; 2] = [Lane::Small, Lane::Bulk];
}

/// `connection u64 | number u64 | flags u8 | seal u8 | frames_len u16 | payload_len u16 | reserved
/// u16`, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Connection id that the *receiver* chose; 0 in handshake datagrams (WIRE-2.1).
    pub connection: u64,
    /// Number of the datagram, never reused within a connection (WIRE-2.2).
    pub number: u64,
    /// Flags of the datagram.
    pub flags: Flags,
    /// Kind of seal at the datagram's end.
    pub seal: SealKind,
    /// Length of all frames in bytes (WIRE-2.3).
    pub frames_len: u16,
    /// Number of bytes after the frames and before the tag.
    pub payload_len: u16,
}

impl Header {
    /// Returns the lane of the datagram.
    #[must_use]
    pub const fn lane(&self) -> Lane {
        if self.flags.has(Flags::BULK_LANE) { Lane::Bulk } else { Lane::Small }
    }

    /// Reads the header of a datagram that this node has written.
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<Header> {
        Header::parse(datagram).ok()
    }

    /// Reads and checks a header. Every field must have a meaning (WIRE-2.6).
    pub(super) fn parse(bytes: &[u8]) -> Result<Header, Invalid> {
        let bytes = bytes.first_chunk::<HEADER_LEN>().ok_or(Invalid)?;
        let mut reader = ByteReader(bytes);
        let header = Header {
            connection: reader.u64()?,
            number: reader.u64()?,
            flags: Flags(reader.u8()?),
            seal: reader.code(SealKind::from_code)?,
            frames_len: reader.u16()?,
            payload_len: reader.u16()?,
        };
        reader.zeros::<2>()?;
        let bulk = header.flags.has(Flags::BULK);
        let sound = header.flags.0 & !Flags::KNOWN == 0 && (bulk == (header.payload_len > 0));
        // WIRE-5.4: the job's MAC seals handshake datagrams and nothing else.
        let handshake = (header.connection == 0) == (header.seal == SealKind::Handshake);
        let lane = header.connection != 0 || header.lane() == Lane::Small;
        if sound && handshake && lane { Ok(header) } else { Err(Invalid) }
    }

    /// Writes over the first [`HEADER_LEN`] bytes of `place`.
    pub(super) fn write(&self, place: &mut [u8]) {
        let Some(place) = place.first_chunk_mut::<HEADER_LEN>() else { return };
        // Write word by word. A copy of a header built elsewhere would stall on store forwarding.
        if let [connection, number, last] = place.as_chunks_mut::<8>().0 {
            *connection = self.connection.to_le_bytes();
            *number = self.number.to_le_bytes();
            *last = self.last_word().to_le_bytes();
        }
    }

    /// Returns flags, seal and lengths as the third little-endian word.
    fn last_word(&self) -> u64 {
        u64::from(self.flags.0)
            | u64::from(self.seal as u8) << 8
            | u64::from(self.frames_len) << 16
            | u64::from(self.payload_len) << 32
    }
}
