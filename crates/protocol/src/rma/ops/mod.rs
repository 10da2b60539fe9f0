//! Operations at the target: atomics, accumulates, blocks.

pub(crate) mod accumulate;
pub(crate) mod atomic;
pub(crate) mod element;
pub(crate) mod strided;
