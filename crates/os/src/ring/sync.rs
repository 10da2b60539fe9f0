//! Atomics, or loom's stand-ins.

#[cfg(loom)]
pub(super) use loom::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
