//! The kernel of the heat equation, for C.

use oikaze_kernels::heat::step_row;

use crate::{values, values_mut};

/// Computes a row of the next step. Returns its sum of squared changes.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_step_row(
    size: usize,
    above: *const f64,
    here: *const f64,
    below: *const f64,
    next: *mut f64,
) -> f64 {
    // SAFETY: the caller passes four rows of this size.
    let (above, here, below, next) = unsafe {
        (values(above, size), values(here, size), values(below, size), values_mut(next, size))
    };
    step_row(above, here, below, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_for_c_computes_what_the_kernel_computes() {
        let row = |seed: usize| -> [f64; 13] { std::array::from_fn(|n| (n * n + seed) as f64) };
        let (above, here, below) = (row(1), row(5), row(20));
        let (mut next, mut expected) = (row(0), row(0));
        let sum = step_row(&above, &here, &below, &mut expected);
        let rows = [&above, &here, &below].map(|row| row.as_ptr());
        // SAFETY: all rows have this size.
        let found = unsafe { kernel_step_row(13, rows[0], rows[1], rows[2], next.as_mut_ptr()) };
        assert_eq!((found.to_bits(), next), (sum.to_bits(), expected));
    }
}
