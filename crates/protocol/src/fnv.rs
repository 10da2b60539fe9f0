//! Checksums that detect accidental differences.

/// Returns FNV-1a, 64 bits (draft-eastlake-fnv). An attacker can find other bytes with the same
/// sum.
#[must_use]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    /// Test vectors of the draft.
    #[test]
    fn sums_are_as_published() {
        let sums = [b"".as_slice(), b"a", b"foobar"].map(|bytes| fnv1a(bytes.iter().copied()));
        assert_eq!(sums, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
