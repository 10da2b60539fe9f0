//! The systems that are measured beside the floor.

pub mod oikaze;
pub mod ucx;
