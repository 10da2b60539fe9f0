//! Fingerprint of a field: FNV-1a, 64 bits. Equal fields have equal fingerprints on any number of
//! nodes.

/// Start value of a fingerprint. It is FNV's own offset basis 14695981039346656037 less its last
/// digit, because the published results for these fields were computed with it. Any start value
/// tells fields apart.
const START: u64 = 1_469_598_103_934_665_603;
/// The 64-bit FNV prime.
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a over bytes, which are added piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the fingerprint of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(START)
    }

    /// Continues over `bytes`.
    pub fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }

    /// Continues over the little-endian bytes of `values`.
    pub fn f32s(&mut self, values: &[f32]) {
        for value in values {
            self.bytes(value.to_le_bytes());
        }
    }

    /// Continues over the little-endian bytes of `values`.
    pub fn f64s(&mut self, values: &[f64]) {
        for value in values {
            self.bytes(value.to_le_bytes());
        }
    }

    /// Continues over the little-endian bytes of `values`.
    pub fn u64s(&mut self, values: &[u64]) {
        for value in values {
            self.bytes(value.to_le_bytes());
        }
    }

    /// Returns the fingerprint of all bytes so far.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    /// The test vectors of the FNV page (<http://www.isthe.com/chongo/tech/comp/fnv/>).
    #[test]
    fn known_vectors() {
        for (text, expected) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8_u64),
        ] {
            let mut print = Fingerprint(0xcbf2_9ce4_8422_2325); // FNV's own start
            print.bytes(text.bytes());
            assert_eq!(print.value(), expected, "{text}");
        }
    }

    #[test]
    fn pieces_do_not_matter() {
        let (mut whole, mut pieces) = (Fingerprint::new(), Fingerprint::new());
        whole.f32s(&[1.0, 2.0, 3.0]);
        pieces.f32s(&[1.0]);
        pieces.f32s(&[2.0, 3.0]);
        assert_eq!(whole, pieces);
    }
}
