//! The kernels of CG, for C.

use oikaze_kernels::cg::{add_multiple, add_products, dot, multiply_and_add};

use crate::{values, values_mut};

/// Rows of a sparse matrix, as in `kernels.h`.
#[repr(C)]
pub struct Rows {
    rows: usize,
    starts: *const usize,
    ends: *const usize,
    elements: usize,
    columns: *const u32,
    values: *const f64,
}

/// Adds the product of some rows of a sparse matrix with a vector of `len` values.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_add_products(
    matrix: *const Rows,
    len: usize,
    vector: *const f64,
    sums: *mut f64,
) {
    // SAFETY: the caller passes the arrays of the matrix, a vector of this length, and a sum for
    // each row.
    let (starts, ends, columns, elements, vector, sums) = unsafe {
        let matrix = &*matrix;
        (
            values(matrix.starts, matrix.rows),
            values(matrix.ends, matrix.rows),
            values(matrix.columns, matrix.elements),
            values(matrix.values, matrix.elements),
            values(vector, len),
            values_mut(sums, matrix.rows),
        )
    };
    add_products(starts, ends, columns, elements, vector, sums);
}

/// Returns the scalar product of two vectors.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_dot(len: usize, one: *const f64, other: *const f64) -> f64 {
    // SAFETY: the caller passes two vectors of this length.
    let (one, other) = unsafe { (values(one, len), values(other, len)) };
    dot(one, other)
}

/// Computes `vector ← vector + factor · other`.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_add_multiple(
    len: usize,
    vector: *mut f64,
    factor: f64,
    other: *const f64,
) {
    // SAFETY: the caller passes two vectors of this length.
    let (vector, other) = unsafe { (values_mut(vector, len), values(other, len)) };
    add_multiple(vector, factor, other);
}

/// Computes `vector ← other + factor · vector`.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_multiply_and_add(
    len: usize,
    vector: *mut f64,
    factor: f64,
    other: *const f64,
) {
    // SAFETY: the caller passes two vectors of this length.
    let (vector, other) = unsafe { (values_mut(vector, len), values(other, len)) };
    multiply_and_add(vector, factor, other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_for_c_compute_sums_and_updates() {
        let (starts, ends, columns, elements) = ([0, 2], [2, 3], [0, 2, 1], [1.0, 2.0, 3.0]);
        let matrix = Rows {
            rows: 2,
            starts: starts.as_ptr(),
            ends: ends.as_ptr(),
            elements: 3,
            columns: columns.as_ptr(),
            values: elements.as_ptr(),
        };
        let (mut vector, other) = ([1.0, 10.0, 100.0], [1.0, 2.0, 3.0]);
        let mut sums = [1000.0, 2000.0];
        // SAFETY: all arrays have the lengths that the functions expect.
        let dot = unsafe {
            kernel_add_products(&raw const matrix, 3, vector.as_ptr(), sums.as_mut_ptr());
            kernel_dot(3, vector.as_ptr(), other.as_ptr())
        };
        assert_eq!((sums, dot), ([1201.0, 2030.0], 321.0));
        // SAFETY: both vectors have this length.
        unsafe { kernel_add_multiple(3, vector.as_mut_ptr(), 2.0, other.as_ptr()) };
        assert_eq!(vector, [3.0, 14.0, 106.0]);
        // SAFETY: both vectors have this length.
        unsafe { kernel_multiply_and_add(3, vector.as_mut_ptr(), 2.0, other.as_ptr()) };
        assert_eq!(vector, [7.0, 30.0, 215.0]);
    }
}
