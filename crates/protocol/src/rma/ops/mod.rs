//! Operations at the target: atomics, accumulates, blocks.

pub(crate) mod accumulate;
pub(crate) mod atomic;
pub(crate) mod body;
pub(crate) mod element;
pub(crate) mod strided;

/// Reserves traits of this module for the numbers that travel.
mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for u64 {}
    impl Sealed for i64 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
