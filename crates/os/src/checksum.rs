//! CRC32C (RFC 3720, appendix B.4) at the speed of memory.
//!
//! Where the processor multiplies polynomials in wide registers, 256 bytes go at once (Gopal and others, *Fast CRC computation for generic
//! polynomials using PCLMULQDQ*, Intel, 2009): twice as fast as the CRC instruction over memory that no cache holds, and of datagrams of an
//! Ethernet MTU, too short for that instruction's latency to be hidden.

/// The sum of what has the sum `sum`, and then `bytes`. Of nothing it is 0.
#[must_use]
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= wide::BLOCK && wide::is_here() {
        // SAFETY: the processor has what is asked of it.
        return unsafe { wide::crc32c(sum, bytes) };
    }
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use core::arch::x86_64::{
        __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_extract_epi64,
        _mm_set_epi64x, _mm_xor_si128, _mm512_broadcast_i64x2, _mm512_clmulepi64_epi128, _mm512_extracti64x2_epi64,
        _mm512_loadu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    use std::arch::is_x86_feature_detected;

    /// What goes at once.
    pub(super) const BLOCK: usize = 4 * LINE;
    /// Bytes of a register.
    const LINE: usize = 64;
    /// The polynomial, its bits in the reverse order as everything here.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    pub(super) fn is_here() -> bool {
        is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    }

    /// x to the power of `exponent`, modulo the polynomial.
    const fn power(exponent: usize) -> i64 {
        let (mut value, mut left) = (1_u32 << 31, exponent);
        while left > 0 {
            value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
            left -= 1;
        }
        value as i64
    }

    /// What carries the two halves of 16 bytes past as many bytes.
    const fn past(bytes: usize) -> (i64, i64) {
        (power(8 * bytes + 31), power(8 * bytes - 33))
    }

    const PAST_BLOCK: (i64, i64) = past(BLOCK);
    const PAST_LINE: (i64, i64) = past(LINE);
    const PAST_LANE: (i64, i64) = past(16);

    #[target_feature(enable = "avx512f")]
    fn line(bytes: &[u8; LINE]) -> __m512i {
        // SAFETY: so many bytes are there, wherever they begin.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// Each 16 bytes of `value`, carried past as many bytes as `keys` say, and `next` there.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(value: __m512i, keys: __m512i, next: __m512i) -> __m512i {
        const XOR: i32 = 0x96;
        let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(value, keys), _mm512_clmulepi64_epi128::<0x11>(value, keys));
        _mm512_ternarylogic_epi64::<XOR>(low, high, next)
    }

    #[target_feature(enable = "avx512f,avx512dq")]
    fn keys((low, high): (i64, i64)) -> __m512i {
        _mm512_broadcast_i64x2(_mm_set_epi64x(high, low))
    }

    /// The four lanes as one.
    #[target_feature(enable = "avx512f,avx512dq,pclmulqdq")]
    fn lanes(value: __m512i) -> __m128i {
        let keys = _mm_set_epi64x(PAST_LANE.1, PAST_LANE.0);
        let fold = |value, next| {
            let (low, high) = (_mm_clmulepi64_si128::<0x00>(value, keys), _mm_clmulepi64_si128::<0x11>(value, keys));
            _mm_xor_si128(_mm_xor_si128(low, high), next)
        };
        let first = fold(_mm512_extracti64x2_epi64::<0>(value), _mm512_extracti64x2_epi64::<1>(value));
        fold(fold(first, _mm512_extracti64x2_epi64::<2>(value)), _mm512_extracti64x2_epi64::<3>(value))
    }

    #[target_feature(enable = "avx512f,avx512dq,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
        let (lines, tail) = bytes.as_chunks::<LINE>();
        let (blocks, lines) = lines.as_chunks::<4>();
        let (mut crc, mut tail) = (!sum, tail);
        if let Some((first, blocks)) = blocks.split_first() {
            let mut four = [line(&first[0]), line(&first[1]), line(&first[2]), line(&first[3])];
            four[0] = _mm512_xor_si512(four[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32)));
            let past_block = keys(PAST_BLOCK);
            for block in blocks {
                for (value, next) in four.iter_mut().zip(block) {
                    *value = fold(*value, past_block, line(next));
                }
            }
            let past_line = keys(PAST_LINE);
            let [first, others @ ..] = four;
            let one = others.into_iter().fold(first, |value, next| fold(value, past_line, next));
            let one = lanes(lines.iter().fold(one, |value, next| fold(value, past_line, line(next))));
            let half = _mm_crc32_u64(0, _mm_extract_epi64::<0>(one) as u64);
            crc = _mm_crc32_u64(half, _mm_extract_epi64::<1>(one) as u64) as u32;
        } else {
            tail = bytes;
        }
        let (words, odd) = tail.as_chunks::<8>();
        let whole = words.iter().fold(u64::from(crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        !odd.iter().fold(whole as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// The definition, bit by bit.
    fn slowly(sum: u32, bytes: &[u8]) -> u32 {
        let by_bit = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        !bytes.iter().fold(!sum, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| by_bit(crc)))
    }

    #[test]
    fn it_is_the_sum_of_the_definition_whatever_the_length_and_the_place() {
        // RFC 3720, appendix B.4.
        assert_eq!((crc32c(0, &[0; 32]), crc32c(0, b"123456789")), (0x8a91_36aa, 0xe306_9283));
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in (0..1100).chain([1408, 4095, 8192, 8896, 9000]) {
            let (sum, from) = ((len as u32).wrapping_mul(0x9e37_79b9), len % 67);
            let part = &bytes[from..from + len];
            assert_eq!(crc32c(sum, part), slowly(sum, part), "{len} bytes");
        }
    }

    #[test]
    fn parts_have_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..3000).map(|at| (at * 7 + at / 256) as u8).collect();
        for at in (0..3000).step_by(37) {
            let (one, other) = bytes.split_at(at);
            assert_eq!(crc32c(crc32c(0, one), other), crc32c(0, &bytes), "cut at {at}");
        }
    }
}
