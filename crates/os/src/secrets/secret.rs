//! Shared secret of a job: 32 random bytes that only its launcher and nodes know.

use crate::processes::inherited::Inheritance;
use crate::secrets::protected::Protected;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// Length of a secret in bytes.
pub const SECRET_LEN: usize = 32;

/// Secret of 32 random bytes. It is never printed: `Debug` hides it, and `Display` does not exist.
/// Core dumps do not have it. Clones share the bytes, and dropping the last one overwrites them.
#[derive(Clone)]
pub struct Secret(Arc<Protected<[u8; SECRET_LEN]>>);

impl Secret {
    /// Makes a new secret from the system's random source.
    ///
    /// # Errors
    /// The system has no random bytes to give.
    pub fn random() -> std::io::Result<Secret> {
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        getrandom::fill(&mut *bytes).map_err(|why| std::io::Error::other(why.to_string()))?;
        Ok(Secret::from_bytes(*bytes))
    }

    /// Makes a secret from known bytes.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; SECRET_LEN]) -> Secret {
        let secret = Secret(Arc::new(Protected::new(bytes)));
        bytes.zeroize();
        secret
    }

    /// Reads a secret from 64 hexadecimal digits, as in `OIKAZE_SECRET`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Secret> {
        let digits = text.as_bytes();
        if digits.len() != 2 * SECRET_LEN {
            return None;
        }
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for &digit in pair {
                *byte = *byte << 4 | u8::try_from(char::from(digit).to_digit(16)?).ok()?;
            }
        }
        Some(Secret::from_bytes(*bytes))
    }

    /// Returns the secret as 64 hexadecimal digits: only for a child's environment or an agent's
    /// standard input, never for argv or a log.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.expose().iter().fold(String::with_capacity(2 * SECRET_LEN), |mut text, byte| {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
            text
        })
    }

    /// Passes the secret to a child process by a descriptor.
    ///
    /// # Errors
    /// As [`Inheritance::new`].
    pub fn inheritance(&self) -> std::io::Result<Inheritance> {
        Inheritance::new(self.expose())
    }

    /// Returns the HMAC-SHA256 (RFC 2104) of the concatenated `parts` under this secret. The first
    /// part should be a label that no other use shares.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = start(self.expose());
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// Returns `true` if `tag` equals [`Secret::mac`], cut to the tag's length of at least 16
    /// bytes. The time does not depend on where they differ.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        let mut mac = start(self.expose());
        parts.iter().for_each(|part| mac.update(part));
        tag.len() >= 16 && mac.verify_truncated_left(tag).is_ok()
    }

    /// Returns the bytes, for the computation of keys only.
    pub(crate) fn expose(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// Derives a secret for one purpose, so that the job's own is never used for two.
    #[must_use]
    pub fn derive(&self, parts: &[&[u8]]) -> Secret {
        Secret::from_bytes(self.mac(parts))
    }
}

/// Starts an HMAC with the key. HMAC takes a key of any length, so the error of `new_from_slice`
/// cannot occur. An all-zero key of full length is the same type.
fn start(key: &[u8; SECRET_LEN]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::<Sha256>::new(&Default::default()))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_both_ways() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret.clone()));
        assert_eq!(Secret::from_hex(&secret.to_hex().to_uppercase()), Some(secret));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn never_printed() {
        let secret = Secret::from_bytes([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
    }

    #[test]
    fn mac_is_rfc_4231_hmac() {
        // RFC 4231, test case 1, has a 20-byte key; HMAC pads keys with zeros, so it equals the
        // 32-byte key padded with zeros.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let secret = Secret::from_bytes(key);
        let tag = secret.mac(&[b"Hi ", b"There"]);
        assert_eq!(tag[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
        assert!(secret.verify(&[b"Hi There"], &tag) && secret.verify(&[b"Hi There"], &tag[..16]));
        assert!(!secret.verify(&[b"Hi There"], &tag[..15]) && !secret.verify(&[b"Hi there"], &tag));
    }
}
