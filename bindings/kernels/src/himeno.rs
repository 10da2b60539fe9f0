//! The kernel of Himeno, for C.

use oikaze_kernels::himeno::{Arrays, relax_plane, residuals_len};

use crate::{values, values_mut};

/// Computes a plane of the new field, with coefficients from arrays. Returns its sum of squared
/// residuals.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_relax_plane(
    rows: usize,
    columns: usize,
    coefficients: *const [*const f32; 12],
    old: *const f32,
    new: *mut f32,
    residuals: *mut f32,
) -> f64 {
    let plane = rows * columns;
    // SAFETY: the caller passes twelve arrays of a plane each, three planes of the old field,
    // another plane to write, and memory for the residuals of one row.
    let (coefficients, old, new, residuals) = unsafe {
        (
            (*coefficients).map(|start| values(start, plane)),
            values(old, 3 * plane),
            values_mut(new, plane),
            values_mut(residuals, residuals_len(columns)),
        )
    };
    let (before, rest) = old.split_at(plane);
    let (here, after) = rest.split_at(plane);
    let coefficients = Arrays(coefficients);
    relax_plane(columns, &coefficients, [before, here, after], new, residuals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_for_c_computes_what_the_kernel_computes() {
        const ROWS: usize = 5;
        const COLUMNS: usize = 30;
        const PLANE: usize = ROWS * COLUMNS;
        let value = |n: usize| ((n * 7919) % 1000) as f32 / 999.0;
        let old: Vec<f32> = (0..3 * PLANE).map(value).collect();
        let arrays: [Vec<f32>; 12] =
            std::array::from_fn(|a| (0..PLANE).map(|n| value(n + 17 * a)).collect());
        let mut residuals = [0.0; residuals_len(COLUMNS)];
        let (mut new, mut expected) = ([0.0; PLANE], [0.0; PLANE]);
        let planes = std::array::from_fn(|i| &old[i * PLANE..(i + 1) * PLANE]);
        let coefficients = Arrays(std::array::from_fn(|a| arrays[a].as_slice()));
        let sum = relax_plane(COLUMNS, &coefficients, planes, &mut expected, &mut residuals);
        let starts: [*const f32; 12] = std::array::from_fn(|a| arrays[a].as_ptr());
        // SAFETY: all arrays have the lengths that the function expects.
        let found = unsafe {
            kernel_relax_plane(
                ROWS,
                COLUMNS,
                &raw const starts,
                old.as_ptr(),
                new.as_mut_ptr(),
                residuals.as_mut_ptr(),
            )
        };
        assert_eq!((found.to_bits(), new), (sum.to_bits(), expected));
    }
}
