//! The kernels of LU, for C.

use oikaze_kernels::lu::{Block, divide, eliminate, factor, update};

/// Factors a diagonal block.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_factor(diagonal: *mut Block) {
    // SAFETY: the caller passes a block.
    factor(unsafe { &mut *diagonal });
}

/// Divides a block below the diagonal one.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_divide(block: *mut Block, diagonal: *const Block) {
    // SAFETY: the caller passes two blocks.
    let (block, diagonal) = unsafe { (&mut *block, &*diagonal) };
    divide(block, diagonal);
}

/// Eliminates a block to the right of the diagonal one.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_eliminate(block: *mut Block, diagonal: *const Block) {
    // SAFETY: the caller passes two blocks.
    let (block, diagonal) = unsafe { (&mut *block, &*diagonal) };
    eliminate(block, diagonal);
}

/// Updates an inner block.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_update(block: *mut Block, left: *const Block, above: *const Block) {
    // SAFETY: the caller passes three blocks.
    let (block, left, above) = unsafe { (&mut *block, &*left, &*above) };
    update(block, left, above);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_for_c_compute_what_the_kernels_compute() {
        let block = |seed: usize| -> Block {
            std::array::from_fn(|n| if n % 17 == 0 { 50.0 } else { ((n + seed) % 7) as f64 })
        };
        let (mut diagonal, mut below, mut right, mut inner) =
            (block(1), block(2), block(3), block(4));
        let mut found = [diagonal, below, right, inner];
        factor(&mut diagonal);
        divide(&mut below, &diagonal);
        eliminate(&mut right, &diagonal);
        update(&mut inner, &below, &right);
        let [first, left, above, last] = &mut found;
        // SAFETY: all are blocks.
        unsafe {
            kernel_factor(first);
            kernel_divide(left, first);
            kernel_eliminate(above, first);
            kernel_update(last, left, above);
        }
        assert_eq!(found, [diagonal, below, right, inner]);
    }
}
