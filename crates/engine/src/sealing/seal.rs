//! Seals of this implementation (WIRE-5): keys of a connection or CRC32C for data, and a keyed MAC
//! for handshakes.

use oikaze_os::checksum::crc32c;
use oikaze_os::net::Reseal;
use oikaze_os::secrets::key_log::KeyLog;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::limits::HEADER_LEN;
use oikaze_protocol::wire::{Seal, SealKind};
use std::ops::Range;

/// CRC32C (RFC 3720, appendix B.4) over header and frames, and over the payload unless that is left
/// to the network cards.
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    payload: bool,
}

impl Checksum {
    /// Returns the checksum of this kind, or `None` if the kind is not a checksum.
    #[must_use]
    pub fn of(kind: SealKind) -> Option<Self> {
        match kind {
            SealKind::HeaderOnly => Some(Self { payload: false }),
            SealKind::EndToEnd => Some(Self { payload: true }),
            SealKind::Handshake | SealKind::Encrypted | SealKind::Authenticated => None,
        }
    }

    /// Returns the number of parts that the checksum covers. Header and frames are the first part.
    fn covered(self) -> usize {
        if self.payload { usize::MAX } else { 1 }
    }

    fn sum(self, parts: &[&[u8]]) -> [u8; 4] {
        let covered = parts.iter().take(self.covered()).filter(|part| !part.is_empty());
        covered.fold(0, |sum, part| crc32c(sum, part)).to_le_bytes()
    }
}

impl Seal for Checksum {
    fn kind(&self) -> SealKind {
        if self.payload { SealKind::EndToEnd } else { SealKind::HeaderOnly }
    }

    fn tag(&self, parts: &[&[u8]], out: &mut [u8]) {
        for (to, from) in out.iter_mut().zip(self.sum(parts)) {
            *to = from;
        }
    }

    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool {
        self.sum(&[covered, payload]) == *tag
    }
}

/// HMAC-SHA-256 under a secret derived from the job's secret, truncated to 16 bytes (RFC 2104,
/// section 5). A sender that does not know the job's secret gets no connection.
#[derive(Clone, Debug)]
pub struct HandshakeSeal {
    secret: Secret,
}

impl HandshakeSeal {
    /// Returns the seal under the job's secret.
    #[must_use]
    pub fn new(job: &Secret) -> Self {
        Self { secret: job.derive(&[b"oikaze handshake"]) }
    }
}

/// Seals of one node.
pub(crate) struct Seals {
    pub handshake: HandshakeSeal,
    pub data: DataSeal,
    /// File to which keys are written, if the user has asked for it.
    pub key_log: Option<KeyLog>,
}

/// Seal of all datagrams but handshakes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataSeal {
    Checksum(Checksum),
    /// Each connection has keys of its own ([`Session`](crate::sealing::session::Session)).
    Keyed(SealKind),
}

impl DataSeal {
    /// Returns the seal of this kind, or `None` if only handshakes have it.
    pub fn of(kind: SealKind) -> Option<Self> {
        let keyed = kind.is_keyed().then_some(Self::Keyed(kind));
        keyed.or_else(|| Checksum::of(kind).map(Self::Checksum))
    }

    /// Returns the kind.
    pub fn kind(self) -> SealKind {
        match self {
            Self::Checksum(checksum) => checksum.kind(),
            Self::Keyed(kind) => kind,
        }
    }

    /// Returns `true` if connections have keys.
    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Keyed(_))
    }
}

impl Seal for HandshakeSeal {
    fn kind(&self) -> SealKind {
        SealKind::Handshake
    }

    fn tag(&self, parts: &[&[u8]], out: &mut [u8]) {
        for (to, from) in out.iter_mut().zip(self.secret.mac(parts)) {
            *to = from;
        }
    }

    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool {
        tag.len() == self.len() && self.secret.verify(&[covered, payload], tag)
    }
}

/// Bytes of the header that hold the length of the frames (WIRE-2).
const FRAMES_LEN: Range<usize> = 18..20;

/// Returns the length of header and frames, which every kind of seal covers. Payload that lies
/// behind them in the same bytes is covered by some kinds only.
pub(super) fn end_of_frames(datagram: &[u8]) -> usize {
    let frames_len = datagram
        .get(FRAMES_LEN)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u16::from_le_bytes);
    (HEADER_LEN + usize::from(frames_len)).min(datagram.len())
}

/// Reseals as an attacker on the path who does not know the job's secret. Such an attacker can
/// correct a checksum, but not a handshake's seal.
impl Reseal for Checksum {
    fn reseal(&self, datagram: &mut [u8]) {
        let Some(end) =
            datagram.len().checked_sub(self.len()).filter(|_| !datagram.starts_with(&[0; 8]))
        else {
            return;
        };
        let (covered, tag) = datagram.split_at_mut(end);
        let (head, payload) = covered.split_at(end_of_frames(covered));
        self.tag(&[head, payload], tag);
    }
}

#[cfg(test)]
mod tests {
    use super::{Checksum, DataSeal};
    use oikaze_os::net::Reseal;
    use oikaze_protocol::limits::HEADER_LEN;
    use oikaze_protocol::wire::{Seal, SealKind};

    /// WIRE-5.2, WIRE-5.5: either kind covers header and frames. Only kind 1 covers the payload
    /// (WIRE-5.1, 5.2).
    #[test]
    fn what_each_kind_covers() {
        let (covered, payload) = (b"header and frames".as_slice(), b"payload".as_slice());
        for (kind, sees_the_payload) in [(SealKind::HeaderOnly, false), (SealKind::EndToEnd, true)]
        {
            let seal = Checksum::of(kind).unwrap();
            let mut tag = [0; 4];
            seal.tag(&[covered, payload], &mut tag);
            assert_eq!((seal.kind(), seal.len()), (kind, tag.len()));
            assert!(seal.verify(covered, payload, &tag));
            assert!(!seal.verify(b"header or frames", payload, &tag));
            assert_eq!(seal.verify(covered, b"pay10ad", &tag), !sees_the_payload);
            assert!(!seal.verify(covered, payload, &tag[..3]));
        }
        assert!(DataSeal::of(SealKind::Handshake).is_none());
        assert!(Checksum::of(SealKind::Encrypted).is_none());
    }

    /// A resealed datagram verifies under its kind. A handshake stays unchanged, because its seal
    /// cannot be computed.
    #[test]
    fn resealed_datagrams_verify_but_for_handshakes() {
        for kind in [SealKind::HeaderOnly, SealKind::EndToEnd] {
            let checksum = Checksum::of(kind).unwrap();
            let mut datagram = vec![3; HEADER_LEN + 50];
            datagram[18..20].copy_from_slice(&30_u16.to_le_bytes());
            checksum.reseal(&mut datagram);
            let (covered, tag) = datagram.split_at(HEADER_LEN + 46);
            let (head, payload) = covered.split_at(HEADER_LEN + 30);
            assert!(checksum.verify(head, payload, tag));
            // A length of frames beyond the datagram, and datagrams too short for a tag, cause no
            // panic.
            datagram[18..20].fill(0xff);
            checksum.reseal(&mut datagram);
            (0..HEADER_LEN).for_each(|len| checksum.reseal(&mut datagram[..len]));
            datagram[..8].fill(0);
            let before = datagram.clone();
            checksum.reseal(&mut datagram);
            assert_eq!(datagram, before);
        }
    }
}
