//! Copies bytes into a local peer's memory.
//!
//! Bench case: `put_bw` of 8 KiB (`bench shm`).

use core::ptr::NonNull;

/// Sizes in bytes that are copied by registers of 32 bytes, where the processor has them. From
/// about 2 KiB on, C libraries use `rep movsb` where processors say that it is fast, but it starts
/// slowly. On an AMD EPYC of 2022 with glibc 2.36, 8 KiB take 76 ns instead of 92 ns. From 16 KiB
/// on there is no difference, and prefetching cache lines takes longer.
#[cfg(target_arch = "x86_64")]
const BY_REGISTERS: core::ops::Range<usize> = 2048..16_384;

/// Copies bytes. A word, the usual size of a single put, is copied by one store and without a call.
/// Memory that is mapped twice may be both source and destination. The result for overlapping bytes
/// is unspecified.
///
/// # Safety
/// As many bytes at `to` are valid for writing, and nobody has references to them.
#[inline(always)]
pub(super) unsafe fn copy(bytes: &[u8], to: NonNull<u8>) {
    if bytes.len() == size_of::<u64>() {
        // SAFETY: the caller vouches for eight bytes there, and the slice for as many here.
        unsafe { to.cast::<u64>().write_unaligned(bytes.as_ptr().cast::<u64>().read_unaligned()) }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if BY_REGISTERS.contains(&bytes.len()) && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the caller vouches for the bytes there.
        unsafe { by_registers(bytes, to) }
        return;
    }
    // SAFETY: the caller vouches for the one, the slice for the other.
    unsafe { core::ptr::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
}

/// Bytes of one step.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 128;

/// As [`copy`], for at least one step.
///
/// # Safety
/// As for [`copy`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn by_registers(bytes: &[u8], to: NonNull<u8>) {
    let Some(last) = bytes.len().checked_sub(STEP) else { return };
    for at in (0..last).step_by(STEP) {
        // SAFETY: a step from `at` on ends within the slice, and within as many bytes there.
        unsafe { step(bytes.as_ptr().add(at), to.as_ptr().add(at)) }
    }
    // SAFETY: as above; some of it may have been copied before.
    unsafe { step(bytes.as_ptr().add(last), to.as_ptr().add(last)) }
}

/// Copies one step.
///
/// # Safety
/// As many bytes are valid for reading there, and for writing here; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn step(from: *const u8, to: *mut u8) {
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
    // SAFETY: four times 32 bytes, for which the caller vouches; neither needs to be aligned.
    unsafe {
        let words = [0, 1, 2, 3].map(|n| _mm256_loadu_si256(from.add(n)));
        _mm256_storeu_si256(to, words[0]);
        _mm256_storeu_si256(to.add(1), words[1]);
        _mm256_storeu_si256(to.add(2), words[2]);
        _mm256_storeu_si256(to.add(3), words[3]);
    }
}

#[cfg(test)]
mod tests {
    use super::copy;
    use core::ptr::NonNull;

    /// For all sizes and addresses, exactly these bytes are written.
    #[test]
    fn all_bytes_arrive_and_none_beside_them() {
        const MOST: usize = 16_500;
        let source: Vec<u8> = (0..MOST + 64).map(|n| (n % 251) as u8 | 1).collect();
        let sizes =
            (0..300).chain(2040..2320).chain((2320..MOST).step_by(377)).chain(16_370..16_400);
        for (turn, len) in sizes.enumerate() {
            let (from, at) = (turn % 61, turn % 37);
            let mut there = vec![0; MOST + 128];
            let to = NonNull::new(there[at..].as_mut_ptr()).unwrap();
            // SAFETY: room for `len` bytes from there on, and nobody else looks.
            unsafe { copy(&source[from..from + len], to) }
            assert_eq!(
                there[at..at + len],
                source[from..from + len],
                "{len} bytes from {from} to {at}"
            );
            assert!(
                there[..at].iter().chain(&there[at + len..]).all(|byte| *byte == 0),
                "{len} bytes from {from} to {at}"
            );
        }
    }
}
