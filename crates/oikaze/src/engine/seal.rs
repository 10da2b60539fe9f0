//! The two seals in use today (spec/wire.md): CRC32C end to end for data, a keyed MAC for handshakes.

use crate::job::Secret;
use oikaze_protocol::wire::{Seal, SealKind};

/// CRC32C (RFC 3720, appendix B.4) over header, frames and payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

impl Seal for Checksum {
    fn kind(&self) -> SealKind {
        SealKind::EndToEnd
    }

    fn tag(&self, parts: &[&[u8]], out: &mut [u8]) {
        let sum = parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        for (to, from) in out.iter_mut().zip(sum.to_le_bytes()) {
            *to = from;
        }
    }

    fn verify(&self, covered: &[u8], payload: &[u8], tag: &[u8]) -> bool {
        crc32c::crc32c_append(crc32c::crc32c(covered), payload).to_le_bytes() == *tag
    }
}

/// HMAC-SHA-256 under a secret derived from the job's, cut to 16 bytes (RFC 2104, section 5): who does not know the secret gets
/// no connection.
#[derive(Clone, Debug)]
pub struct HandshakeSeal {
    secret: Secret,
}

impl HandshakeSeal {
    /// A seal under the job's secret.
    #[must_use]
    pub fn new(job: &Secret) -> Self {
        Self { secret: job.derive(&[b"oikaze handshake"]) }
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
