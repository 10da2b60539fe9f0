//! Atomics, or those of loom in models.

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
