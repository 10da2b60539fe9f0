//! Inner loops of the programs of `apps/`, as pure functions over slices.
//!
//! The MPI programs of `bench/mpi` call the same functions through `bindings/kernels`, so that the
//! bench compares two ways of communication and not two compilers.
//!
//! Every function is generic or `#[inline]`, because only then the crate that calls the function
//! decides for which processor it is compiled: `cargo xtask bench` builds the programs with
//! `-C target-cpu=native`, and their libraries without.
#![forbid(unsafe_code)]

pub mod cg;
pub mod heat;
pub mod himeno;
pub mod histogram;
pub mod lu;
pub mod random;
pub mod transpose;
