//! The kernel of the transposition, for C.

use oikaze_kernels::transpose::{Tile, transpose};

/// Transposes a tile, and adds one to every value.
///
/// # Safety
/// The memory is that of `kernels.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_transpose(from: *const Tile, to: *mut Tile) {
    // SAFETY: the caller passes two tiles.
    let (from, to) = unsafe { (&*from, &mut *to) };
    transpose(from, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_for_c_computes_what_the_kernel_computes() {
        let from: Tile = std::array::from_fn(|n| n as f64);
        let (mut to, mut expected) = (from, from);
        transpose(&from, &mut expected);
        // SAFETY: both are tiles.
        unsafe { kernel_transpose(&raw const from, &raw mut to) };
        assert_eq!(to, expected);
    }
}
