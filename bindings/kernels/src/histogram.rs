//! The kernels of the histogram, for C.

use oikaze_kernels::histogram::{count, fullest};

use crate::{values, values_mut};

/// Counts the keys `from` to `to` of the sequence of `seed`.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_count(
    seed: u64,
    from: u64,
    to: u64,
    bins: usize,
    counts: *mut u64,
) {
    // SAFETY: the caller passes a counter for each bin.
    let counts = unsafe { values_mut(counts, bins) };
    count(seed, from..to, counts);
}

/// Stores the first of the fullest bins, and its count.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_fullest(bins: usize, counts: *const u64, result: *mut [u64; 2]) {
    // SAFETY: the caller passes a counter for each bin, and two places to write.
    let (counts, result) = unsafe { (values(counts, bins), &mut *result) };
    *result = fullest(counts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_for_c_count_keys_and_find_the_fullest_bin() {
        const BINS: usize = 5;
        let (mut counts, mut expected) = ([0; BINS], [0; BINS]);
        let mut result = [0; 2];
        count(7, 10..100, &mut expected);
        // SAFETY: there is a counter for each bin, and the result has two places.
        unsafe {
            kernel_count(7, 10, 100, BINS, counts.as_mut_ptr());
            kernel_fullest(BINS, counts.as_ptr(), &raw mut result);
        }
        assert_eq!((counts, result), (expected, fullest(&expected)));
    }
}
