//! Inner loops of `apps/kernels` for the MPI programs of the bench. Translation only: each function
//! makes slices of its pointers and calls the kernel of the same name.
//!
//! The header is `bench/mpi/kernels.h`. It says how long the memory behind each pointer is, and the
//! functions are as safe as their callers are right about it. The memory that a function writes
//! overlaps no other argument. A defect in a kernel ends the process, because a panic cannot leave
//! a function for C.

mod cg;
mod heat;
mod himeno;
mod histogram;
mod lu;
mod transpose;

use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Returns the `len` values at `start`.
///
/// # Safety
/// They are valid, and nothing writes them before the kernel returns.
const unsafe fn values<'a, T>(start: *const T, len: usize) -> &'a [T] {
    // SAFETY: as the caller says.
    unsafe { from_raw_parts(start, len) }
}

/// Returns the `len` values at `start`, to be written.
///
/// # Safety
/// They are valid, and nothing else reads or writes them before the kernel returns.
const unsafe fn values_mut<'a, T>(start: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: as the caller says.
    unsafe { from_raw_parts_mut(start, len) }
}
