//! Copying bytes, which is always possible.

use super::mover::Placed;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, copy_nonoverlapping};

/// Size in bytes of the buffer of an exchange: half of the smallest first-level cache, so that the
/// third copy is nearly free.
const BOUNCE: usize = 16 << 10;

/// # Safety
/// `len` bytes at both places are mapped, readable, at `to` writable, and have no byte in common;
/// no reference to them exists. Others may write there meanwhile: the bytes are then some mixture.
pub(super) unsafe fn copy(to: NonNull<u8>, from: NonNull<u8>, len: usize) -> Placed {
    // SAFETY: the caller vouches.
    unsafe { copy_nonoverlapping(from.as_ptr(), to.as_ptr(), len) }
    Placed { moved: 0, copied: len as u64 }
}

/// # Safety
/// As [`copy`], and both are writable.
pub(super) unsafe fn exchange(a: NonNull<u8>, b: NonNull<u8>, len: usize) -> Placed {
    let mut bounce = [MaybeUninit::<u8>::uninit(); BOUNCE];
    let bounce = bounce.as_mut_ptr().cast::<u8>();
    for done in (0..len).step_by(BOUNCE) {
        let some = BOUNCE.min(len - done);
        // SAFETY: inside both ranges, which the caller vouches for; the bounce buffer is ours and
        // is filled before it is read.
        unsafe {
            let (a, b) = (a.as_ptr().add(done), b.as_ptr().add(done));
            copy_nonoverlapping(a, bounce, some);
            copy_nonoverlapping(b, a, some);
            copy_nonoverlapping(bounce, b, some);
        }
    }
    Placed { moved: 0, copied: len as u64 }
}
